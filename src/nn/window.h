// A map cut into square windows and put together again, for attention inside windows.
#pragma once

#include "ops/torch.h"

#include <cstdint>

namespace tessera::nn {

// x [batch, rows, columns, width], zeros added below and to the right up to whole windows ->
// [batch * windows, window * window, width]; windows and the tokens in them row by row.
torch::Tensor to_windows(const torch::Tensor& x, int64_t window);

// The way back, without what was added: [batch * windows, window * window, width] ->
// [batch, rows, columns, width].
torch::Tensor from_windows(const torch::Tensor& windows, int64_t window, int64_t rows, int64_t columns);

}  // namespace tessera::nn
