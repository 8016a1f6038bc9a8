// Images as colours of a palette, one per pixel (models/backbones/igpt.cpp).
#pragma once

#include "ops/torch.h"

#include "models/base/causal_backbone.h"

namespace tessera::models {

class ReadsColours {
 public:
  static constexpr const char* kAbility = "reads the colours of pixels: family igpt";
  virtual ~ReadsColours() = default;

  // The palette [colours, 3], of values from -1 to 1.
  virtual torch::Tensor palette() const = 0;
  // Copies a palette of the same shape. Weights without one, such as published files, then fit the model.
  virtual void set_palette(const torch::Tensor& palette) = 0;
  // Returns the nearest colours of the cells of images [batch, 3, height, width] in [-1, 1], row by row: int64
  // [batch, rows * columns].
  virtual torch::Tensor colours_of(const torch::Tensor& images) const = 0;
  // Returns the cells' mean pixels [batch, rows, columns, 3].
  virtual torch::Tensor cells_of(const torch::Tensor& images) const = 0;
  // Embeds ids int64 [batch, rows * columns]; the number of colours itself is the start token.
  virtual Tokens sequence(const torch::Tensor& ids, int64_t rows, int64_t columns) const = 0;
  // Embeds ids int64 [batch] as CausalStep::step() takes them: [batch, 1, width].
  virtual torch::Tensor embed_ids(const torch::Tensor& ids) const = 0;
};

namespace igpt {
Family family();
}

// Returns a palette of `colours` points of an even grid over [-1, 1]^3.
torch::Tensor even_palette(int64_t colours);

}  // namespace tessera::models
