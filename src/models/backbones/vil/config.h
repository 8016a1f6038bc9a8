// The settings of Vision-LSTM, with the ablations of the paper's Tables 4 and 5 and Figure 4.
#pragma once

#include <array>
#include <cmath>

#include "models/base/family.h"
#include "models/base/isotropic.h"
#include "models/base/windows.h"
#include "nn/mlstm.h"

namespace tessera::models {

// classifier, or features: a model without a class head (VilBackbone::published_features).
enum class VilMode { classifier, features };
// The tokens that the head reads (Table 5): the first and last concatenated, or their mean; the mean of all
// patches or of the (up to) four in the middle; the middle patch; or class tokens concatenated. In mode
// features, the published class returns all tokens, or a map.
enum class VilPooling {
  bilateral_flatten,
  bilateral_avg,
  mean,
  center_mean,
  middle,
  cls_first,
  cls_last,
  cls_bilateral,
  cls_middle,
  cls_middle_bilateral,
  none,
  to_image
};
enum class VilDirections { uni, bi, quad, oct };  // Figure 4
enum class VilTraversal { alternating, parallel, in_layer };
enum class VilNormEps { published, training };
enum class VilCell { published, paper };
enum class VilConvGrid { input, built };

struct VilConfig : IsotropicSettings, WindowSettings {
  int64_t stride = 0, inner_multiple = 1;
  double expansion = 2;
  VilMode mode = VilMode::classifier;
  VilPooling pooling = VilPooling::bilateral_flatten;
  VilDirections directions = VilDirections::bi;
  VilTraversal traversal = VilTraversal::alternating;
  bool positions = true, legacy_norm = true;
  NormKind norm = NormKind::layer;
  VilNormEps norm_eps = VilNormEps::published;
  VilCell cell = VilCell::published;
  nn::MlstmConv conv_kind = nn::MlstmConv::grid;
  VilConvGrid conv_grid = VilConvGrid::input;
  int64_t conv_kernel = 3;
  bool share_conv = true, value_conv = false, share_directions = false;
  bool skip = true, norm_bias = true, proj_bias = true, conv_bias = true;
  double init_values = 0;

  VilConfig() { heads = 4; }

  template <class V>
  void visit(V& v) {
    v("image_size", image_size, "side in pixels, or [height, width]");
    v("in_channels", in_channels, kInChannels, "channels of an image: 3, 1 for grey ones, or more bands");
    v("patch_size", patch_size, kPatchSize, "side of a patch in pixels");
    v("stride", stride, between(0, kPatchSize.high),
      "step between patches in pixels, 0 = patch_size (no overlap)");
    v("dim", dim, between(2, kWidth.high), "width of a token");
    v("depth", depth, kDepth,
      "vil: pairs of blocks, vil1: blocks; traversal parallel or in_layer: groups of all directions");
    v("heads", heads, kHeads, "heads of the mLSTM cell");
    v("inner_multiple", inner_multiple, kWidth,
      "the cell's width is expansion * dim rounded up to a multiple of this");
    v("expansion", expansion, between(0.25, 64),
      "width of the cell as a multiple of dim (the training source's proj_factor)");
    v("mode", mode, choice<VilMode>(), "features: all tokens (pooling none) or a map (to_image), no head");
    v("pooling", pooling, choice<VilPooling>(), "Table 5: tokens that the head reads");
    v("directions", directions, choice<VilDirections>(), "Figure 4");
    v("traversal", traversal, choice<VilTraversal>(),
      "one direction per block, a block for each with outputs summed (eq. 15), or all between one pair of "
      "projections (the training source)");
    v("positions", positions, "learned absolute positions");
    v("legacy_norm", legacy_norm, "a second norm before the head, as in the published training");
    v("norm", norm, choice<NormKind>(), "in the blocks and before the head");
    v("norm_eps", norm_eps, choice<VilNormEps>(),
      "eps of the last two norms: the inference code's, or the training's");
    v("cell", cell, choice<VilCell>(), "paper: eq. 3 to 9 (ops/mlstm_mixer.h)");
    v("conv_kind", conv_kind, choice<nn::MlstmConv>(), "depthwise convolution before q and k (Table 4)");
    v("conv_grid", conv_grid, choice<VilConvGrid>(),
      "rows of the 2d convolution: the image's, or those of image_size whatever the image (published code)");
    v("conv_kernel", conv_kernel, between(1, 255), "side of the convolution");
    v("share_conv", share_conv, "one convolution for q and k (and v), else one for each");
    v("value_conv", value_conv, "v reads the convolution too");
    v("share_directions", share_directions, "traversal in_layer: the same weights in all directions");
    v("init_values", init_values, at_least(0), "first values of the layer scale, 0 = none");
    v("skip", skip, "learnable skip from the convolution to the output");
    v("norm_bias", norm_bias, "biases of the norms");
    v("proj_bias", proj_bias, "biases of the projections");
    v("conv_bias", conv_bias, "bias of the convolution");
    visit_windows(v);
    v("drop_path", drop_path, from_to_below(0, 1), "rate of stochastic depth");
    v("drop_path_decay", drop_path_decay,
      "from 0 at the first group of blocks to drop_path at the last, else the same for all");
  }
  void check() const;  // relations between settings

  int64_t direction_count() const { return int64_t{1} << static_cast<int64_t>(directions); }
  int64_t inner() const {  // width of the cell
    return static_cast<int64_t>(
               std::ceil(expansion * static_cast<double>(dim) / static_cast<double>(inner_multiple))) *
           inner_multiple;
  }
  // Returns the positions of class tokens among the patches of a grid.
  TokenPlaces places(int64_t rows, int64_t columns) const;
  int64_t class_tokens() const;
  int64_t read_width() const;  // width of the vector that the head reads
};

}  // namespace tessera::models

template <>
struct tessera::EnumNames<tessera::models::VilMode> {
  static constexpr std::array names = {"classifier", "features"};
};
template <>
struct tessera::EnumNames<tessera::models::VilPooling> {
  static constexpr std::array names = {
      "bilateral_flatten", "bilateral_avg", "mean",       "center_mean",          "middle", "cls_first",
      "cls_last",          "cls_bilateral", "cls_middle", "cls_middle_bilateral", "none",   "to_image"};
};
template <>
struct tessera::EnumNames<tessera::models::VilDirections> {
  static constexpr std::array names = {"uni", "bi", "quad", "oct"};
};
template <>
struct tessera::EnumNames<tessera::models::VilTraversal> {
  static constexpr std::array names = {"alternating", "parallel", "in_layer"};
};
template <>
struct tessera::EnumNames<tessera::models::VilNormEps> {
  static constexpr std::array names = {"published", "training"};
};
template <>
struct tessera::EnumNames<tessera::models::VilCell> {
  static constexpr std::array names = {"published", "paper"};
};
template <>
struct tessera::EnumNames<tessera::nn::MlstmConv> {
  static constexpr std::array names = {"2d", "conv1d", "causal1d", "none"};
};
template <>
struct tessera::EnumNames<tessera::models::VilConvGrid> {
  static constexpr std::array names = {"input", "built"};
};
