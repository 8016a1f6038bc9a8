// The cases that the tests of linear layers check and their benchmark times: one type, one way to fill a
// call.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/linear/linear.h"
#include "kernels/testing.h"

namespace tessera::kernels::testing {

struct LinearCase {
  const char* what;
  int64_t rows, in, out;
  Activation activation = Activation::none;
  bool bias = true, scale = false, residual = false;
  int norm = 0;  // 0 none, 1 LayerNorm, 2 RMSNorm
  Element x = Element::f32, y = Element::f32;
  float static_scale = 0, weight_scale = 0;
  int64_t gap = 0;      // numbers between rows
  int64_t samples = 0;  // samples, each with its own scale and, if any, norm; 0: no samples
};

// Sizes around every boundary: rows of a tile (32, 16; 8, 4, 2, 1), columns of a panel (48, 24, 12) and of a
// vector; words of one, two and four numbers, sixteen to a tile.
inline std::vector<LinearCase> linear_cases() {
  constexpr Element h = Element::bf16, f = Element::f32;
  using enum Activation;
  return {
      {"one number", 1, 1, 1},
      {"no rows", 0, 5, 7},
      {"one row", 1, 37, 53},
      {"small, no bias", 3, 5, 7, none, false},
      {"a tile of rows", 8, 64, 48},
      {"one more row", 9, 63, 49, gelu},
      {"half a tile of tile registers", 16, 32, 96, none, true, false, true},
      {"one row less than a tile of them", 31, 96, 48, gelu},
      {"one more", 33, 98, 101, none, true, true, true, 0, h, h},
      {"odd rows and columns", 15, 66, 95, gelu, true, true, true},
      {"bfloat16 in and out", 23, 65, 97, gelu, true, false, false, 1, h, h},
      {"residual of bfloat16", 12, 40, 33, none, true, true, true, 0, h, h},
      {"layer norm", 17, 70, 50, none, true, false, false, 1},
      {"root mean square norm", 17, 71, 50, none, false, false, false, 2, h, f},
      {"gated", 11, 34, 60, silu_gate, false, false, false, 2},
      {"gated, biases, norm", 20, 48, 101, silu_gate, true, true, true, 1, f, h},
      {"gated, two tiles of tile registers", 45, 48, 101, silu_gate, true, true, true, 1, f, h},
      {"strided rows", 13, 29, 31, none, true, false, true, 0, f, f, 0, 0, 5},
      {"fixed scale of x", 10, 52, 40, gelu, true, false, false, 0, f, f, 0.03f},
      {"fixed scales that clip", 9, 53, 40, none, true, true, true, 0, f, f, 0.01f, 0.0007f},
      {"few rows, many columns: threads share columns", 2, 500, 1100},
      {"gelu with tanh", 33, 65, 97, gelu_tanh},
      {"gelu with tanh, bfloat16", 23, 65, 97, gelu_tanh, true, true, true, 1, h, h},
      {"one sample", 20, 34, 61, none, true, false, true, 1, f, f, 0, 0, 0, 1},
      {"samples of one row", 9, 34, 61, none, true, false, true, 1, f, f, 0, 0, 3, 9},
      {"samples within a tile", 70, 40, 101, gelu_tanh, true, true, true, 2, h, h, 0, 0, 0, 14},
      {"samples over the borders of tiles", 135, 48, 101, none, false, false, true, 1, f, f, 0, 0, 0, 3},
      {"samples, scales alone", 75, 41, 50, none, true, false, false, 0, f, h, 0, 0, 0, 5},
      {"many rows: threads share rows", 139, 70, 110, gelu, true, true, true, 1},
      {"blocks of rows", 60, 2600, 13},
      {"blocks of rows, columns shared", 70, 8200, 100},
      {"blocks of rows in the gradients", 1035, 50, 13},
      {"blocks of rows in the gradients, bfloat16", 1735, 50, 13, none, true, false, false, 0, h, h},
      {"blocks of rows in the gradients of whole tiles", 1735, 100, 45, none, true, false, false, 0, h, h},
  };
}

// The layers of DeiT-S, for eight images and for one, and of ViL-T.
inline std::vector<LinearCase> linear_bench_cases() {
  using enum Activation;
  return {
      {"queries, keys and values", 1576, 384, 1152, none, true, false, false, 1},
      {"attention's output", 1576, 384, 384},
      {"first of the MLP", 1576, 384, 1536, gelu, true, false, false, 1},
      {"second of the MLP", 1576, 1536, 384},
      {"first of the MLP, one image", 197, 384, 1536, gelu, true, false, false, 1},
      {"head", 8, 384, 1000},
      {"proj_up of ViL-T", 1568, 192, 768},
      {"queries, keys and values of DiT-S/2", 2048, 384, 1152, none, true, false, false, 1, Element::f32,
       Element::bf16, 0, 0, 0, 8},
      {"first of its MLP", 2048, 384, 1536, gelu_tanh, true, false, false, 1, Element::f32, Element::bf16, 0,
       0, 0, 8},
      {"second of its MLP", 2048, 1536, 384, none, true, false, true, 0, Element::f32, Element::f32, 0, 0, 0,
       8},
  };
}

// All tensors of a case; outputs are misaligned and have guard values around them.
struct LinearProblem {
  explicit LinearProblem(const LinearCase& c, int64_t shift = 1)
      : with(c),
        weight(normal(c.in * c.out, 1, 0, 1 / std::sqrt(static_cast<double>(c.in)))),
        gate(normal(c.in * c.out, 2, 0, 1 / std::sqrt(static_cast<double>(c.in)))),
        bias(normal(c.out, 3)),
        gate_bias(normal(c.out, 4)),
        scale(normal(c.out, 5, 1, 0.3)),
        norm_weight(normal(c.in * std::max<int64_t>(1, c.samples), 6, 1, 0.3)),
        norm_bias(normal(c.in * std::max<int64_t>(1, c.samples), 7, 0, 0.3)),
        sample_scale(normal(c.out * c.samples, 10, 0.5, 1)),
        x(c.x, c.rows * (c.in + c.gap), shift),
        residual(c.y, c.rows * (c.out + c.gap), shift),
        y(c.y, c.rows * (c.out + c.gap), shift) {
    const auto values = normal(x.count(), 8, 0.5, 2), before = normal(residual.count(), 9);
    for (int64_t i = 0; i < x.count(); ++i) x.set(i, values[i]);
    for (int64_t i = 0; i < residual.count(); ++i) residual.set(i, before[i]);
    for (int64_t o = 0; with.weight_scale > 0 && o < c.out; ++o)
      weight_scales.push_back(with.weight_scale * static_cast<float>(1 + o % 3));
    norm = {norm_weight.data(), with.norm == 1 ? norm_bias.data() : nullptr, 1e-6f, with.norm == 1,
            sample_rows()};
  }

  LinearLayer layer() const {
    LinearLayer l{with.in, with.out, {weight.data(), Element::f32, with.in, 1}};
    l.activation = with.activation;
    l.static_scale = with.static_scale;
    if (!weight_scales.empty()) l.weight_scales = weight_scales.data();
    if (with.bias) l.bias = bias.data();
    if (with.scale) l.scale = scale.data();
    if (with.activation == Activation::silu_gate) {
      l.gate = {gate.data(), Element::f32, with.in, 1};
      if (with.bias) l.gate_bias = gate_bias.data();
    }
    return l;
  }
  LinearForward call() {
    LinearForward c{with.rows, {x.data(), with.x, with.in + with.gap}};
    if (with.norm) c.norm = &norm;
    if (with.residual) c.residual = {residual.data(), with.y, with.out + with.gap};
    c.y = {y.data(), with.y, with.out + with.gap};
    if (with.samples) c.sample_scale = sample_scale.data(), c.sample_rows = sample_rows();
    return c;
  }
  int64_t sample_rows() const { return with.samples ? with.rows / with.samples : 0; }
  std::vector<double> run(const LinearImplementation& implementation) {
    const PackedLinear packed(layer(), implementation);
    linear_forward(packed, call());
    return results();
  }
  std::vector<double> results() const {
    std::vector<double> values;
    for (int64_t r = 0; r < with.rows; ++r)
      for (int64_t o = 0; o < with.out; ++o) values.push_back(y.get(r * (with.out + with.gap) + o));
    return values;
  }

  LinearCase with;
  std::vector<float> weight, gate, bias, gate_bias, scale, weight_scales, norm_weight, norm_bias,
      sample_scale;
  Guarded x, residual, y;
  RowNorm norm;
};

}  // namespace tessera::kernels::testing
