// Shared by forward and backward of the mLSTM: gates, chunks, and rows as floats. Per-ISA.
#pragma once

#include "kernels/memory.h"
#include "kernels/mlstm/mlstm_layout.h"
#include "kernels/rows.h"
#include "kernels/tiles.h"

namespace tessera::kernels::TESSERA_ISA {

void mlstm_backward(const MlstmBackward& call, int64_t begin, int64_t end, void* scratch);

// The rows of one head in walking order.
template <class Pointer>
struct HeadWalk {
  Pointer data;
  Element element;
  int64_t stride;
};

template <class Pointer>
TESSERA_INLINE HeadWalk<Pointer> walk(const HeadView<Pointer>& view, const MlstmShape& s, int64_t item) {
  int64_t offset = item / s.heads * view.batch + item % s.heads * view.head;
  if (s.reverse) offset += (s.tokens - 1) * view.token;
  return {advance(view.data, view.element, offset), view.element, s.reverse ? -view.token : view.token};
}

template <class Pointer>
TESSERA_INLINE Pointer walk(const GateView<Pointer>& view, const MlstmShape& s, int64_t item,
                            int64_t* stride) {
  const int64_t offset = item / s.heads * view.batch + item % s.heads * view.head;
  *stride = s.reverse ? -view.token : view.token;
  return view.data + offset + (s.reverse ? (s.tokens - 1) * view.token : 0);
}

// Prefetches rows start … start+length-1 of a chunk that comes next.
template <class Pointer>
TESSERA_INLINE void fetch_rows(const HeadWalk<Pointer>& rows, int64_t start, int64_t length, int64_t width) {
  const int64_t bytes = width * (rows.element == Element::f32 ? 4 : 2);
  for (int64_t t = start; t < start + length; ++t)
    fetch<FetchFor::later>(advance(rows.data, rows.element, t * rows.stride), bytes);
}

// Returns rows start … start+length-1: in place if whole vectors of floats can be read there, else in `copy`,
// with rows padded with zeros to a multiple of 16.
TESSERA_INLINE Matrix rows_as_floats(const HeadWalk<const void*>& from, int64_t start, int64_t length,
                                     int64_t width, float* copy) {
  const void* at = advance(from.data, from.element, start * from.stride);
  if (from.element == Element::f32 && width % 16 == 0) return {(const float*)at, from.stride};
  const int64_t padded = round_up16(width);
  if (from.element == Element::f32)
    copy_rows((const float*)at, from.stride, length, width, copy, padded);
  else
    copy_rows((const bf16*)at, from.stride, length, width, copy, padded);
  return {copy, padded};
}

// Returns the memory in which to compute rows start … of `to`: in place if they are whole vectors of floats,
// else `copy` until write_rows.
TESSERA_INLINE MatrixOut rows_to_write(const HeadWalk<void*>& to, int64_t start, int64_t width, float* copy) {
  if (to.element == Element::f32 && width % 16 == 0)
    return {(float*)advance(to.data, to.element, start * to.stride), to.stride};
  return {copy, round_up16(width)};
}
template <class T>
TESSERA_INLINE void write_rows_as(T* to, int64_t to_row, int64_t length, int64_t width,
                                  const MatrixOut& from) {
  for (int64_t r = 0; r < length; ++r)
    for (int64_t c = 0; c < width; c += W)
      put(to + r * to_row + c, load(from.data + r * from.row + c), width - c);
}
TESSERA_INLINE void write_rows(const HeadWalk<void*>& to, int64_t start, int64_t length, int64_t width,
                               const MatrixOut& from) {
  void* at = advance(to.data, to.element, start * to.stride);
  if (from.data == at) return;
  if (to.element == Element::f32)
    write_rows_as((float*)at, to.stride, length, width, from);
  else
    write_rows_as((bf16*)at, to.stride, length, width, from);
}

// to[d] = keep * to[d] + gain * sum_s weight[s] * rows[s][d]; if keep is 0, `to` is not read.
TESSERA_INLINE void weighted_sum(const Matrix& rows, int64_t length, int64_t width, const float* weight,
                                 float keep, float gain, float* to) {
  for (int64_t d = 0; d < width; d += W) {
    const int64_t left = width - d;
    vf total = {};
    for (int64_t s = 0; s < length; ++s) {
      const float* at = rows.data + s * rows.row + d;
      total += weight[s] * (left >= W ? load(at) : load_part(at, left));
    }
    total *= gain;
    if (keep != 0) total += keep * load(to + d);
    store(to + d, total);
  }
}

// out[i] = scale * exp(sign * (x[i] - reference)), with the exponent reduced in double: a large float
// exponent would give the weight a relative error of its own size times 2^-24. The loop vectorises.
TESSERA_INLINE void exp_differences(const double* x, double sign, double reference, float scale, float* out,
                                    int64_t count) {
  const double magic = 6755399441055744.0;  // 1.5 * 2^52
  for (int64_t i = 0; i < count; ++i) {
    double y = sign * (x[i] - reference);
    const bool vanishes = y < -87.3;
    y = y < -88 ? -88 : y;
    y = y > 89 ? 89 : y;
    const double n = (y * 1.4426950408889634 + magic) - magic;
    const float r = (float)(y - n * 0.6931471805599453);
    float p = r * 1.392617612e-3f + 8.363173075e-3f;
    p = p * r + 4.166655466e-2f;
    p = p * r + 1.666657703e-1f;
    p = p * r + 0.5f;
    p = p * (r * r) + r + 1.0f;
    const int32_t whole = (int32_t)n, half = whole >> 1;
    const float a = __builtin_bit_cast(float, (half + 127) << 23);
    const float b = __builtin_bit_cast(float, (whole - half + 127) << 23);
    const float value = scale * (p * a * b);
    out[i] = vanishes ? 0.0f : value;
  }
}

// Reads the gates of a head in walking order.
[[maybe_unused]] static void read_gates(const Gates& igate, const Gates& fgate, const MlstmShape& s,
                                        int64_t item, const MlstmGateScratch& g) {
  int64_t i_stride, f_stride;
  const float* i_from = walk(igate, s, item, &i_stride);
  const float* f_from = walk(fgate, s, item, &f_stride);
  for (int64_t t = 0; t < s.tokens; ++t) {
    g.igate[t] = i_from[t * i_stride];
    g.fgate[t] = f_from[t * f_stride];
  }
  for (int64_t t = s.tokens; t < round_up16(s.tokens); ++t) g.fgate[t] = 0;
  for (int64_t t = 0; t < s.tokens; t += W) store(g.log_f + t, log_sigmoid(load(g.fgate + t)));
}

// Limit on the difference of M_t within a chunk: column factors stay below exp(24), row factors above
// exp(-24). That leaves room for the normaliser and for small gradients within the range of a float.
constexpr double kWidestChunk = 48;

// Returns the chunk from `start` on. *m is the state's stabiliser and *largest its token; both advance to the
// chunk's end. Fills the gate scratch for its tokens.
[[maybe_unused]] static MlstmChunk next_chunk(const MlstmGateScratch& g, const MlstmShape& s, int64_t start,
                                              double* m, int32_t* largest) {
  const double initial = *m;
  double log_f = 0, highest = initial, lowest = 0;
  int32_t at = *largest;
  const int64_t limit = s.tokens - start < s.chunk ? s.tokens : start + s.chunk;
  int64_t t = start;
  for (; t < limit; ++t) {
    const double next_log_f = log_f + g.log_f[t];
    const double column = g.igate[t] - next_log_f;
    const bool keeps = column <= highest || highest != highest;  // a NaN stays
    const double next = keeps ? highest : column;
    if (t == start)
      lowest = next;
    else if (!(next - lowest <= kWidestChunk))
      break;
    log_f = next_log_f;
    highest = next;
    at = keeps ? at : (int32_t)t;
    g.column_log[t] = column;
    g.row_log[t] = highest;
    g.m[t] = log_f + highest;
    g.largest[t] = at;
  }
  const double reference = 0.5 * (lowest + highest);
  const int64_t length = t - start;
  const float scale = 1 / __builtin_sqrtf((float)s.key_dim);
  exp_differences(g.column_log + start, 1, reference, 1, g.column + start, length);
  exp_differences(g.row_log + start, -1, reference, scale, g.row + start, length);
  MlstmChunk chunk = {start, length, 0, 0, 0};
  exp_differences(&initial, 1, highest, 1, &chunk.keep, 1);
  exp_differences(&initial, 1, reference, 1, &chunk.state_in, 1);
  exp_differences(&highest, -1, reference, 1, &chunk.state_out, 1);
  *m = log_f + highest;
  *largest = at;
  return chunk;
}

}  // namespace tessera::kernels::TESSERA_ISA
