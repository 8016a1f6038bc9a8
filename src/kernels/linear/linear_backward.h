// Backward passes around the products of linear layers: the slopes of their activations, and the gradients of
// the norms before them. C headers only: per-ISA files include it.
#pragma once

#include "kernels/types.h"

namespace tessera::kernels {

// The gradients dbefore and dgate of y = gelu(before), exact or with tanh, or of y = silu(gate_before) *
// before. Each may overwrite an input.
struct ActivationBackward {
  int64_t rows = 0, columns = 0;
  bool gated = false;
  Rows before, gate_before, dy;
  RowsOut dbefore, dgate;
  bool with_tanh = false;  // not gated
};
void activation_backward(const ActivationBackward& call);

// Gradients of y = x^ weight + bias, x^ = (x - mean) r, r = 1 / sqrt(variance + eps); RMSNorm: no mean.
//
//   dx = r (g - mean(g) - x^ mean(g x^)),  g = dy weight;   dweight = sum dy x^;   dbias = sum dy
//
// Mean and variance are recomputed: x is in the cache, and storing two numbers per row would need another
// tensor.
struct NormBackward {
  int64_t rows = 0, columns = 0;
  bool centred = true;
  float eps = 1e-6f;
  Rows x, dy;
  const float* weight = nullptr;               // (columns), null: ones
  RowsOut dx;                                  // may be dy
  float *dweight = nullptr, *dbias = nullptr;  // (columns), overwritten; null: skipped
  // 0, or rows per sample, each with its own: weight, dweight and dbias are (samples, columns).
  int64_t sample_rows = 0;
};
void norm_backward(const NormBackward& call);

// Gradients of y = before * scale, with a scale per channel and sample of `sample_rows` rows:
//
//   dbefore = dy scale;   dscale = sum over the sample's rows of dy before
struct SampleScaleBackward {
  int64_t rows = 0, columns = 0, sample_rows = 0;
  Rows before, dy;
  const float* scale = nullptr;  // (samples, columns)
  RowsOut dbefore;               // may be dy or before
  float* dscale = nullptr;       // (samples, columns), overwritten; null: skipped
};
void sample_scale_backward(const SampleScaleBackward& call);

// An instruction set defines all three, on rows [begin, end). The norm adds to sums: dweight, then dbias. The
// scale processes one sample, at `scale`, and adds dscale.
struct LinearBackwardFunctions {
  void (*activation)(const ActivationBackward& call, int64_t begin, int64_t end);
  void (*norm)(const NormBackward& call, int64_t begin, int64_t end, float* sums);
  void (*scale)(const SampleScaleBackward& call, int64_t begin, int64_t end, float* sums);
};

}  // namespace tessera::kernels
