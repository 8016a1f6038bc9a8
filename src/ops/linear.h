// A linear layer with its norm and its epilogue, as one operation:
//
//   y = residual + scale * activation(norm(x) W^T + b)
//
// Without gradients on a CPU, it runs on weights packed once (kernels/linear) and normalises rows in the
// cache. With gradients, the norm is a separate operation before it. The rest runs on packed weights in
// bfloat16, and in float forward for many rows without activation and scale. Otherwise ATen composes it.
#pragma once

#include "ops/torch.h"

#include <memory>
#include <optional>

#include "kernels/gpu/calls.h"
#include "kernels/linear/linear.h"
#include "ops/norm.h"

namespace tessera::ops {

struct LinearParameters {
  torch::Tensor weight, bias = {};  // [out, in], [out] or undefined
  kernels::Activation activation = kernels::Activation::none;
  torch::Tensor gate = {};   // [out, in]: for silu_gate
  torch::Tensor scale = {};  // [out], [samples, out] of x [samples, …], or undefined
  // Learned step sizes as logarithms (ops/lsq.h), or undefined. W is quantised to `weight_bits` with its step
  // sizes [out], once, at packing. The step size of x [1] is its scale in int8; without it each row has its
  // own scale. Other arithmetics do not quantise x. Step sizes of W exclude a gate.
  torch::Tensor weight_log_step = {}, input_log_step = {};
  int64_t weight_bits = 8;
};

// The packed weights of one layer, kept with it. They are repacked if a weight has changed (its memory or
// version), or for another arithmetic or instruction set. Thread-safe.
class LinearCache {
 public:
  LinearCache();
  ~LinearCache();
  std::shared_ptr<const kernels::PackedLinear> packed(const LinearParameters& parameters,
                                                      kernels::Arithmetic arithmetic);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// x [..., in], residual [..., out] or undefined -> [..., out], in the residual's type if defined. Without a
// residual the result is float, or bfloat16 if the arithmetic is bfloat16 or int8 (see fused_arithmetic).
torch::Tensor linear(const torch::Tensor& x, const LinearParameters& parameters,
                     const torch::Tensor& residual, LinearCache& cache, const NormParameters& norm = {});

// Returns last(gelu(first norm(x))) + residual with GELU by tanh for training by products of a GPU (kernels/gpu/products.h): GELU and
// its gradient are in the products. Without such a GPU or gradients, or for quantised layers, returns none.
std::optional<torch::Tensor> gelu_mlp_in_products(const torch::Tensor& x, const NormParameters& norm,
                                                  const LinearParameters& first, const LinearParameters& last,
                                                  const torch::Tensor& residual);

// The definition in ATen operations, without norm and casts.
torch::Tensor linear_unfused(const torch::Tensor& x, const LinearParameters& parameters,
                             const torch::Tensor& residual);

using ActivationKind = kernels::gpu::ActivationKind;

// Returns f(x), or f(x) gate for a defined gate of x's shape, for layers that have the activation between two products.
// On a GPU by one kernel where there is one, with gradients an autograd node; otherwise composed of ATen operations.
torch::Tensor activation(ActivationKind kind, const torch::Tensor& x, const torch::Tensor& gate = {});

// Returns residual + scale x in the residual's type, by one kernel likewise. `scale` is as in LinearParameters; x has the
// residual's shape. An undefined scale is 1, an undefined residual 0.
torch::Tensor add_scaled(const torch::Tensor& residual, const torch::Tensor& x, const torch::Tensor& scale);

// While it lives, linear layers of this thread free a weight when they pack it. Its sizes are kept, its
// values are lost, and packing for another arithmetic needs a new weight. Only without gradients on a CPU. A
// weight with other readers must be kept: set `on` = false in an inner scope.
class PackedOnly {
 public:
  explicit PackedOnly(bool on = true);
  ~PackedOnly();
  PackedOnly(const PackedOnly&) = delete;
  PackedOnly& operator=(const PackedOnly&) = delete;

 private:
  bool before_;
};
bool packed_only();

// Frees the memory of a tensor that fills and solely owns its storage; leaves other tensors unchanged.
void give_up(const torch::Tensor& tensor);
// True if the tensor's memory was freed.
bool given_up(const torch::Tensor& tensor);

}  // namespace tessera::ops
