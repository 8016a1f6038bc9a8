// The definition.
#include "kernels/depthwise/depthwise.h"
#include "kernels/reference.h"

namespace tessera::kernels::reference {
namespace {

double output(const DepthwiseConvolution& call, int64_t b, int64_t r, int64_t c, int64_t k) {
  double sum = call.bias ? call.bias[k] : 0;
  for (int64_t i = 0; i < kDepthwiseKernel; ++i)
    for (int64_t j = 0; j < kDepthwiseKernel; ++j) {
      const int64_t row = r + i - kDepthwiseKernel / 2, column = c + j - kDepthwiseKernel / 2;
      if (row < 0 || row >= call.rows || column < 0 || column >= call.columns) continue;
      const int64_t at = ((b * call.rows + row) * call.columns + column) * call.channels + k;
      sum += read_element(call.x, call.x_element, at) *
             call.weight[(i * kDepthwiseKernel + j) * call.channels + k];
    }
  return sum;
}

// A piece is one channel.
void convolve(const DepthwiseConvolution& call, int64_t begin, int64_t end) {
  const int64_t chunks = (call.columns + kDepthwiseColumns - 1) / kDepthwiseColumns;
  for (int64_t piece = begin; piece < end; ++piece) {
    const int64_t k = piece % call.channels, b = piece / call.channels / chunks,
                  first = piece / call.channels % chunks * kDepthwiseColumns;
    for (int64_t r = 0; r < call.rows; ++r)
      for (int64_t c = first; c < call.columns && c < first + kDepthwiseColumns; ++c)
        write_element(call.y, call.y_element, ((b * call.rows + r) * call.columns + c) * call.channels + k,
                      output(call, b, r, c, k));
  }
}

}  // namespace

extern const DepthwiseFunctions depthwise_convolution;
const DepthwiseFunctions depthwise_convolution = {1, convolve};

}  // namespace tessera::kernels::reference
