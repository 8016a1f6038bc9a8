#include "nn/window.h"

namespace tessera::nn {
namespace {

int64_t windows_along(int64_t length, int64_t window) { return (length + window - 1) / window; }

}  // namespace

torch::Tensor pad_to_multiple(const torch::Tensor& x, int64_t rows, int64_t columns) {
  const int64_t below = windows_along(x.size(1), rows) * rows - x.size(1);
  const int64_t right = windows_along(x.size(2), columns) * columns - x.size(2);
  return below || right ? torch::constant_pad_nd(x, {0, 0, 0, right, 0, below}) : x;
}

torch::Tensor to_windows(const torch::Tensor& x, int64_t height, int64_t width) {
  const torch::Tensor padded = pad_to_multiple(x, height, width);
  const int64_t down = padded.size(1) / height, across = padded.size(2) / width, channels = x.size(3);
  return padded.reshape({x.size(0), down, height, across, width, channels})
      .transpose(2, 3)
      .reshape({-1, height * width, channels});
}

torch::Tensor from_windows(const torch::Tensor& windows, int64_t height, int64_t width, int64_t rows,
                           int64_t columns) {
  const int64_t down = windows_along(rows, height), across = windows_along(columns, width);
  const int64_t channels = windows.size(2), batch = windows.size(0) / (down * across);
  return windows.view({batch, down, across, height, width, channels})
      .transpose(2, 3)
      .reshape({batch, down * height, across * width, channels})
      .slice(1, 0, rows)
      .slice(2, 0, columns);
}

}  // namespace tessera::nn
