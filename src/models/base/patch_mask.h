// Masked modelling with mask tokens (BEiT, SimMIM, MaskFeat): the model sees all positions of an image, with
// a learned token instead of each masked patch's embedding.
#pragma once

#include <cstdint>

#include "models/base/encoder.h"
#include "models/base/model.h"

namespace tessera::models {

struct PatchMask {
  torch::Tensor masked = {};  // bool [batch, rows, columns] of the first grid
  torch::Tensor token = {};   // [width of an embedded patch]
};

class MasksPatches {
 public:
  static constexpr const char* kAbility = "puts a mask token in place of patches";
  virtual ~MasksPatches() = default;

  virtual int64_t mask_width() const = 0;  // the token's width
  // Returns the side in pixels of a cell of the last map.
  virtual int64_t map_stride() const = 0;
  virtual int64_t map_width() const = 0;
  // Returns the last map [batch, map_width(), rows, columns] of images with this mask, after the norm that follows
  // the last block or before it. Without that norm, both are equal.
  torch::Tensor masked_map(const torch::Tensor& images, const PatchMask& mask, bool normed,
                           const Context& context = {});

 protected:
  // Returns embedded patches [batch, rows, columns, width], without positions, with the tokens of the mask in use.
  torch::Tensor with_mask_tokens(const torch::Tensor& patches) const;
  // Like masked_map(), for the mask in use.
  virtual torch::Tensor last_map(const torch::Tensor& images, bool normed, const Context& context) = 0;

 private:
  const PatchMask* mask_ = nullptr;  // while masked_map() runs
};

// MasksPatches::last_map for a model with one grid.
torch::Tensor last_map_of(TokenEncoder& encoder, const torch::Tensor& images, bool normed,
                          const Context& context);

}  // namespace tessera::models
