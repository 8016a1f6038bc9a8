// The linear layers of language models: as published files store them, and with low-rank changes (LoRA).
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nn/linear.h"

namespace tessera::models {

// A change of a layer by two matrices of low rank (LoRA, Hu et al. 2021).
struct LowRank {
  int64_t rank = 8;
  double alpha = 16;
  bool by_root = false;         // the scale is alpha / sqrt(rank) instead of alpha / rank
  bool with_magnitude = false;  // DoRA: the lengths of the layer's outputs are learned apart
};

// y = x W^T + b, with what published files make of it: W stored as [in, out] (GPT-2), and a low-rank change beside it:
// y = W x + scale B (A x), parameters lora_A.weight [rank, in] and lora_B.weight [out, rank]. DoRA (Liu et al. 2024,
// eq. 5 and section 4.3) learns a length m for each output, lora_magnitude_vector [out], and the low-rank change gives
// the direction alone: y = m / |W + scale B A| (W x + scale B (A x)), the lengths |.| by output and without gradients.
class ProjectionImpl : public nn::LinearImpl {
 public:
  ProjectionImpl(int64_t in, int64_t out, bool with_bias, bool stored_in_out = false);
  torch::Tensor forward(const nn::DeferredNorm& x, const nn::Epilogue& epilogue = {}) const;
  // B starts at zero, and the magnitude at the lengths of W: nothing changes.
  void adapt(const LowRank& change);
  bool adapted() const { return static_cast<bool>(lora_a_); }
  bool stored_in_out() const { return stored_in_out_; }
  // Adds the change to W, and forgets it.
  void merge();
  // W + scale B A, by DoRA with the lengths m, laid out as W is.
  torch::Tensor merged_weight() const;

 private:
  torch::Tensor changed_weight() const;                            // W + scale B A
  torch::Tensor length_ratio(const torch::Tensor& changed) const;  // m / |changed|, [out]

  bool stored_in_out_;
  nn::Linear lora_a_{nullptr}, lora_b_{nullptr};
  torch::Tensor magnitude_;  // undefined without DoRA
  double scale_ = 0;
};
TORCH_MODULE(Projection);

// One change for all layers of some names.
struct LoraConfig {
  int64_t rank = 8;
  double alpha = 16;
  bool by_root = false;
  std::vector<std::string> targets = {"q_proj", "v_proj"};
};
// Adapts every projection for which `choose` gives a change, by its name in the module, and freezes all other parameters
// of the module. Returns how many.
int64_t adapt_layers(torch::nn::Module& module,
                     const std::function<std::optional<LowRank>(const std::string& name)>& choose);
// Adapts every projection whose name ends with one of the targets. A usage error with the nearest name where a target is
// none.
int64_t add_lora(torch::nn::Module& module, const LoraConfig& config);
// Whether a layer's whole name is `target` or ends with it, behind a dot.
bool ends_with_name(const std::string& name, const std::string& target);
// "LoRA: no linear layer is called 'q_porj', did you mean …", as a usage error.
[[noreturn]] void fail_no_layer(const torch::nn::Module& module, const std::string& target);

}  // namespace tessera::models
