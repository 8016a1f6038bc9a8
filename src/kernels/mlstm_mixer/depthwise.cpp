// Depthwise convolution fused with bias and SiLU; contract in parts.h. Built once per instruction set.
//
// Processes W channels at a time: their taps stay in registers across the tokens. Four outputs of a row are
// computed together, so each loaded token serves up to four of them. With NX = 4 and a 3 x 3 kernel, 18 loads
// serve 36 multiply-adds.
#include "kernels/mlstm_mixer/parts_isa.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

constexpr int NX = 4;

// The kernel applied to the grid: taps in order of rows and columns.
struct Stencil {
  const DepthwiseShape& shape;
  bool flipped;       // taps are read from the last to the first
  int64_t top, left;  // offset of the first tap: rows above and columns to the left of the output
  int64_t tap(int64_t i, int64_t j) const {
    const int64_t at = i * shape.kernel_columns + j;
    return flipped ? shape.kernel_rows * shape.kernel_columns - 1 - at : at;
  }
};

Stencil stencil(const DepthwiseShape& s, bool flipped) {
  if (!flipped) return {s, false, s.pad_top, s.pad_left};
  return {s, true, s.kernel_rows - 1 - s.pad_top, s.kernel_columns - 1 - s.pad_left};
}

// W channels, or fewer at the end.
struct Group {
  int64_t channel, lanes;
};
template <bool whole, class Number>
TESSERA_INLINE vf get(const Number* from, const Group& g) {
  return whole ? load(from) : load_part(from, g.lanes);
}
template <bool whole, class Number>
TESSERA_INLINE void put(Number* to, vf value, const Group& g) {
  if (whole)
    store(to, value);
  else
    store_part(to, value, g.lanes);
}

// Tokens [first, last) of row `row` of the grid of sample `b`.
struct Span {
  int64_t b, row, first, last;
};

// Calls body(span) for the pieces of rows in tokens [begin, end) of all samples.
template <class Body>
TESSERA_INLINE void for_each_span(const DepthwiseShape& s, int64_t begin, int64_t end, Body body) {
  const int64_t tokens = s.rows * s.columns;
  for (int64_t at = begin; at < end;) {
    const int64_t b = at / tokens, row = at % tokens / s.columns, first = at % s.columns;
    const int64_t count = s.columns - first < end - at ? s.columns - first : end - at;
    body(Span{b, row, first, first + count});
    at += count;
  }
}

// KH, KW: the kernel's size, or 0, 0 if it is only known at run time; then taps are read from memory.
template <int KH, int KW>
struct Taps {
  vf values[KH * KW > 0 ? KH* KW : 1];
};

template <int KH, int KW, bool whole>
TESSERA_INLINE Taps<KH, KW> load_taps(const Stencil& st, const float* taps, const Group& g) {
  Taps<KH, KW> t = {};
  if constexpr (KH > 0) {
#pragma GCC unroll 16
    for (int i = 0; i < KH * KW; ++i)
      t.values[i] = get<whole>(taps + st.tap(i / KW, i % KW) * st.shape.channels + g.channel, g);
  }
  return t;
}

// Computes outputs column … column+count-1 of a span's row from the rows of x that they need. Row 0 of x is
// token x_first.
template <int KH, int KW, bool whole, class Number>
TESSERA_INLINE void convolve_block(const Stencil& st, const Number* x, int64_t x_token, int64_t x_first,
                                   const float* taps, const Taps<KH, KW>& held, vf start, int64_t out_row,
                                   int64_t column, int64_t count, const Group& g, vf (&out)[NX]) {
  const DepthwiseShape& s = st.shape;
  const int64_t kernel_rows = KH ? KH : s.kernel_rows, kernel_columns = KW ? KW : s.kernel_columns;
  const int64_t last = column + count + kernel_columns - 1 - st.left,
                limit = last < s.columns ? last : s.columns;
#pragma GCC unroll 4
  for (int n = 0; n < NX; ++n) out[n] = start;
#pragma GCC unroll 3
  for (int64_t i = 0; i < kernel_rows; ++i) {
    const int64_t row = out_row + i - st.top;
    if (row < 0 || row >= s.rows) continue;
    const int64_t line = row * s.columns - x_first;
#pragma GCC unroll 7
    for (int64_t c = 0; c < kernel_columns + NX - 1; ++c) {
      const int64_t at = column + c - st.left;
      if (at < 0 || at >= limit) continue;
      const vf value = get<whole>(x + (line + at) * x_token + g.channel, g);
#pragma GCC unroll 4
      for (int n = 0; n < NX; ++n) {
        const int64_t j = c - n;
        if (j < 0 || j >= kernel_columns) continue;
        if constexpr (KH > 0)
          out[n] += value * held.values[i * KW + j];
        else
          out[n] += value * get<whole>(taps + st.tap(i, j) * s.channels + g.channel, g);
      }
    }
  }
}

// Three rows of the grid with a border of zeros, so a 3 x 3 kernel reads from the first-level cache and needs
// no edge checks. (In a tensor as wide as the layer, a column of tokens maps to few sets of the cache.)
template <bool whole, class Number>
class RowRing {
 public:
  static constexpr int64_t kColumns = 56;  // outputs of a row at a time
  RowRing(const DepthwiseShape& s, const Number* x, int64_t x_token, int64_t x_first, const Group& g)
      : s_(s), x_(x + g.channel - x_first * x_token), token_(x_token), g_(g) {}
  // Loads the rows above, at and below outputs [first, last) of row `row`; entry 0 is column `first` - 1.
  void move_to(int64_t row, int64_t first, int64_t last) {
    const bool next = row == row_ + 1 && first == first_ && last == last_;
    row_ = row, first_ = first, last_ = last;
    for (int64_t i = next ? 1 : -1; i <= 1; ++i) fill(row + i);
  }
  const vf* above() const { return line(row_ - 1); }
  const vf* at() const { return line(row_); }
  const vf* below() const { return line(row_ + 1); }

 private:
  vf* line(int64_t row) { return lines_[(row + 3) % 3]; }
  const vf* line(int64_t row) const { return lines_[(row + 3) % 3]; }
  void fill(int64_t row) {
    vf* to = line(row);
    const int64_t count = last_ - first_ + 2;
    if (row < 0 || row >= s_.rows) {
      for (int64_t i = 0; i < count; ++i) to[i] = vf{};
      return;
    }
    const Number* from = x_ + (row * s_.columns + first_ - 1) * token_;
    const int64_t ahead = row + 1 < s_.rows ? s_.columns * token_ : 0;
    to[0] = first_ > 0 ? get<whole>(from, g_) : vf{};
    for (int64_t i = 1; i < count - 1; ++i) {
      __builtin_prefetch(from + i * token_ + ahead);
      to[i] = get<whole>(from + i * token_, g_);
    }
    to[count - 1] = last_ < s_.columns ? get<whole>(from + (count - 1) * token_, g_) : vf{};
  }

  const DepthwiseShape& s_;
  const Number* x_;  // at token 0
  int64_t token_;
  Group g_;
  int64_t row_ = -9, first_ = 0, last_ = 0;
  vf lines_[3][kColumns + 2];
};

// Computes outputs column … column+N-1, counted from the ring's first.
template <int N>
TESSERA_INLINE void convolve_ring(const vf* const (&lines)[3], const Taps<3, 3>& taps, vf start,
                                  int64_t column, vf (&out)[N]) {
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) out[n] = start;
#pragma GCC unroll 3
  for (int i = 0; i < 3; ++i)
#pragma GCC unroll 10
    for (int c = 0; c < N + 2; ++c) {
      const vf value = lines[i][column + c];
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n)
        if (c - n >= 0 && c - n < 3) out[n] += value * taps.values[i * 3 + c - n];
    }
}

template <bool whole, class Number, class Finish>
TESSERA_INLINE void convolve_3x3(const Taps<3, 3>& taps, vf start, int64_t columns, const Span& span,
                                 RowRing<whole, Number>& ring, Finish finish) {
  const int64_t token = span.row * columns;
  for (int64_t first = span.first; first < span.last; first += RowRing<whole, Number>::kColumns) {
    const int64_t left = span.last - first,
                  count = left < RowRing<whole, Number>::kColumns ? left : RowRing<whole, Number>::kColumns;
    ring.move_to(span.row, first, first + count);
    const vf* const lines[3] = {ring.above(), ring.at(), ring.below()};
    int64_t column = 0;
    const auto block = [&]<int N>(vf(&out)[N]) __attribute__((always_inline)) {
      convolve_ring<N>(lines, taps, start, column, out);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) finish(span.b, token + first + column + n, out[n]);
      column += N;
    };
    while (count - column >= 7) {
      vf out[7];
      block(out);
    }
    while (count - column >= 4) {
      vf out[4];
      block(out);
    }
    while (count - column >= 1) {
      vf out[1];
      block(out);
    }
  }
}

template <int KH, int KW, bool whole, class Number, class Finish>
TESSERA_INLINE void convolve(const Stencil& st, const TokenView<const Number*>& x, int64_t x_first,
                             const float* taps, const float* bias, int64_t begin, int64_t end, const Group& g,
                             Finish finish) {
  const vf start = bias ? get<whole>(bias + g.channel, g) : vf{};
  const Taps<KH, KW> held = load_taps<KH, KW, whole>(st, taps, g);
  if constexpr (KH == 3 && KW == 3) {
    if (st.top == 1 && st.left == 1) {
      const int64_t tokens = st.shape.rows * st.shape.columns, b = begin / tokens;
      RowRing<whole, Number> ring(st.shape, x.data + b * x.batch, x.token, x_first, g);
      return for_each_span(
          st.shape, begin, end, [&](const Span& span) __attribute__((always_inline)) {
            convolve_3x3<whole, Number>(held, start, st.shape.columns, span, ring, finish);
          });
    }
  }
  for_each_span(
      st.shape, begin, end, [&](const Span& span) __attribute__((always_inline)) {
        for (int64_t column = span.first; column < span.last; column += NX) {
          const int64_t count = span.last - column < NX ? span.last - column : NX;
          vf out[NX];
          convolve_block<KH, KW, whole>(st, x.data + span.b * x.batch, x.token, x_first, taps, held, start,
                                        span.row, column, count, g, out);
#pragma GCC unroll 4
          for (int n = 0; n < NX; ++n)
            if (n < count) finish(span.b, span.row * st.shape.columns + column + n, out[n]);
        }
      });
}

// The coarse form is exact enough for bfloat16.
TESSERA_INLINE vf silu_for(const float*, vf x) { return silu(x); }
TESSERA_INLINE vf silu_for(const bf16*, vf x) { return silu_coarse(x); }

// Rows in the caller's storage type: x, and forward's out or backward's dx.
template <class Number>
struct InAndOut {
  TokenView<const Number*> x;
  TokenView<Number*> out;
};

template <int KH, int KW, bool whole, class Number>
void forward_group(const DepthwiseForward& call, const InAndOut<Number>& rows, int64_t begin, int64_t end,
                   const Group& g) {
  const Stencil st = stencil(call.shape, call.shape.reverse);
  const TokenView<Number*>& out = rows.out;
  convolve<KH, KW, whole>(
      st, rows.x, call.x_first, call.taps, call.bias, begin, end,
      g, [&](int64_t b, int64_t at, vf value) __attribute__((always_inline)) {
        const int64_t token = at - call.out_first;
        if (call.pre.data)
          put<whole>(call.pre.data + b * call.pre.batch + token * call.pre.token + g.channel, value, g);
        if (out.data)
          put<whole>(out.data + b * out.batch + token * out.token + g.channel, silu_for(out.data, value), g);
      });
}

// The gradient of x is dpre convolved with the flipped kernel.
template <int KH, int KW, bool whole, class Number>
void input_gradient_group(const DepthwiseBackward& call, const InAndOut<Number>& rows, int64_t begin,
                          int64_t end, const Group& g) {
  const Stencil st = stencil(call.shape, !call.shape.reverse);
  convolve<KH, KW, whole>(
      st, call.dpre, 0, call.taps, nullptr, begin, end,
      g, [&](int64_t b, int64_t token, vf value) __attribute__((always_inline)) {
        if (call.add.data)
          value += get<whole>(call.add.data + b * call.add.batch + token * call.add.token + g.channel, g);
        put<whole>(rows.out.data + b * rows.out.batch + token * rows.out.token + g.channel, value, g);
      });
}

template <int KH, int KW, bool whole, class Number>
void tap_gradient_group(const DepthwiseBackward& call, const TokenView<const Number*>& x_rows, int64_t begin,
                        int64_t end, const Group& g) {
  const DepthwiseShape& s = call.shape;
  const Stencil st = stencil(s, s.reverse);
  vf sums[KH * KW], total = {};
#pragma GCC unroll 16
  for (int i = 0; i < KH * KW; ++i) sums[i] = vf{};
  for_each_span(
      s, begin, end, [&](const Span& span) __attribute__((always_inline)) {
        const Number* x = x_rows.data + span.b * x_rows.batch + g.channel;
        const float* dpre =
            call.dpre.data + span.b * call.dpre.batch + span.row * s.columns * call.dpre.token + g.channel;
        for (int64_t column = span.first; column < span.last; column += NX) {
          vf d[NX];
#pragma GCC unroll 4
          for (int n = 0; n < NX; ++n) {
            d[n] = column + n < span.last ? get<whole>(dpre + (column + n) * call.dpre.token, g) : vf{};
            total += d[n];
          }
#pragma GCC unroll 3
          for (int i = 0; i < KH; ++i) {
            const int64_t row = span.row + i - st.top;
            if (row < 0 || row >= s.rows) continue;
            const Number* line = x + row * s.columns * x_rows.token;
#pragma GCC unroll 7
            for (int c = 0; c < KW + NX - 1; ++c) {
              const int64_t at = column + c - st.left;
              if (at < 0 || at >= s.columns) continue;
              const vf value = get<whole>(line + at * x_rows.token, g);
#pragma GCC unroll 4
              for (int n = 0; n < NX; ++n)
                if (c - n >= 0 && c - n < KW) sums[i * KW + c - n] += value * d[n];
            }
          }
        }
      });
#pragma GCC unroll 16
  for (int i = 0; i < KH * KW; ++i) {
    float* to = call.dtaps + st.tap(i / KW, i % KW) * s.channels + g.channel;
    put<whole>(to, get<whole>(to, g) + sums[i], g);
  }
  put<whole>(call.dbias + g.channel, get<whole>(call.dbias + g.channel, g) + total, g);
}

// A kernel of any size, one tap at a time.
template <bool whole, class Number>
void tap_gradient_any(const DepthwiseBackward& call, const TokenView<const Number*>& x_rows, int64_t begin,
                      int64_t end, const Group& g) {
  const DepthwiseShape& s = call.shape;
  const Stencil st = stencil(s, s.reverse);
  for (int64_t tap = 0; tap <= s.kernel_rows * s.kernel_columns; ++tap) {
    const bool is_bias = tap == s.kernel_rows * s.kernel_columns;
    const int64_t i = tap / s.kernel_columns, j = tap % s.kernel_columns;
    vf total = {};
    for_each_span(
        s, begin, end, [&](const Span& span) __attribute__((always_inline)) {
          const int64_t row = is_bias ? span.row : span.row + i - st.top;
          if (row < 0 || row >= s.rows) return;
          for (int64_t column = span.first; column < span.last; ++column) {
            const int64_t at = column + j - st.left;
            if (!is_bias && (at < 0 || at >= s.columns)) continue;
            const int64_t token = span.row * s.columns + column, source = row * s.columns + at;
            const vf d = get<whole>(
                call.dpre.data + span.b * call.dpre.batch + token * call.dpre.token + g.channel, g);
            total +=
                is_bias ? d
                        : d * get<whole>(
                                  x_rows.data + span.b * x_rows.batch + source * x_rows.token + g.channel, g);
          }
        });
    float* to = (is_bias ? call.dbias : call.dtaps + st.tap(i, j) * s.channels) + g.channel;
    put<whole>(to, get<whole>(to, g) + total, g);
  }
}

template <bool whole, class Number>
void forward_any(const DepthwiseForward& call, const InAndOut<Number>& rows, int64_t begin, int64_t end,
                 const Group& g) {
  const DepthwiseShape& s = call.shape;
  if (s.kernel_rows == 3 && s.kernel_columns == 3)
    forward_group<3, 3, whole>(call, rows, begin, end, g);
  else if (s.kernel_rows == 1 && s.kernel_columns == 3)
    forward_group<1, 3, whole>(call, rows, begin, end, g);
  else if (s.kernel_rows == 1 && s.kernel_columns == 4)
    forward_group<1, 4, whole>(call, rows, begin, end, g);
  else
    forward_group<0, 0, whole>(call, rows, begin, end, g);
}

template <int KH, int KW, bool whole, class Number>
void backward_group(const DepthwiseBackward& call, const InAndOut<Number>& rows, int64_t begin, int64_t end,
                    const Group& g) {
  input_gradient_group<KH, KW, whole>(call, rows, begin, end, g);
  if (call.dtaps) tap_gradient_group<KH, KW, whole>(call, rows.x, begin, end, g);
}

template <bool whole, class Number>
void backward_any(const DepthwiseBackward& call, const InAndOut<Number>& rows, int64_t begin, int64_t end,
                  const Group& g) {
  const DepthwiseShape& s = call.shape;
  if (s.kernel_rows == 3 && s.kernel_columns == 3)
    return backward_group<3, 3, whole>(call, rows, begin, end, g);
  if (s.kernel_rows == 1 && s.kernel_columns == 3)
    return backward_group<1, 3, whole>(call, rows, begin, end, g);
  if (s.kernel_rows == 1 && s.kernel_columns == 4)
    return backward_group<1, 4, whole>(call, rows, begin, end, g);
  input_gradient_group<0, 0, whole>(call, rows, begin, end, g);
  if (call.dtaps) tap_gradient_any<whole>(call, rows.x, begin, end, g);
}

// One sample at a time, so that all groups of its channels find it in the cache.
template <class Whole, class Part>
TESSERA_INLINE void over_groups(const DepthwiseShape& s, int64_t begin, int64_t end, Whole on_whole,
                                Part on_part) {
  const int64_t tokens = s.rows * s.columns;
  for (int64_t at = begin; at < end;) {
    const int64_t border = (at / tokens + 1) * tokens, stop = border < end ? border : end;
    for (int64_t c = 0; c < s.channels; c += W) {
      if (s.channels - c >= W)
        on_whole(at, stop, Group{c, W});
      else
        on_part(at, stop, Group{c, s.channels - c});
    }
    at = stop;
  }
}

template <class Number>
void forward_as(const DepthwiseForward& call, const InAndOut<Number>& rows, int64_t begin, int64_t end) {
  over_groups(
      call.shape, begin, end,
      [&](int64_t b, int64_t e, const Group& g) { forward_any<true>(call, rows, b, e, g); },
      [&](int64_t b, int64_t e, const Group& g) { forward_any<false>(call, rows, b, e, g); });
}
template <class Number>
void backward_as(const DepthwiseBackward& call, const InAndOut<Number>& rows, int64_t begin, int64_t end) {
  over_groups(
      call.shape, begin, end,
      [&](int64_t b, int64_t e, const Group& g) { backward_any<true>(call, rows, b, e, g); },
      [&](int64_t b, int64_t e, const Group& g) { backward_any<false>(call, rows, b, e, g); });
}

template <class Number>
InAndOut<Number> in_and_out(const TokenRows& x, const TokenRowsOut& out) {
  return {{(const Number*)x.data, x.batch, x.token}, {(Number*)out.data, out.batch, out.token}};
}

}  // namespace

void depthwise_forward(const DepthwiseForward& call, int64_t begin, int64_t end) {
  if (call.x.element == Element::bf16)
    forward_as(call, in_and_out<bf16>(call.x, call.out), begin, end);
  else
    forward_as(call, in_and_out<float>(call.x, call.out), begin, end);
}

void depthwise_backward(const DepthwiseBackward& call, int64_t begin, int64_t end) {
  if (call.x.element == Element::bf16)
    backward_as(call, in_and_out<bf16>(call.x, call.dx), begin, end);
  else
    backward_as(call, in_and_out<float>(call.x, call.dx), begin, end);
}

}  // namespace tessera::kernels::TESSERA_ISA
