// The capability of models that generate images: a noised image, its noise level and a class in, what the noise was
// out.
#pragma once

#include "ops/torch.h"

#include <cstdint>

#include "nn/context.h"

namespace tessera::models {

// What a span of blocks added to the tokens when it last ran, for passes that add it again instead of running the span:
// neighbouring steps of a sampler ask nearly the same of the middle of a network (Chen et al. 2024, "Delta-DiT").
struct BlockReuse {
  int64_t every = 1;              // the span runs in every so many passes; 1 = always
  int64_t first = 0, last = 0;    // blocks first to last - 1
  torch::Tensor added = {};       // by the span, for tokens of the same shape
  int64_t age = 0;                // passes since it ran
  int64_t asked = 0, spared = 0;  // blocks of all passes so far, and those of them that did not run
};

class Denoiser {
 public:
  static constexpr const char* kAbility = "predicts the noise of an image at a noise level";
  virtual ~Denoiser() = default;

  // x [batch, channels(), height, width], both sides whole patches; time [batch], floating: a step of the diffusion
  // (0 is almost clean), or t of an interpolant (0 is noise, 1 is clean), as the model was trained; labels [batch]
  // int64, null_label() for none. The result is [batch, output_channels(), height, width]. `reuse` is for inference; null =
  // every block runs.
  virtual torch::Tensor denoise(const torch::Tensor& x, const torch::Tensor& time,
                                const torch::Tensor& labels, const nn::Context& context = {},
                                BlockReuse* reuse = nullptr) = 0;
  virtual int64_t channels() const = 0;
  // Twice channels() where the model predicts variances too.
  virtual int64_t output_channels() const = 0;
  virtual int64_t label_count() const = 0;
  // False where the network always saw a sample's class: it can then be asked for no image without one, nor guided.
  virtual bool has_null_label() const { return true; }
  int64_t null_label() const { return label_count(); }
};

}  // namespace tessera::models
