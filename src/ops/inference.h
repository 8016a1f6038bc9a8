// Settings of operations without gradients: fused or composed, the arithmetic; and their names for profilers.
#pragma once

#include "ops/torch.h"

#include <ATen/record_function.h>

#include <optional>

#include "core/error.h"
#include "kernels/linear/linear.h"

namespace tessera::ops {

// Settings of this thread; the scopes below change them.
struct InferenceSettings {
  bool fused = true;  // false: the compositions of ATen operations (`--impl reference`)
  // A gradient will follow although none is recorded now (activation checkpointing), so the recomputation
  // must repeat the current values to the last bit.
  bool gradients_follow = false;
  // Linear layers in int8 and integer products in attention (kernels::AttentionForward::fixed_point);
  // everything else unchanged. Composed, only linear layers with a step size for x.
  bool int8 = false;
  // Composed: sequences of more tokens take the chunkwise form of the mLSTM. 0: all take the parallel form.
  int64_t parallel_tokens = 0;
  // False: layers prepare their weights for every call and keep nothing, to save memory (Winograd's transformed
  // weights are four times as large as the weights).
  bool keep_packed = true;
};
const InferenceSettings& inference_settings();
// True if linear layers round to int8 in ATen operations.
inline bool composed_int8() { return inference_settings().int8 && !inference_settings().fused; }
// True if gradients are recorded or will follow.
bool gradients_wanted();

// Overrides the settings of this thread during its lifetime.
class InferenceScope {
 public:
  explicit InferenceScope(const InferenceSettings& settings);
  ~InferenceScope();
  InferenceScope(const InferenceScope&) = delete;
  InferenceScope& operator=(const InferenceScope&) = delete;

 private:
  InferenceSettings before_;
};

// Returns the kernels' element type of a float32 or bfloat16 tensor.
kernels::Element element_of(const torch::Tensor& tensor);

// Returns the arithmetic of a fused linear layer on x: int8 if set, bfloat16 under CPU autocast or for
// bfloat16 tensors, else float. None if gradients are recorded, off the CPU, for other element types, or if
// the settings forbid it.
std::optional<kernels::Arithmetic> fused_arithmetic(const torch::Tensor& x);
// The same with or without gradients, but never int8 with gradients: the arithmetic of a product with an
// autograd node.
std::optional<kernels::Arithmetic> product_arithmetic(const torch::Tensor& x);

// Returns the result type of fused operations in this arithmetic.
torch::ScalarType output_type(kernels::Arithmetic arithmetic);

// x as rows of its last axis, without a copy if possible, and their description for kernels.
struct RowsOfTensor {
  torch::Tensor tensor;  // keeps the memory
  kernels::Rows rows;
  int64_t count;
};
RowsOfTensor rows_of(const torch::Tensor& x);
// The same for a contiguous output tensor.
kernels::RowsOut rows_to(const torch::Tensor& y);

// For the backward pass of a kernel, which autograd cannot differentiate: throws if a second derivative is
// requested (create_graph).
void check_first_derivative(const char* operation);

// Returns contiguous floats; undefined stays undefined.
torch::Tensor floats(const torch::Tensor& tensor);
// Null for an undefined tensor.
const float* float_pointer(const torch::Tensor& tensor);

// Names a time span for profilers (LibTorch's, and `tessera bench --profile`). Costs nothing without one.
class Profiled {
 public:
  // The name is the concatenated parts, built only if a profiler is active.
  template <class... Parts>
  explicit Profiled(const Parts&... parts) : record_(at::RecordScope::FUNCTION) {
    if (record_.isActive()) record_.before(text(parts...));
  }

 private:
  at::RecordFunction record_;
};

}  // namespace tessera::ops
