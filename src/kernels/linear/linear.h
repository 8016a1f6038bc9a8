// Linear layers on packed weights, with what stands before and behind them:
//
//   y = residual + scale * activation(norm(x) W^T + b)
//
// norm is none, a LayerNorm or an RMSNorm of each row; the activation is none, the exact GELU
// x Phi(x) (Hendrycks & Gimpel 2016), its approximation 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), or
// gating, silu(x G^T + c) * (x W^T + b) (Shazeer 2020). The norm's weight and bias, and a second scale, may be
// each sample's own (adaLN, Peebles & Xie 2023): `sample_rows` rows one after the other are a sample. W is packed
// once into panels of columns; a block of rows is normalised, converted and kept in the cache while all
// panels pass. Rows x in x out multiply-adds; memory traffic of x, y and W once.
//
// Arithmetic:
//   f32   float products and sums
//   bf16  x (after the norm) and W rounded to bfloat16, exact products, float sums
//   int8  W as int8 with a scale for each output: largest |w| / 127, or a given one; x as int8 with a scale
//         for each row: largest |x| / 127, or a given one for all. Given ones are learned in training or
//         found by calibration. x (1 / scale) is rounded, halves to even, and held in -128 to 127; int32 sums
//         are exact. Bias and epilogue in float, GELU to 8e-5 and SiLU to 7e-5 of itself, far
//         below the steps of x and W; so in bf16 where y is stored as such.
//
// Implementations are listed best first: tiles (AMX), then dot products. Those of AVX512_BF16 are taken where
// they are faster than float products on this processor (Zen 4; on Intel's without AMX they are half as fast,
// and the widening form is taken, with the same roundings of x and W).
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
  float static_scale = 0;                // int8: the scale of x; 0 = each row's own
  const float* weight_scales = nullptr;  // int8: (out), or null = from the weights; not for silu_gate
};

// One way of computing; a name for `bench` and for tests.
struct LinearImplementation {
  const char* name;  // of the instructions that multiply; "+bf16" where others only round
  Arithmetic arithmetic;
  Isa isa;
  const struct LinearFunctions* functions;  // null: the reference
};
// Those that this machine can run, best first, the reference last.
std::span<const LinearImplementation> linear_implementations(Arithmetic arithmetic);
// The one that the instruction set in use takes.
const LinearImplementation& choose_linear(Arithmetic arithmetic);

class PackedLinear {
 public:
  // Copies everything it is given. Throws if sizes do not fit; packs with all threads.
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
  // Training keeps these, where wanted: x W^T + b before the activation, and x G^T + c.
  RowsOut before = {}, gate_before = {};
  // (samples, out) or null: what a sample's rows are multiplied by besides the layer's scale.
  const float* sample_scale = nullptr;
  int64_t sample_rows = 0;
};
void linear_forward(const PackedLinear& weights, const LinearForward& call);

// dW = dy^T x and db = the columns' sums of dy, summed in float; the gradient of x is linear_forward with W
// transposed.
struct LinearGradients {
  int64_t rows = 0, in = 0, out = 0;
  Rows x, dy;
  Arithmetic arithmetic = Arithmetic::f32;  // bf16: x and dy may be rounded to it, as in the layer itself
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
