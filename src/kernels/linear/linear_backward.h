// Training needs these behind the products of linear layers: the slopes of their activations, and the
// gradients of the norms before them. C headers only: per-ISA files include it.
#pragma once

#include "kernels/types.h"

namespace tessera::kernels {

// The gradients dbefore and dgate of y = gelu(before), or of y = silu(gate_before) * before. Each may lie
// where an input lies.
struct ActivationBackward {
  int64_t rows = 0, columns = 0;
  bool gated = false;
  Rows before, gate_before, dy;
  RowsOut dbefore, dgate;
};
void activation_backward(const ActivationBackward& call);

// Gradients of y = x^ weight + bias, x^ = (x - mean) r, r = 1 / sqrt(variance + eps); RMSNorm: no mean.
//
//   dx = r (g - mean(g) - x^ mean(g x^)),  g = dy weight;   dweight = sum dy x^;   dbias = sum dy
//
// Mean and variance are computed again: x is in the cache, two numbers a row would be one more tensor.
struct NormBackward {
  int64_t rows = 0, columns = 0;
  bool centred = true;
  float eps = 1e-6f;
  Rows x, dy;
  const float* weight = nullptr;               // (columns), null: ones
  RowsOut dx;                                  // may be dy
  float *dweight = nullptr, *dbias = nullptr;  // (columns), overwritten; null: not wanted
};
void norm_backward(const NormBackward& call);

// An instruction set gives both, on rows [begin, end). The norm adds to sums: dweight, then dbias.
struct LinearBackwardFunctions {
  void (*activation)(const ActivationBackward& call, int64_t begin, int64_t end);
  void (*norm)(const NormBackward& call, int64_t begin, int64_t end, float* sums);
};

}  // namespace tessera::kernels
