#include "models/backbones/vil/config.h"

#include <algorithm>

#include "core/error.h"

namespace tessera::models {

TokenPlaces VilConfig::places(int64_t rows, int64_t columns) const {
  TokenPlaces places;
  places.rows = rows, places.columns = columns;
  using enum VilPooling;
  places.before = pooling == cls_first || pooling == cls_bilateral || pooling == cls_middle_bilateral ? 1 : 0;
  places.middle = pooling == cls_middle || pooling == cls_middle_bilateral ? 1 : 0;
  places.behind = pooling == cls_last || pooling == cls_bilateral || pooling == cls_middle_bilateral ? 1 : 0;
  return places;
}

int64_t VilConfig::class_tokens() const {
  const TokenPlaces places = this->places(1, 1);
  return places.before + places.middle + places.behind;
}

int64_t VilConfig::read_width() const {
  return dim * (pooling == VilPooling::bilateral_flatten ? 2 : std::max<int64_t>(class_tokens(), 1));
}

void VilConfig::check() const {
  using nn::MlstmConv;
  check_grid(image_size, patch_size);
  const bool whole = pooling == VilPooling::none || pooling == VilPooling::to_image;
  if ((mode == VilMode::features) != whole)
    fail_usage("model.pooling = \"", name_of(pooling), "\" with model.mode = \"", name_of(mode),
               "\": none and to_image are for mode features, all others for classifier");
  if (stride > patch_size) fail_usage("model.stride is ", stride, ", must be 0 to patch_size");
  const Extent image = extent_of(image_size, "image_size");
  const int64_t step = stride > 0 ? stride : patch_size;
  check_tokens((image.height - patch_size) / step + 1, (image.width - patch_size) / step + 1, dim);
  if (inner() % 4 != 0 || inner() % heads != 0)
    fail_usage("model.dim ", dim, " times model.expansion ", expansion, " is a cell's width of ", inner(),
               ", must be a multiple of 4 and of model.heads ", heads);
  if (const bool both_sides = conv_kind == MlstmConv::grid || conv_kind == MlstmConv::sequence;
      both_sides && conv_kernel % 2 == 0)
    fail_usage("model.conv_kernel is ", conv_kernel, ", must be odd for a convolution that sees both sides");
  if (traversal == VilTraversal::parallel && directions == VilDirections::uni)
    fail_usage("model.traversal = \"parallel\" needs more than one direction");
  if (share_directions && (traversal != VilTraversal::in_layer || directions == VilDirections::uni))
    fail_usage("model.share_directions goes with traversal in_layer and more than one direction");
  if (conv_kind == MlstmConv::none && (!share_conv || value_conv))
    fail_usage("model.conv_kind = \"none\" leaves nothing for share_conv = false and value_conv");
  check_windows(depth);
  if ((window_size > 0 || !conv_blocks.empty()) && class_tokens() > 0)
    fail_usage("model.pooling = \"", name_of(pooling), "\" puts class tokens among the patches, ",
               "model.window_size and model.conv_blocks need patches alone");
  if (window_size > 0 && conv_grid == VilConvGrid::built)
    fail_usage("model.window_size goes with model.conv_grid = \"input\": windows have rows of their own");
  if (conv_grid == VilConvGrid::built && direction_count() > 2)
    fail_usage("model.conv_grid = \"built\" goes with directions uni or bi: columns need the image's grid");
}

}  // namespace tessera::models
