// The arithmetic under resize.cpp: weights of one axis, and the two passes, in a plain form and one per
// instruction set. All forms give the same bits.
//
//   h[y, x] = clip8((2^21 + sum_t w_x[t] * in[y, first_x + t]) >> 22)       along the rows
//   v[y, x] = clip8((2^21 + sum_t w_y[t] * h[first_y + t, x]) >> 22)        down the columns
//
// with integer weights w = round(2^22 * filter), as in Pillow's Resample.c.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace tessera::data {

// Which inputs each output of one axis is made of. Weight t of output i is weights[i * taps + t]; the same
// number is high * 4096 + low, in halves that fit a 16-bit multiplier.
struct ResampleAxis {
  int inputs, outputs;
  int taps;              // the same for all outputs, unused ones weigh 0; a multiple of 4 if `padded`
  bool padded;           // first + taps <= inputs for every output, though taps was rounded up
  const int32_t* first;  // [outputs]
  const int32_t* count;  // [outputs], taps in use from the first on
  const int32_t* weights;
  const int16_t* high;
  const int16_t* low;
  const int8_t* digits[3];
};

inline constexpr int kResampleBits = 22;
inline constexpr int kLowBits = 12;
// Bytes behind the last pixel that a fast form may read (and ignore).
inline constexpr int kResampleSlack = 16;

// Rows of RGB pixels become rows of [3][axis.outputs] bytes, one colour after the other. Input rows lie
// in_stride bytes apart, output rows 3 * axis.outputs. The fast forms want axis.padded and kResampleSlack
// readable bytes behind the end.
using HorizontalPass = void (*)(const uint8_t* in, ptrdiff_t in_stride, int rows, const ResampleAxis& axis,
                                uint8_t* out);
// One output row of `width` bytes: the weighted sum of `count` input rows, which lie `width` bytes apart.
using VerticalPass = void (*)(const uint8_t* in, int width, const ResampleAxis& axis, int row, uint8_t* out);

// Bytes of one colour to (byte / 255 - mean) / std, each step rounded to float32. `table` holds the 256
// results.
struct ByteMap {
  const float* table;
  float mean, std;
  bool by_fma;  // quotients as below give the table's bits, for all 256 bytes
};
using MapPass = void (*)(const uint8_t* in, int count, const ByteMap& map, float* out);

// a / b, correctly rounded but for rare b (Markstein, 1990), with y = 1 / b: q = a y, q + (a - q b) y.
// The fast forms divide so; that it gives the table's bits is checked when a table is made.

struct ResampleForm {
  const char* name;  // "plain", "avx2", "avx512"
  HorizontalPass horizontal;
  VerticalPass vertical;
  MapPass map;
};

extern const ResampleForm resample_plain;
#if defined(__x86_64__)
extern const ResampleForm resample_avx2;
extern const ResampleForm resample_avx512;
#endif

}  // namespace tessera::data
