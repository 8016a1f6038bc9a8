// The linear layers of language models: as published files store them, and with low-rank changes (LoRA).
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <string>
#include <vector>

#include "nn/linear.h"

namespace tessera::models {

// y = x W^T + b, with what published files make of it: W stored as [in, out] (GPT-2), and a low-rank change beside it
// (LoRA, Hu et al. 2021): y = W x + scale B (A x), parameters lora_A.weight [rank, in] and lora_B.weight [out, rank].
class ProjectionImpl : public nn::LinearImpl {
 public:
  ProjectionImpl(int64_t in, int64_t out, bool with_bias, bool stored_in_out = false);
  torch::Tensor forward(const nn::DeferredNorm& x, const nn::Epilogue& epilogue = {}) const;
  // B starts at zero: nothing changes. With `by_root` the scale is alpha / sqrt(rank), else alpha / rank.
  void adapt(int64_t rank, double alpha, bool by_root);
  bool adapted() const { return static_cast<bool>(lora_a_); }
  bool stored_in_out() const { return stored_in_out_; }
  // Adds the change to W, and forgets it.
  void merge();
  // W + scale B A, laid out as W is.
  torch::Tensor merged_weight() const;

 private:
  bool stored_in_out_;
  nn::Linear lora_a_{nullptr}, lora_b_{nullptr};
  double scale_ = 0;
};
TORCH_MODULE(Projection);

// LoRA as PEFT's adapter_config.json has it.
struct LoraConfig {
  int64_t rank = 8;
  double alpha = 16;
  bool by_root = false;  // "use_rslora"
  std::vector<std::string> targets = {"q_proj", "v_proj"};
};
// Adapts every projection whose name ends with one of the targets, and freezes all other parameters of the module.
// Returns how many; a usage error with the nearest name where a target is none.
int64_t add_lora(torch::nn::Module& module, const LoraConfig& config);

}  // namespace tessera::models
