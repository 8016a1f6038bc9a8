// Linear layers, and the feed-forward networks made of them.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <memory>

#include "nn/norm.h"
#include "ops/linear.h"

namespace tessera::nn {

// The end of a residual branch: residual + scale * (the last layer's output). The last layer computes it
// all.
struct Epilogue {
  torch::Tensor scale = {};     // [out]: LayerScale; [samples, out]: each sample's own; or undefined
  torch::Tensor residual = {};  // [..., out], or undefined
};

// Widths in bits of quantisation-aware training.
struct QuantisedBits {
  int64_t weights = 8, activations = 8;
};

// y = x W^T + b; parameters `weight` [out, in] and `bias` [out], zero until initialised.
class LinearImpl : public torch::nn::Module {
 public:
  LinearImpl(int64_t in, int64_t out, bool with_bias = true);
  torch::Tensor forward(const DeferredNorm& x, const Epilogue& epilogue = {}) const;
  torch::Tensor forward_gelu(const DeferredNorm& x) const;
  torch::Tensor forward_gelu_tanh(const DeferredNorm& x) const;  // GELU's approximation with tanh
  int64_t macs() const { return weight.numel(); }                // for one row of x
  torch::Tensor weight, bias;                                    // bias is undefined without one
  // x as ops::linear takes it for this layer: behind its norm where a watcher or the rounding wants to see
  // that.
  DeferredNorm seen(const DeferredNorm& x) const;
  // What ops::linear takes of this layer for an x that is seen(), which a watcher is told of.
  ops::LinearParameters parameters_for(const torch::Tensor& x) const;

  // From now on x and the weights are rounded to learned step sizes (ops/lsq.h): one a row of the weights,
  // one for all of x. Parameters `weight_log_step` [out], from the weights as they are, and `input_log_step`
  // [1], from the first x that comes (unless it was loaded). They are logarithms, so that a step size stays
  // positive and an optimiser moves it by shares of itself.
  void quantise(const QuantisedBits& bits);
  bool quantised() const { return weight_log_step_.defined(); }

  // For calibration: a buffer `input_log_step` [1], the step size on which int8 rounds every x from now on
  // instead of each row on its own; nothing else takes notice of it. Returns it, 0 until it is set or loaded.
  torch::Tensor add_input_step_size();
  // `watcher` is called with every x, until it is taken away by an empty one.
  void watch(std::function<void(const torch::Tensor& x)> watcher) { watcher_ = std::move(watcher); }

 private:
  torch::Tensor rounded(const torch::Tensor& x) const;
  torch::Tensor activated(const DeferredNorm& x, kernels::Activation activation) const;
  QuantisedBits bits_;
  torch::Tensor weight_log_step_, input_log_step_;  // undefined where there are none
  std::function<void(const torch::Tensor& x)> watcher_;
  std::shared_ptr<ops::LinearCache> cache_ = std::make_shared<ops::LinearCache>();
};
TORCH_MODULE(Linear);

// fc2(gelu(fc1 x)), exact GELU (Hendrycks & Gimpel 2016), as in ViT.
class MlpImpl : public torch::nn::Module {
 public:
  MlpImpl(int64_t width, int64_t hidden, bool with_bias = true);
  torch::Tensor forward(const DeferredNorm& x, const Epilogue& epilogue = {}) {
    return fc2->forward(fc1->forward_gelu(x), epilogue);
  }
  int64_t macs() const { return fc1->macs() + fc2->macs(); }
  Linear fc1{nullptr}, fc2{nullptr};
};
TORCH_MODULE(Mlp);

// The gated feed-forward network of LLaMA, down(silu(gate x) * up x) (Shazeer 2020), without biases. The
// published codes name the three matrices differently.
struct SwiGluNames {
  const char *gate, *up, *down;
};
inline constexpr SwiGluNames kVisionLlamaNames{"c_fc1", "c_fc2", "c_proj"},
    kImageLlamaNames{"fc1", "fc3", "fc2"};
// Two thirds of 4 * width, rounded up to a multiple of 256.
int64_t llama_hidden(int64_t width);
class SwiGluImpl : public torch::nn::Module {
 public:
  SwiGluImpl(int64_t width, int64_t hidden, const SwiGluNames& names);
  torch::Tensor forward(const DeferredNorm& x, const Epilogue& epilogue = {});
  int64_t macs() const { return 3 * down_->macs(); }

 private:
  Linear gate_{nullptr}, up_{nullptr}, down_{nullptr};
  std::shared_ptr<ops::LinearCache> gated_ = std::make_shared<ops::LinearCache>();  // gate and up in one
};
TORCH_MODULE(SwiGlu);

// The same with biases, and with gate and up in one matrix: parameters w12 = [gate; up] and w3 (mmpretrain's
// SwiGLUFFNFused).
class PackedSwiGluImpl : public torch::nn::Module {
 public:
  PackedSwiGluImpl(int64_t width, int64_t hidden);
  torch::Tensor forward(const DeferredNorm& x, const Epilogue& epilogue = {});
  int64_t macs() const { return w12_->macs() + w3_->macs(); }

 private:
  Linear w12_{nullptr}, w3_{nullptr};
};
TORCH_MODULE(PackedSwiGlu);

}  // namespace tessera::nn
