// The linear layers of language models, in the layouts of published files and with LoRA.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nn/linear.h"

namespace tessera::models {

// A low-rank change of a layer by two matrices (LoRA, Hu et al. 2021).
struct LowRank {
  int64_t rank = 8;
  double alpha = 16;
  bool by_root = false;         // the scale is alpha / sqrt(rank) instead of alpha / rank
  bool with_magnitude = false;  // DoRA: the magnitudes of the layer's outputs are learned separately
};

// Computes y = x W^T + b, in the variants of published files: W stored as [in, out] (GPT-2), and an
// additional low-rank change, y = W x + scale B (A x), parameters lora_A.weight [rank, in] and lora_B.weight
// [out, rank]. DoRA (Liu et al. 2024, eq. 5 and section 4.3) learns a magnitude m for each output,
// lora_magnitude_vector [out]. The low-rank change then determines only the direction: y = m / |W + scale B
// A| (W x + scale B (A x)), with lengths |.| per output and without gradients.
class ProjectionImpl : public nn::LinearImpl {
 public:
  ProjectionImpl(int64_t in, int64_t out, bool with_bias, bool stored_in_out = false);
  torch::Tensor forward(const nn::DeferredNorm& x, const nn::Epilogue& epilogue = {}) const;
  // Adds a low-rank change. B starts at zero and the magnitudes at those of W, so the output is
  // unchanged.
  void adapt(const LowRank& change);
  bool only_multiplies() const override { return LinearImpl::only_multiplies() && !magnitude_.defined(); }
  bool adapted() const { return static_cast<bool>(lora_a_); }
  bool stored_in_out() const { return stored_in_out_; }
  // Returns the weight as [out, in].
  torch::Tensor matrix() const { return stored_in_out_ ? weight.t() : weight; }
  // True if the output is x W^T + b alone, which several processes can divide.
  bool divides() const { return !adapted() && !quantised(); }
  // Merges the change into W and removes it.
  void merge();
  // Returns W + scale B A, for DoRA with the lengths m, in the layout of W.
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

// The LoRA settings for all layers with certain names.
struct LoraConfig {
  int64_t rank = 8;
  double alpha = 16;
  bool by_root = false;
  std::vector<std::string> targets = {"q_proj", "v_proj"};
};
// Adapts every projection for which `choose` returns a change, by its name in the module, and freezes all
// other parameters of the module. Returns the number of adapted projections.
int64_t adapt_layers(torch::nn::Module& module,
                     const std::function<std::optional<LowRank>(const std::string& name)>& choose);
// Adapts every projection with a name that ends with one of the targets. Throws a usage error with the
// nearest name for a target without a match.
int64_t add_lora(torch::nn::Module& module, const LoraConfig& config);
// True if a layer's name is `target` or ends with "." and `target`.
bool ends_with_name(const std::string& name, const std::string& target);
// Throws the usage error "LoRA: no linear layer is called 'q_porj', did you mean …".
[[noreturn]] void fail_no_layer(const torch::nn::Module& module, const std::string& target);

}  // namespace tessera::models
