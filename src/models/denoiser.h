// The capability of models that generate images: a noised image, its noise level and a class in, what the noise was
// out.
#pragma once

#include "ops/torch.h"

#include <cstdint>

#include "nn/context.h"

namespace tessera::models {

class Denoiser {
 public:
  static constexpr const char* kAbility = "predicts the noise of an image at a noise level";
  virtual ~Denoiser() = default;

  // x [batch, channels(), height, width], both sides whole patches; time [batch], floating: a step of the diffusion
  // (0 is almost clean), or t of an interpolant (0 is noise, 1 is clean), as the model was trained; labels [batch]
  // int64, null_label() for none. The result is [batch, output_channels(), height, width].
  virtual torch::Tensor denoise(const torch::Tensor& x, const torch::Tensor& time,
                                const torch::Tensor& labels, const nn::Context& context = {}) = 0;
  virtual int64_t channels() const = 0;
  // Twice channels() where the model predicts variances too.
  virtual int64_t output_channels() const = 0;
  virtual int64_t label_count() const = 0;
  int64_t null_label() const { return label_count(); }
};

}  // namespace tessera::models
