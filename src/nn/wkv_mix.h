// The two layers of Vision-RWKV (Duan et al. 2024): spatial mix and channel mix.
#pragma once

#include "ops/torch.h"

#include <cstdint>

#include "nn/linear.h"
#include "nn/norm.h"

namespace tessera::nn {

// paper: the paper's formula. published: the results of the published CUDA kernel, which differ from it.
enum class WkvForm { paper, published };

struct WkvMixOptions {
  int64_t dim = 192;
  int64_t hidden = 768;         // of the channel mix
  double channel_gamma = 0.25;  // share of the channels that is shifted in each direction
  int64_t shift_pixels = 1;     // 0: no shift, and no mix parameters
  bool key_norm = false;
  WkvForm form = WkvForm::paper;
};

// The tokens' grid.
struct WkvGrid {
  int64_t rows = 0, columns = 0;
};

// Linear maps of x mixed with its shifted form, x_k = mix_k x + (1 - mix_k) shift(x).
class WkvMixImpl : public torch::nn::Module {
 public:
  explicit WkvMixImpl(const WkvMixOptions& options);

 protected:
  torch::Tensor shifted(const torch::Tensor& x, const WkvGrid& grid) const;  // x itself without a shift
  torch::Tensor add_mix(const char* name);                                   // [1, 1, dim] or undefined
  static torch::Tensor mixed(const torch::Tensor& x, const torch::Tensor& shifted, const torch::Tensor& mix);
  WkvMixOptions options_;
};

// output(sigmoid(receptance x_r) key_norm(wkv(decay / T, first / T, key x_k, value x_v))), T the number of tokens.
class SpatialMixImpl : public WkvMixImpl {
 public:
  explicit SpatialMixImpl(const WkvMixOptions& options);
  torch::Tensor forward(const torch::Tensor& x, const WkvGrid& grid, const Epilogue& epilogue = {}) const;
  int64_t macs() const;  // per token

 private:
  torch::Tensor decay_, first_, mix_k_, mix_v_, mix_r_;
  Linear key_{nullptr}, value_{nullptr}, receptance_{nullptr}, output_{nullptr};
  LayerNorm key_norm_{nullptr};
};
TORCH_MODULE(SpatialMix);

// sigmoid(receptance x_r) value(key_norm(relu(key x_k)^2)).
class ChannelMixImpl : public WkvMixImpl {
 public:
  explicit ChannelMixImpl(const WkvMixOptions& options);
  torch::Tensor forward(const torch::Tensor& x, const WkvGrid& grid) const;
  int64_t macs() const;  // per token

 private:
  torch::Tensor mix_k_, mix_r_;
  Linear key_{nullptr}, value_{nullptr}, receptance_{nullptr};
  LayerNorm key_norm_{nullptr};
};
TORCH_MODULE(ChannelMix);

}  // namespace tessera::nn
