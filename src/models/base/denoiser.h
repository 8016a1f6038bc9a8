// The capability of models that generate images: predicts the noise in an image from its noise level and
// class.
#pragma once

#include "ops/torch.h"

#include <cstdint>

#include "nn/context.h"

namespace tessera::models {

// The sum that a span of blocks added to the tokens when it last ran. Later passes add it again instead of
// running the span, since the middle of a network computes nearly the same in consecutive steps (Chen et al.
// 2024, "Delta-DiT").
struct BlockReuse {
  int64_t every = 1;              // the span runs in one of `every` passes; 1 = always
  int64_t first = 0, last = 0;    // blocks first to last - 1
  torch::Tensor added = {};       // added by the span, to tokens of the same shape
  int64_t age = 0;                // passes since it ran
  int64_t asked = 0, spared = 0;  // number of blocks in all passes so far, and of those skipped
};

class Denoiser {
 public:
  static constexpr const char* kAbility = "predicts the noise of an image at a noise level";
  virtual ~Denoiser() = default;

  // x [batch, channels(), height, width], both sides whole patches; time [batch], floating; labels [batch]
  // int64, null_label() for none. As the model was trained, time is a diffusion step (0 is almost clean) or
  // an interpolant's t (0 is noise, 1 is clean). Returns [batch, output_channels(), height, width]. `reuse`
  // is for inference; null = every block runs.
  virtual torch::Tensor denoise(const torch::Tensor& x, const torch::Tensor& time,
                                const torch::Tensor& labels, const nn::Context& context = {},
                                BlockReuse* reuse = nullptr) = 0;
  virtual int64_t channels() const = 0;
  // Returns twice channels() if the model also predicts variances.
  virtual int64_t output_channels() const = 0;
  virtual int64_t label_count() const = 0;
  // False if every training sample had a class: then neither unlabelled images nor guidance are
  // supported.
  virtual bool has_null_label() const { return true; }
  int64_t null_label() const { return label_count(); }
};

}  // namespace tessera::models
