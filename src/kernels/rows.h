// Reads and writes rows of numbers in any layout as floats. For per-ISA files.
#pragma once

#include "kernels/simd.h"

namespace tessera::kernels::TESSERA_ISA {

TESSERA_INLINE const void* advance(const void* p, Element element, int64_t by) {
  return (const char*)p + by * (element == Element::f32 ? 4 : 2);
}
TESSERA_INLINE void* advance(void* p, Element element, int64_t by) {
  return (char*)p + by * (element == Element::f32 ? 4 : 2);
}

// A (rows, width) matrix of floats.
struct Matrix {
  const float* data;
  int64_t row;
};
struct MatrixOut {
  float* data;
  int64_t row;
};

// Fills rows of to_row floats, a multiple of W, with the rows of `from`, converted and padded with zeros.
template <class T>
TESSERA_INLINE void copy_rows(const T* from, int64_t from_row, int64_t rows, int64_t width, float* to,
                              int64_t to_row) {
  for (int64_t r = 0; r < rows; ++r, from += from_row, to += to_row)
    for (int64_t c = 0; c < to_row; c += W) {
      const int64_t left = width - c;
      store(to + c, left >= W ? load(from + c) : left > 0 ? load_part(from + c, left) : vf{});
    }
}

// The bits of magnitudes, which sort like the numbers; a NaN or an infinity is 0x7f800000 or more.
TESSERA_INLINE vi larger_size(vi most, vf v) {
  const vi size = (vi)v & 0x7fffffff;
  return size > most ? size : most;
}
// Returns the largest |x|; NaN if any number is not finite.
template <class T>
TESSERA_INLINE float largest_size(const T* x, int64_t count) {
  vi most[4] = {};
  int64_t c = 0;
  for (; c + 4 * W <= count; c += 4 * W)
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) most[i] = larger_size(most[i], load(x + c + i * W));
  for (; c < count; c += W) most[0] = larger_size(most[0], get(x + c, count - c));
#pragma GCC unroll 4
  for (int i = 1; i < 4; ++i) most[0] = most[i] > most[0] ? most[i] : most[0];
  int32_t bits = 0;
  for (int i = 0; i < W; ++i) bits = most[0][i] > bits ? most[0][i] : bits;
  if (bits >= 0x7f800000) return __builtin_nanf("");
  float largest;
  memcpy(&largest, &bits, sizeof largest);
  return largest;
}

// Returns sum_i a[i] * b[i].
TESSERA_INLINE float dot(const float* a, const float* b, int64_t n) {
  vf total = {};
  int64_t i = 0;
  for (; i + W <= n; i += W) total += load(a + i) * load(b + i);
  if (i < n) total += load_part(a + i, n - i) * load_part(b + i, n - i);
  return sum(total);
}

}  // namespace tessera::kernels::TESSERA_ISA
