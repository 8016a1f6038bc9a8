#include "models/base/rotary.h"

#include <algorithm>

#include "core/error.h"

namespace tessera::models {

int64_t RotarySettings::rope_channels(int64_t dim, int64_t heads) const {
  const auto width = static_cast<double>(rope_shared ? dim / heads : dim);
  return rope == Rope::none ? 0 : static_cast<int64_t>(width * rope_ratio);
}

void RotarySettings::check_rope(int64_t dim, int64_t heads, const std::string& where) const {
  const int64_t axis = rope == Rope::one_axis ? 2 : 4, step = axis * (rope_shared ? 1 : heads);
  const int64_t channels = rope_channels(dim, heads);
  using Kind = nn::RopeScalingKind;
  if (channels % step != 0)
    fail_usage("model.rope = \"", name_of(rope), "\" rotates ", channels, " channels", where,
               ", must be a multiple of ", step);
  if (rope_scaling == Kind::dynamic || rope_scaling == Kind::longrope)
    fail_usage("model.rope_scaling = \"", name_of(rope_scaling),
               "\" is for sequences that grow, images have \"ntk\"");
  if (rope_scaling != Kind::none && rope_theta <= 1)
    fail_usage("model.rope_scaling needs model.rope_theta over 1, it is ", rope_theta);
  if (rope_scaling == Kind::ntk && rope != Rope::none && channels <= axis)
    fail_usage("model.rope_scaling = \"ntk\" needs more than ", axis,
               " channels that are rotated, there are ", channels, where);
}

nn::RopeScaling RotarySettings::scaling(Extent built, Extent now) const {
  struct Side {
    double built, now;
    double growth() const { return now / built; }
  };
  const auto side = [](int64_t before, int64_t after) {
    return Side{static_cast<double>(before), static_cast<double>(after)};
  };
  const Side rows = side(built.height, now.height), columns = side(built.width, now.width),
             cells = side(built.height * built.width, now.height * now.width);
  const Side along = rope == Rope::one_axis ? cells : rows.growth() >= columns.growth() ? rows : columns;
  return {.kind = rope_scaling, .factor = std::max(along.growth(), 1.0), .trained = along.built};
}

nn::Rotation RotarySettings::rotation(const nn::GridPositions& at, int64_t columns, int64_t dim,
                                      int64_t heads, double theta, const nn::RopeScaling& scaling) const {
  const int64_t channels = rope_channels(dim, heads);
  if (channels == 0) return {};
  const bool flat = rope == Rope::one_axis;
  const torch::Tensor frequencies = nn::rotary_frequencies(flat ? channels : channels / 2, theta, scaling);
  nn::Rotation rotated = flat ? nn::rotation_at(at.y * static_cast<double>(columns) + at.x, frequencies)
                              : nn::rotation_at(at.x, at.y, frequencies);
  rotated.magnitude = nn::rotary_magnitude(scaling);
  return rope_shared ? rotated : nn::split_over_heads(rotated, heads);
}

}  // namespace tessera::models
