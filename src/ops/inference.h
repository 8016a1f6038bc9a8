// How operations compute where no gradient is wanted: fused or composed, and in which arithmetic.
#pragma once

#include <optional>

#include "kernels/linear/linear.h"
#include "ops/torch.h"

namespace tessera::ops {

// Settings of this thread; the scopes below change them.
struct InferenceSettings {
  bool fused = true;  // false: the compositions of ATen operations (`--impl reference`)
  // A gradient will be asked for though none is recorded now (activation checkpointing): what is computed now
  // must be what is computed again, to the last bit.
  bool gradients_follow = false;
  // Linear layers in int8 and the products of attention on whole numbers
  // (kernels::AttentionForward::fixed_point), everything else as without it.
  bool int8 = false;
  // False: convolutions lay out their weights for every call and keep nothing, where memory is short (Winograd's
  // transformed weights are four times as large as the weights).
  bool keep_packed = true;
};
const InferenceSettings& inference_settings();
// Whether gradients are recorded, or will be asked for.
bool gradients_wanted();

// Overrules the settings of this thread until its end.
class InferenceScope {
 public:
  explicit InferenceScope(const InferenceSettings& settings);
  ~InferenceScope();
  InferenceScope(const InferenceScope&) = delete;
  InferenceScope& operator=(const InferenceScope&) = delete;

 private:
  InferenceSettings before_;
};

// How a float32 or bfloat16 tensor is stored, for the kernels.
kernels::Element element_of(const torch::Tensor& tensor);

// The arithmetic of a fused linear layer on x: int8 where the settings ask for it, bfloat16 under CPU
// autocast or for bfloat16 tensors, else float. None where a gradient is wanted, off the CPU, for other
// element types, or where the settings forbid it.
std::optional<kernels::Arithmetic> fused_arithmetic(const torch::Tensor& x);
// The same whether or not a gradient is wanted, and never int8 where one is: the arithmetic of a product with
// an autograd node.
std::optional<kernels::Arithmetic> product_arithmetic(const torch::Tensor& x);

// The type that fused operations give in this arithmetic.
torch::ScalarType output_type(kernels::Arithmetic arithmetic);

// x as rows of its last axis without a copy where possible, and the description that kernels take.
struct RowsOfTensor {
  torch::Tensor tensor;  // keeps the memory
  kernels::Rows rows;
  int64_t count;
};
RowsOfTensor rows_of(const torch::Tensor& x);
// The same of a contiguous tensor that is written.
kernels::RowsOut rows_to(const torch::Tensor& y);

// For the backward pass of a kernel, which autograd cannot look into: an error where a second derivative is
// to be taken through it (create_graph).
void check_first_derivative(const char* operation);

// As contiguous floats; undefined stays undefined.
torch::Tensor floats(const torch::Tensor& tensor);
// Null for an undefined tensor.
const float* float_pointer(const torch::Tensor& tensor);

}  // namespace tessera::ops
