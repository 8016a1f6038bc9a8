// Linear layers on packed weights, fused with the operations before and after:
//
//   y = residual + scale * activation(norm(x) W^T + b)
//
// norm is none, a LayerNorm or an RMSNorm of each row. The activation is none, the exact GELU x Phi(x)
// (Hendrycks & Gimpel 2016), its approximation 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), or gating,
// silu(x G^T + c) * (x W^T + b) (Shazeer 2020). The norm's weight and bias, and a second scale, may differ by
// sample (adaLN, Peebles & Xie 2023); a sample is `sample_rows` consecutive rows. W is packed once into
// panels of columns. A block of rows is normalised, converted and kept in the cache while all panels pass.
// Cost: rows x in x out multiply-adds; memory traffic of x, y and W once.
//
// Arithmetic:
//   f32   float products and sums
//   bf16  x (after the norm) and W rounded to bfloat16, exact products, float sums
//   int8  W as int8 with a scale per output: largest |w| / 127, or given; x as int8 with a scale per row:
//         largest |x| / 127, or one given for all rows. Given scales come from training or calibration.
//         x (1 / scale) is rounded, halves to even, and clamped to -128 … 127; int32 sums are exact. Bias
//         and epilogue are in float. GELU has an error of 8e-5, SiLU a relative one of 7e-5, far below the
//         steps of x and W. The same holds for bf16 if y is stored as bfloat16.
//
// Implementations are listed best first: tiles (AMX), then dot products. Those of AVX512_BF16 are used if
// they are faster than float products on this processor, as on Zen 4. On Intel's without AMX they are half as
// fast, so the widening form is used, with the same roundings of x and W.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/isa.h"
#include "kernels/types.h"

namespace tessera::kernels {

enum class Arithmetic : int32_t { f32, bf16, int8 };
enum class Activation : int32_t { none, gelu, silu_gate, gelu_tanh };

// (out, in) numbers in any order; strides in elements.
struct MatrixView {
  const void* data = nullptr;
  Element element = Element::f32;
  int64_t row = 0, column = 0;
};

struct LinearLayer {
  int64_t in = 0, out = 0;
  MatrixView weight = {};
  const float* bias = nullptr;  // (out) or null
  Activation activation = Activation::none;
  MatrixView gate = {};                  // G, for silu_gate
  const float* gate_bias = nullptr;      // c
  const float* scale = nullptr;          // (out) or null: LayerScale
  float static_scale = 0;                // int8: the scale of x; 0: one per row
  const float* weight_scales = nullptr;  // int8: (out), or null: computed from the weights; not for silu_gate
};

// One implementation; named for `bench` and for tests.
struct LinearImplementation {
  const char* name;  // the instructions that multiply; "+bf16" if others only round
  Arithmetic arithmetic;
  Isa isa;
  const struct LinearFunctions* functions;  // null: the reference
};
// Returns the implementations that this machine can run, best first, the reference last.
std::span<const LinearImplementation> linear_implementations(Arithmetic arithmetic);
// Returns the implementation for the instruction set in use.
const LinearImplementation& choose_linear(Arithmetic arithmetic);

class PackedLinear {
 public:
  // Copies all arguments. Throws if sizes do not fit; packs with all threads.
  PackedLinear(const LinearLayer& layer, Arithmetic arithmetic);
  PackedLinear(const LinearLayer& layer, const LinearImplementation& implementation);
  ~PackedLinear();
  PackedLinear(PackedLinear&&) noexcept;
  PackedLinear& operator=(PackedLinear&&) noexcept;
  int64_t in() const;
  int64_t out() const;
  const LinearImplementation& implementation() const;
  const struct PackedLinearData& data() const { return *data_; }

 private:
  std::unique_ptr<struct PackedLinearData> data_;
};

// Normalises each row of x: (x - mean) / sqrt(variance + eps) * weight + bias, or without the mean (RMSNorm).
struct RowNorm {
  const float *weight = nullptr, *bias = nullptr;  // (in), null: ones, zeros
  float eps = 1e-6f;
  bool centred = true;
  int64_t sample_rows = 0;  // 0: one for all rows; else weight and bias are (samples, in)
};

struct LinearForward {
  int64_t rows = 0;
  Rows x = {};
  const RowNorm* norm = nullptr;
  Rows residual = {};  // (rows, out), null data: none; may be y
  RowsOut y = {};      // must not overlap x
  // Kept for training, if set: x W^T + b before the activation, and x G^T + c.
  RowsOut before = {}, gate_before = {};
  // (samples, out) or null: factor of a sample's rows in addition to the layer's scale.
  const float* sample_scale = nullptr;
  int64_t sample_rows = 0;
};
void linear_forward(const PackedLinear& weights, const LinearForward& call);

// dW = dy^T x and db = the columns' sums of dy, summed in float. The gradient of x is linear_forward with W
// transposed.
struct LinearGradients {
  int64_t rows = 0, in = 0, out = 0;
  Rows x, dy;
  Arithmetic arithmetic = Arithmetic::f32;  // bf16: x and dy may be rounded, as in the layer
  float* weight = nullptr;                  // (out, in), overwritten
  float* bias = nullptr;                    // (out) or null
};
void linear_gradients(const LinearGradients& call);

// y = norm(x), row by row.
struct NormForward {
  int64_t rows = 0, columns = 0;
  Rows x = {};
  RowNorm norm;
  RowsOut y;
};
void norm_forward(const NormForward& call);

}  // namespace tessera::kernels
