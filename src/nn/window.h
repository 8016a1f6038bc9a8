// Splits a map into windows and merges them, for attention inside windows.
#pragma once

#include "ops/torch.h"

#include <cstdint>

namespace tessera::nn {

// Pads x [batch, rows, columns, width] with zeros below and to the right, so that its sides are multiples of
// these; returns it unchanged if they are.
torch::Tensor pad_to_multiple(const torch::Tensor& x, int64_t rows, int64_t columns);

// x [batch, rows, columns, width], padded to whole windows of `height` x `width` cells -> [batch * windows,
// height * width, width of x]; windows and the tokens in them row by row.
torch::Tensor to_windows(const torch::Tensor& x, int64_t height, int64_t width);

// The inverse, [batch, rows, columns, width], without the padding.
torch::Tensor from_windows(const torch::Tensor& windows, int64_t height, int64_t width, int64_t rows,
                           int64_t columns);

}  // namespace tessera::nn
