// DARL's trunk in pre-training: its state before each patch.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <string>

#include "models/base/causal_backbone.h"
#include "nn/context.h"

namespace tessera::models {

class NextPatch {
 public:
  static constexpr const char* kAbility = "predicts each patch from those before it";
  virtual ~NextPatch() = default;
  // Returns the tokens before each patch: [start, all patches except the last] after all blocks and the last
  // norm, causal whatever the model's setting. `order` int64 is the order of the patches: [patches] for all
  // samples, [batch, patches] per sample, undefined = raster. -> [batch, patches, dim]; row t predicts patch
  // order[t].
  virtual torch::Tensor before_each_patch(const torch::Tensor& images, const torch::Tensor& order = {},
                                          const nn::Context& context = {}) = 0;
  // Two streams (Yang et al. 2019, XLNet), for orders that change. A query has the position of its patch but
  // not the patch, and attends to the content of the start token and all earlier patches. Both are [batch,
  // patches, dim], after the last norm; content row t holds the patch before order[t]. Needs the setting
  // two_stream; no drop path. Without a start token (XLNet's strictly lower mask) content is [batch, patches
  // - 1, dim] and row t holds patch order[t].
  struct Streams {
    torch::Tensor query, content;
  };
  virtual Streams two_streams(const torch::Tensor& images, const torch::Tensor& order = {}) = 0;
  // True if the model has both streams.
  virtual bool has_two_streams() const = 0;
  // Returns the query for the patch at index `place` of the raster, [batch, 1, dim], after the last norm. It
  // sees the content of all step() calls so far.
  virtual torch::Tensor query_step(int64_t place, const Cache& cache) = 0;
};

// Returns an order of a grid's patches as indices of the raster [rows * columns]. "raster"; "nested": blocks
// of `block` x `block` patches one after the other, each in raster order; "round_robin": one patch of each
// block in turn. Blocks at the right and bottom edge are smaller if they do not divide the grid.
torch::Tensor patch_order(const std::string& kind, int64_t rows, int64_t columns, int64_t block = 1);

}  // namespace tessera::models
