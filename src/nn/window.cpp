#include "nn/window.h"

namespace tessera::nn {
namespace {

int64_t windows_along(int64_t length, int64_t window) { return (length + window - 1) / window; }

}  // namespace

torch::Tensor to_windows(const torch::Tensor& x, int64_t window) {
  const int64_t rows = x.size(1), columns = x.size(2), width = x.size(3);
  const int64_t down = windows_along(rows, window), across = windows_along(columns, window);
  const torch::Tensor padded =
      torch::constant_pad_nd(x, {0, 0, 0, across * window - columns, 0, down * window - rows});
  return padded.view({x.size(0), down, window, across, window, width})
      .transpose(2, 3)
      .reshape({-1, window * window, width});
}

torch::Tensor from_windows(const torch::Tensor& windows, int64_t window, int64_t rows, int64_t columns) {
  const int64_t down = windows_along(rows, window), across = windows_along(columns, window);
  const int64_t width = windows.size(2), batch = windows.size(0) / (down * across);
  return windows.view({batch, down, across, window, window, width})
      .transpose(2, 3)
      .reshape({batch, down * window, across * window, width})
      .slice(1, 0, rows)
      .slice(2, 0, columns);
}

}  // namespace tessera::nn
