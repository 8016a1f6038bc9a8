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
    v("rope", rope, choice<Rope>(), "axes of the rotary positions");
    v("rope_theta", rope_theta, above(0), "base of the rotary frequencies");
    v("rope_ratio", rope_ratio, between(0, 1), "share of each head's channels that is rotated");
    v("rope_shared", rope_shared,
      "one table for all heads, else one over the whole width, split over the heads");
    v("rope_scaling", rope_scaling, choice<nn::RopeScalingKind>(),
      "how the frequencies adapt to grids larger than that of image_size");
  }
  // Throws usage errors for a layer of this width. `where` completes "rotates 6 channels", as in " in stage
  // 2".
  void check_rope(int64_t dim, int64_t heads, const std::string& where = "") const;
  // Returns the number of rotated channels per head, or of all heads together if they share no table.
  int64_t rope_channels(int64_t dim, int64_t heads) const;
  // Returns the scaling on grid `now` for a model built for grid `built`. The factor is the ratio of the side
  // that grew most (1-D: the ratio of the numbers of cells), at least 1.
  nn::RopeScaling scaling(Extent built, Extent now) const;
  // Returns the rotation of tokens at these positions in a grid with `columns` columns, or an empty one.
  nn::Rotation rotation(const nn::GridPositions& at, int64_t columns, int64_t dim, int64_t heads,
                        double theta, const nn::RopeScaling& scaling) const;
};

}  // namespace tessera::models

template <>
struct tessera::EnumNames<tessera::models::Rope> {
  static constexpr std::array names = {"2d", "1d", "none"};
};
