// Depthwise convolution of ConvNeXt's blocks: 7 x 7 cells, independent channels, as many outputs as inputs.
//
//   y[b, r, c, k] = bias[k] + sum_{i, j < 7} x[b, r + i - 3, c + j - 3, k] weight[i, j, k]
//
// with zeros outside the grid; channels last, sums in float. It takes 49 multiply-adds per number; x and y
// pass through memory once. C headers only: per-ISA files include it.
#pragma once

#include "kernels/types.h"

namespace tessera::kernels {

constexpr int64_t kDepthwiseKernel = 7;

struct DepthwiseConvolution {
  int64_t batch = 0, rows = 0, columns = 0, channels = 0;
  const void* x = nullptr;  // (batch, rows, columns, channels), contiguous
  Element x_element = Element::f32;
  const float* weight = nullptr;  // (7, 7, channels)
  const float* bias = nullptr;    // (channels) or null
  void* y = nullptr;              // like x; must not overlap it
  Element y_element = Element::f32;
};
void depthwise_convolution(const DepthwiseConvolution& call);

// Columns per piece of work; a piece is a vector of channels of one sample.
constexpr int64_t kDepthwiseColumns = 28;

// An instruction set computes pieces [begin, end), numbered (sample, columns, channels).
struct DepthwiseFunctions {
  int64_t lanes;  // channels per piece
  void (*convolve)(const DepthwiseConvolution& call, int64_t begin, int64_t end);
};

}  // namespace tessera::kernels
