// The rotary positions of VisionLLaMA, plain and pyramid: their settings, and their rotations.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "models/base/family.h"
#include "nn/rope.h"
#include "nn/rope_scaling.h"

namespace tessera::models {

enum class Rope { two_axes, one_axis, none };

struct RotarySettings {
  Rope rope = Rope::two_axes;
  double rope_theta = 10000, rope_ratio = 1;
  bool rope_shared = true;
  nn::RopeScalingKind rope_scaling = nn::RopeScalingKind::none;

  template <class V>
  void visit_rope(V& v) {
    v("rope", rope, choice<Rope>(), "axes that the rotary positions have");
    v("rope_theta", rope_theta, above(0), "base of the rotary frequencies");
    v("rope_ratio", rope_ratio, between(0, 1), "share of each head's channels that is rotated");
    v("rope_shared", rope_shared, "one table for all heads, else one over the whole width, a piece a head");
    v("rope_scaling", rope_scaling, choice<nn::RopeScalingKind>(),
      "how the frequencies make room for grids larger than that of image_size");
  }
  // Usage errors for a layer of this width; `where` ends "rotates 6 channels": " in stage 2".
  void check_rope(int64_t dim, int64_t heads, const std::string& where = "") const;
  // How many channels are rotated: of a head, or of all heads together where they share no table.
  int64_t rope_channels(int64_t dim, int64_t heads) const;
  // The scaling on a grid when the model was built for another: the factor is by how much the
  // grid is longer along its side that grew most (1-D: by how many times it has more cells), at least 1.
  nn::RopeScaling scaling(Extent built, Extent now) const;
  // The rotation of tokens at these places of a grid with `columns` columns; none without channels.
  nn::Rotation rotation(const nn::GridPositions& at, int64_t columns, int64_t dim, int64_t heads,
                        double theta, const nn::RopeScaling& scaling) const;
};

}  // namespace tessera::models

template <>
struct tessera::EnumNames<tessera::models::Rope> {
  static constexpr std::array names = {"2d", "1d", "none"};
};
