// The arithmetic of resize.cpp: weights of one axis, and the two passes, in a plain form and one form per
// instruction set. All forms return the same bits.
//
//   h[y, x] = clip8((2^21 + sum_t w_x[t] * in[y, first_x + t]) >> 22)       along the rows
//   v[y, x] = clip8((2^21 + sum_t w_y[t] * h[first_y + t, x]) >> 22)        down the columns
//
// with integer weights w = round(2^22 * filter), as in Pillow's Resample.c.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace tessera::data {

// The inputs of each output along one axis. Weight t of output i is weights[i * taps + t]. It also equals
// high * 4096 + low, in halves that fit a 16-bit multiplier.
struct ResampleAxis {
  int inputs, outputs;
  int taps;              // taps per output; unused ones have weight 0; a multiple of 4 if `padded`
  bool padded;           // first + taps <= inputs for every output, even after rounding taps up
  const int32_t* first;  // [outputs]
  const int32_t* count;  // [outputs], number of used taps
  const int32_t* weights;
  const int16_t* high;
  const int16_t* low;
  const int8_t* digits[3];
};

inline constexpr int kResampleBits = 22;
inline constexpr int kLowBits = 12;
// Bytes after the last pixel that a fast form may read (and ignore).
inline constexpr int kResampleSlack = 16;

// Converts rows of RGB pixels to rows of [3][axis.outputs] bytes, one colour after the other. Strides:
// in_stride bytes for input rows, 3 * axis.outputs for output rows. The fast forms require axis.padded and
// kResampleSlack readable bytes after the end.
using HorizontalPass = void (*)(const uint8_t* in, ptrdiff_t in_stride, int rows, const ResampleAxis& axis,
                                uint8_t* out);
// Computes one output row of `width` bytes: the weighted sum of `count` input rows, stride `width` bytes.
using VerticalPass = void (*)(const uint8_t* in, int width, const ResampleAxis& axis, int row, uint8_t* out);

// Maps bytes of one colour to (byte / 255 - mean) / std, each step rounded to float32. `table` contains the
// 256 results.
struct ByteMap {
  const float* table;
  float mean, std;
  bool by_fma;  // the quotients below equal the table bit for bit, for all 256 bytes
};
using MapPass = void (*)(const uint8_t* in, int count, const ByteMap& map, float* out);

// a / b, correctly rounded except for rare b (Markstein, 1990), with y = 1 / b: q = a y, q + (a - q b) y. The
// fast forms use it if a check of the new table finds the same bits.

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
