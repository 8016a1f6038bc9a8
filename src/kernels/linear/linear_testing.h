// The cases of linear layers: one list for correctness, gradients and timing.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/linear/linear.h"

namespace tessera::kernels::testing {

struct LinearCase {
  const char* what;
  int64_t rows, in, out;
  Activation activation = Activation::none;
  bool bias = true, scale = false, residual = false;
  int norm = 0;  // 0 none, 1 LayerNorm, 2 RMSNorm
  Element x = Element::f32, y = Element::f32;
  float static_scale = 0, weight_scale = 0;
  int64_t gap = 0;  // numbers between rows
};

// Sizes around every border: rows of a tile (32, 16; 8, 4, 2, 1), columns of a panel (48, 24, 12) and of a
// vector, words of one, two and four numbers, sixteen of which make a tile.
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
      {"many rows: threads share rows", 139, 70, 110, gelu, true, true, true, 1},
      {"blocks of rows", 60, 2600, 13},
      {"blocks of rows, columns shared", 70, 8200, 100},
      {"blocks of rows in the gradients", 1035, 50, 13},
      {"blocks of rows in the gradients, bfloat16", 1735, 50, 13, none, true, false, false, 0, h, h},
      {"blocks of rows in the gradients of whole tiles", 1735, 100, 45, none, true, false, false, 0, h, h},
  };
}

}  // namespace tessera::kernels::testing
