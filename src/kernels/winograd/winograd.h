// Convolutions of 3 x 3 cells by Winograd's minimal filtering (Lavin & Gray 2016, "Fast algorithms for
// convolutional neural networks"): stride 1, zeros outside the grid, channels last.
//
//   y[b, r, c, o] = bias[o] + sum_{i, j < 3, k} x[b, r + i - 1, c + j - 1, k] weight[o, k, i, j]
//
// The result is computed in tiles of 4 x 4 cells, each from the 6 x 6 cells d around it:
//
//   tile = A^T [ sum_k (G weight G^T) * (B^T d B) ] A,      * elementwise on the 36 numbers
//
// So 36 matrix products (tiles x in x out) replace 9 with 16 times as many rows: a quarter of the
// multiply-adds. The interpolation points are 0, +-sqrt(1/2), +-sqrt(2) and infinity. Their matrices have
// smaller numbers, and so smaller rounding errors, than those of 0, +-1, +-2. The gradient of x is the same
// convolution with the weights rotated by 180 degrees and their channels exchanged. The gradient of the
// weights is G^T [ sum_tiles (B^T d B) * (A dy A^T) ] G.
//
// Arithmetic is in float for every storage type of x and y. No narrower form exists: rounding the transformed
// numbers to bfloat16 or int8 loses several bits more than rounding x. The bits do not depend on the number
// of threads or on other samples in the batch. C headers only: per-ISA files include it.
#pragma once

#include "kernels/types.h"

namespace tessera::kernels {

struct WinogradGrid {
  int64_t batch = 0, rows = 0, columns = 0, in = 0, out = 0;
};

// Returns the number of floats of transformed weights, for winograd_forward with any instruction set.
int64_t winograd_packed_count(int64_t in, int64_t out);
// weight[o * out_stride + k * in_stride + 3 i + j]. `rotated` reads (2 - i, 2 - j) instead of (i, j): with
// the strides exchanged too, packed weights give the gradient of x.
struct WinogradWeights {
  const float* weight = nullptr;
  int64_t in = 0, out = 0, out_stride = 0, in_stride = 0;
  bool rotated = false;
  float* packed = nullptr;  // (winograd_packed_count(in, out)), overwritten
};
void winograd_pack(const WinogradWeights& call);

struct WinogradForward {
  WinogradGrid grid;
  const void* x = nullptr;  // (batch, rows, columns, in), contiguous
  Element x_element = Element::f32;
  const float* packed = nullptr;
  const float* bias = nullptr;     // (out) or null
  const void* residual = nullptr;  // like y, added to it; or null
  Element residual_element = Element::f32;
  bool relu = false;  // after the residual
  void* y = nullptr;  // (batch, rows, columns, out), contiguous; must not overlap x
  Element y_element = Element::f32;
};
void winograd_forward(const WinogradForward& call);

// The gradient of the weights.
struct WinogradGradients {
  WinogradGrid grid;
  const void* x = nullptr;  // as above
  Element x_element = Element::f32;
  const void* dy = nullptr;  // like y
  Element dy_element = Element::f32;
  float* weight = nullptr;  // (out, in, 3, 3), overwritten
};
void winograd_gradients(const WinogradGradients& call);

// Below: the functions of an instruction set.

constexpr int64_t kWinogradTile = 4, kWinogradSide = 6, kWinogradMatrices = 36;
constexpr int64_t kWinogradPanel = 48;  // columns per panel of packed weights

// Tiles [begin, end) are numbered (sample, row of tiles, column of tiles). Matrix `matrix` of the 36 holds
// tile t and channel c at matrices[matrix * matrix_stride + (t - first) * row + c].
template <class Pointer>
struct WinogradMatrices {
  Pointer data;
  int64_t matrix_stride, row;  // row: a multiple of 16
  int64_t first;
};

// Transforms a grid into matrices: B^T d B of the 6 x 6 cells around each tile, or A dy A^T of its 4 x 4
// cells.
struct WinogradTransform {
  const void* cells;
  Element element;
  int64_t rows, columns, channels;
  int64_t channel, count;  // the channels, written as 0 … count - 1
  WinogradMatrices<float*> to;
};

// Transforms matrices into a grid.
struct WinogradOutput {
  WinogradMatrices<const float*> from;
  const WinogradForward* call;
};

// out[m][n] = sum_k a[m * a_row + k * a_k] b[k * b_k + n], or added to `out`. b is readable and out writable
// up to a multiple of 16 columns.
struct WinogradProduct {
  const float* a;
  int64_t a_row, a_k;
  const float* b;
  int64_t b_k, k, rows, columns;
  float* out;
  int64_t out_row;
  bool add;
};

struct WinogradFunctions {
  void (*input)(const WinogradTransform&, int64_t begin, int64_t end);
  void (*gradient)(const WinogradTransform&, int64_t begin, int64_t end);
  void (*output)(const WinogradOutput&, int64_t begin, int64_t end);
  void (*product)(const WinogradProduct&);
  // G w G^T of kWinogradPanel kernels, w[9][kWinogradPanel]; and G^T u G back into w.
  void (*weights)(const float* w, float* matrices, int64_t matrix_stride);
  void (*weight_gradients)(const float* matrices, int64_t matrix_stride, float* w);
};

}  // namespace tessera::kernels
