// Mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019) on a batch of normalised images, as in timm.
//
// Every image i is mixed with its mirror in the batch, i' = batch - 1 - i:
//   mixup   x = lambda * x_i + (1 - lambda) * x_i'
//   CutMix  a box of x_i is replaced by that of x_i', lambda corrected to the share of the remaining area
//   target  y = lambda * y_i + (1 - lambda) * y_i',  y one-hot with label smoothing
// Modes: `batch` draws once, `pair` once for each pair (i, i'), `elem` once for each image.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/random.h"
#include "data/base/field.h"

namespace tessera::data {

enum class MixMode { batch, pair, elem };
}
namespace tessera {
template <>
struct EnumNames<data::MixMode> {
  static constexpr std::array names = {"batch", "pair", "elem"};
};
}  // namespace tessera

namespace tessera::data {

struct MixupConfig {
  double mixup = 0;          // alpha of the Beta distribution, 0 = no mixup
  double cutmix = 0;         // the same for CutMix
  double prob = 1;           // share of draws that mix images at all
  double switch_prob = 0.5;  // share of CutMix among them if both are on
  MixMode mode = MixMode::batch;
  template <class V>
  void visit(V& v) {
    v("mixup", mixup, at_least(0), "alpha of mixup's Beta distribution, 0 = off");
    v("cutmix", cutmix, at_least(0), "alpha of CutMix's Beta distribution, 0 = off");
    v("prob", prob, between(0, 1), "share of draws that mix at all");
    v("switch_prob", switch_prob, between(0, 1), "share of CutMix if both are on");
    v("mode", mode, choice<MixMode>(), "one draw a batch, a pair or an image");
  }
  bool enabled() const { return mixup > 0 || cutmix > 0; }
};

// Rows [top, bottom) and columns [left, right).
struct MixBox {
  int64_t top = 0, bottom = 0, left = 0, right = 0;
};

// The mix of one image, or of the whole batch.
struct MixDraw {
  double lambda = 1;
  bool cutmix = false;
  MixBox box;  // only for CutMix, where lambda is already corrected
};

// Returns the box of a CutMix draw around a centre, clipped to the image. Sets `lambda` to the share of the
// area outside it.
MixBox cutmix_box(int64_t height, int64_t width, double& lambda, int64_t centre_y, int64_t centre_x);

// Returns the draws of one batch: 1 for `batch`, batch/2 for `pair` (rounded up), batch for `elem`.
std::vector<MixDraw> draw_mix(const MixupConfig& config, int64_t batch, int64_t height, int64_t width,
                              RandomStream& random);

// Mixes images [channels, height, width] in place, each with its mirror in the list. `draws` has 1 entry, or
// one per image, or with mode `pair` one per pair. Returns each image's lambda.
std::vector<double> mix_pictures(MixMode mode, const std::vector<MixDraw>& draws,
                                 const std::vector<float*>& pictures, int64_t channels, int64_t height,
                                 int64_t width);

// Returns smoothed one-hot targets mixed by lambda, [batch, classes]: smoothing / classes everywhere, and 1 -
// smoothing more for the class.
std::vector<float> mix_targets(const std::vector<int64_t>& labels, int64_t classes, double smoothing,
                               const std::vector<double>& lambda);

// Mixes samples 2i and 2i + 1 of the batch of all processes, field "image". This batch is a share of it that
// keeps pairs together. Adds the field "targets", f32 [classes], from "label" or from multi-label targets.
// `random` is the stream of this batch.
void mix_batch(const MixupConfig& config, int64_t classes, RandomStream& random, Batch& batch);

}  // namespace tessera::data
