// The reference for both passes; portable.
#include "data/transforms/resample.h"

namespace tessera::data {
namespace {

uint8_t to_byte(int32_t sum) {
  const int32_t v = sum >> kResampleBits;
  return static_cast<uint8_t>(v < 0 ? 0 : v > 255 ? 255 : v);
}

void horizontal(const uint8_t* in, ptrdiff_t in_stride, int rows, const ResampleAxis& axis, uint8_t* out) {
  const ptrdiff_t width = axis.outputs;
  for (int y = 0; y < rows; ++y, in += in_stride, out += 3 * width) {
    for (ptrdiff_t x = 0; x < width; ++x) {
      const uint8_t* pixel = in + ptrdiff_t{3} * axis.first[x];
      const int32_t* weight = axis.weights + x * axis.taps;
      int32_t r = 1 << (kResampleBits - 1), g = r, b = r;
      for (int t = 0; t < axis.count[x]; ++t, pixel += 3) {
        r += pixel[0] * weight[t];
        g += pixel[1] * weight[t];
        b += pixel[2] * weight[t];
      }
      out[x] = to_byte(r);
      out[width + x] = to_byte(g);
      out[2 * width + x] = to_byte(b);
    }
  }
}

void vertical(const uint8_t* in, int width, const ResampleAxis& axis, int row, uint8_t* out) {
  const int32_t* weight = axis.weights + ptrdiff_t{row} * axis.taps;
  const uint8_t* top = in + ptrdiff_t{axis.first[row]} * width;
  for (ptrdiff_t x = 0; x < width; ++x) {
    int32_t sum = 1 << (kResampleBits - 1);
    for (int t = 0; t < axis.count[row]; ++t) sum += top[ptrdiff_t{t} * width + x] * weight[t];
    out[x] = to_byte(sum);
  }
}

void map(const uint8_t* in, int count, const ByteMap& map, float* out) {
  for (int i = 0; i < count; ++i) out[i] = map.table[in[i]];
}

}  // namespace

const ResampleForm resample_plain = {"plain", horizontal, vertical, map};

}  // namespace tessera::data
