// Convolutions of 3 x 3 cells by Winograd's minimal filtering (Lavin & Gray 2016, "Fast algorithms for
// convolutional neural networks"): stride 1, zeros outside the grid, channels last.
//
//   y[b, r, c, o] = bias[o] + sum_{i, j < 3, k} x[b, r + i - 1, c + j - 1, k] weight[o, k, i, j]
//
// The result is computed in tiles of 4 x 4 cells, each from the 6 x 6 cells d around it:
//
//   tile = A^T [ sum_k (G weight G^T) * (B^T d B) ] A,      * of each of the 36 numbers by itself
//
// so 36 matrix products (tiles x in x out) replace 9 of 16 times as many rows: a quarter of the
// multiply-adds. The points of interpolation are 0, +-sqrt(1/2), +-sqrt(2) and infinity, whose matrices have smaller
// numbers than those of 0, +-1, +-2 and so smaller errors of rounding. Gradients: that of x is the same
// convolution with the weights rotated by half a circle and their channels exchanged; that of the weights is  G^T [ sum_tiles (B^T d B) * (A dy A^T) ] G.
//
// Arithmetic is in float whatever x and y are stored as: there is no narrower form, since rounding the
// transformed numbers to bfloat16 or to whole numbers of 8 bits loses several bits more than rounding x. The same
// bits whatever the number of threads, and for a sample alone or among others. C headers only: per-ISA files
// include it.
#pragma once

#include "kernels/types.h"

namespace tessera::kernels {

struct WinogradGrid {
  int64_t batch = 0, rows = 0, columns = 0, in = 0, out = 0;
};

// Transformed weights, for winograd_forward with any instruction set: so many floats.
int64_t winograd_packed_count(int64_t in, int64_t out);
// weight[o * out_stride + k * in_stride + 3 i + j]. `rotated` takes (2 - i, 2 - j) in the place of (i, j): with
// the strides exchanged as well, packed weights give the gradient of x.
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
  const void* residual = nullptr;  // as y, added to it; or null
  Element residual_element = Element::f32;
  bool relu = false;  // of the sum with the residual
  void* y = nullptr;  // (batch, rows, columns, out), contiguous; must not overlap x
  Element y_element = Element::f32;
};
void winograd_forward(const WinogradForward& call);

// The gradient of the weights.
struct WinogradGradients {
  WinogradGrid grid;
  const void* x = nullptr;  // as above
  Element x_element = Element::f32;
  const void* dy = nullptr;  // as y
  Element dy_element = Element::f32;
  float* weight = nullptr;  // (out, in, 3, 3), overwritten
};
void winograd_gradients(const WinogradGradients& call);

// Below: what an instruction set gives.

constexpr int64_t kWinogradTile = 4, kWinogradSide = 6, kWinogradMatrices = 36;
constexpr int64_t kWinogradPanel = 48;  // columns of packed weights that lie together

// Tiles [begin, end) are numbered (sample, row of tiles, column of tiles). Number `matrix` of the 36 of tile t and
// channel c stands at matrices[matrix * matrix_stride + (t - first) * row + c].
template <class Pointer>
struct WinogradMatrices {
  Pointer data;
  int64_t matrix_stride, row;  // row: a multiple of 16
  int64_t first;
};

// A grid into matrices: B^T d B of the 6 x 6 cells around each tile, or A dy A^T of the 4 x 4 cells of it.
struct WinogradTransform {
  const void* cells;
  Element element;
  int64_t rows, columns, channels;
  int64_t channel, count;  // which channels, written as 0 … count - 1
  WinogradMatrices<float*> to;
};

// Matrices into a grid.
struct WinogradOutput {
  WinogradMatrices<const float*> from;
  const WinogradForward* call;
};

// out[m][n] = sum_k a[m * a_row + k * a_k] b[k * b_k + n], or added to what is there. b is readable and out
// writable to a multiple of 16 columns.
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
