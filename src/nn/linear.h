// Linear layers, and the feed-forward networks built from them.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <memory>

#include "nn/host_values.h"
#include "nn/norm.h"
#include "ops/linear.h"

namespace tessera::nn {

// The end of a residual branch: residual + scale * (the last layer's output). The last layer computes all of
// it.
struct Epilogue {
  torch::Tensor scale = {};     // [out]: LayerScale; [samples, out]: per sample; or undefined
  torch::Tensor residual = {};  // [..., out], or undefined
};

// Bit widths of quantisation-aware training.
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
  int64_t macs() const { return weight.numel(); }                // per row of x
  torch::Tensor weight, bias;                                    // bias is undefined without one
  // Returns x for ops::linear, already normed if a watcher or the quantisation needs normed
  // values.
  DeferredNorm seen(const DeferredNorm& x) const;
  // Returns this layer's arguments for ops::linear and an x from seen(), and notifies the watcher.
  ops::LinearParameters parameters_for(const torch::Tensor& x) const;

  // From now on, quantises x and the weights with learned step sizes (ops/lsq.h): one per row of the weights,
  // one for all of x. Parameters are `weight_log_step` [out], set from the current weights, and
  // `input_log_step` [1], set from the first x unless loaded. They are logarithms: a step size stays
  // positive, and an optimiser changes it by relative amounts.
  void quantise(const QuantisedBits& bits);
  bool quantised() const { return weight_log_step_.defined(); }
  // True if nothing else happens to x: neither quantised nor watched.
  bool plain() const { return !quantised() && !watcher_; }
  // Returns true if products alone read the weight, which a run in bfloat16 rounds for them.
  virtual bool only_multiplies() const { return !quantised() && !exact_; }
  // Marks the weight as one that something else reads in float32.
  void keep_exact() { exact_ = true; }

  // For calibration: adds a buffer `input_log_step` [1], with which int8 quantises every x from now on,
  // instead of with one step size per row. Nothing else uses it. Returns it; it is 0 until set or loaded.
  torch::Tensor add_input_step_size();
  // Sets a function that is called with every x; an empty one removes it.
  void watch(std::function<void(const torch::Tensor& x)> watcher) { watcher_ = std::move(watcher); }

 private:
  torch::Tensor rounded(const torch::Tensor& x) const;
  torch::Tensor activated(const DeferredNorm& x, kernels::Activation activation) const;
  QuantisedBits bits_;
  bool exact_ = false;
  torch::Tensor weight_log_step_, input_log_step_;  // undefined if not quantised
  mutable KnownSteps known_;
  std::function<void(const torch::Tensor& x)> watcher_;
  std::shared_ptr<ops::LinearCache> cache_ = std::make_shared<ops::LinearCache>();
};
TORCH_MODULE(Linear);

// A layer that several processes can divide (nn/layer_division.h).
class DividedLayer {
 public:
  virtual ~DividedLayer() = default;
  // Returns the largest number of processes that divide it.
  virtual int64_t most_shares() const = 0;
};

// fc2(gelu(fc1 x)), exact GELU (Hendrycks & Gimpel 2016), as in ViT.
class MlpImpl : public torch::nn::Module, public DividedLayer {
 public:
  MlpImpl(int64_t width, int64_t hidden, bool with_bias = true);
  torch::Tensor forward(const DeferredNorm& x, const Epilogue& epilogue = {});
  int64_t macs() const { return fc1->macs() + fc2->macs(); }
  int64_t most_shares() const override { return fc2->weight.size(1); }
  Linear fc1{nullptr}, fc2{nullptr};
};
TORCH_MODULE(Mlp);

// The gated feed-forward network of LLaMA, down(silu(gate x) * up x) (Shazeer 2020), without biases.
// Published implementations name the three matrices differently.
struct SwiGluNames {
  const char *gate, *up, *down;
};
inline constexpr SwiGluNames kVisionLlamaNames{"c_fc1", "c_fc2", "c_proj"},
    kImageLlamaNames{"fc1", "fc3", "fc2"};
// Returns two thirds of 4 * width, rounded up to a multiple of 256.
int64_t llama_hidden(int64_t width);
class SwiGluImpl : public torch::nn::Module, public DividedLayer {
 public:
  SwiGluImpl(int64_t width, int64_t hidden, const SwiGluNames& names);
  torch::Tensor forward(const DeferredNorm& x, const Epilogue& epilogue = {});
  int64_t macs() const { return 3 * down_->macs(); }
  int64_t most_shares() const override { return down_->weight.size(1); }

 private:
  Linear gate_{nullptr}, up_{nullptr}, down_{nullptr};
  std::shared_ptr<ops::LinearCache> gated_ = std::make_shared<ops::LinearCache>();  // gate and up in one
};
TORCH_MODULE(SwiGlu);

// The same with biases and a single matrix for gate and up: parameters w12 = [gate; up] and w3 (mmpretrain's
// SwiGLUFFNFused).
class PackedSwiGluImpl : public torch::nn::Module, public DividedLayer {
 public:
  PackedSwiGluImpl(int64_t width, int64_t hidden);
  torch::Tensor forward(const DeferredNorm& x, const Epilogue& epilogue = {});
  int64_t macs() const { return w12_->macs() + w3_->macs(); }
  int64_t most_shares() const override { return w3_->weight.size(1); }

 private:
  Linear w12_{nullptr}, w3_{nullptr};
};
TORCH_MODULE(PackedSwiGlu);

// gelu: fc2(gelu(fc1 x)), exact (Hendrycks & Gimpel 2016). gelu_tanh: its approximation with tanh (SigLIP).
// quick_gelu: x sigmoid(1.702 x) instead (the first CLIP). relu, silu: as named. swiglu_packed: fc1 gives
// [gate; up], half of the hidden width each, then fc2(silu(gate) * up) (DINOv2's giant; timm's SwiGLUPacked).
enum class MlpForm { gelu, gelu_tanh, quick_gelu, relu, silu, swiglu_packed };

// Parameters fc1 and fc2, of [hidden, width] and [width, hidden] (swiglu_packed: [width, hidden / 2]).
class AnyMlpImpl : public torch::nn::Module, public DividedLayer {
 public:
  AnyMlpImpl(MlpForm kind, int64_t width, int64_t hidden, bool with_bias = true);
  torch::Tensor forward(const DeferredNorm& x, const Epilogue& epilogue = {});
  int64_t macs() const { return fc1_->macs() + fc2_->macs(); }  // per token
  int64_t most_shares() const override { return fc2_->weight.size(1); }

 private:
  MlpForm kind_;
  Linear fc1_{nullptr}, fc2_{nullptr};
};
TORCH_MODULE(AnyMlp);

}  // namespace tessera::nn
