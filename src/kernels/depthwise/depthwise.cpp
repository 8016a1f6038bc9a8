// Depthwise convolution of 7 x 7 cells for one instruction set. Per-ISA.
//
// Processes W channels of up to 28 columns at a time. The seven rows that an output row needs are in a ring,
// as floats with a border of zeros, so each number of x is loaded and converted once. A row of taps and the
// sums of a block of outputs stay in registers: with 14 outputs, 27 loads serve 98 multiply-adds.
#include "kernels/depthwise/depthwise.h"

#include "kernels/rows.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

constexpr int K = kDepthwiseKernel, kReach = K / 2;
constexpr int kWide = W == 16 ? 14 : 7, kNarrow = 7;  // outputs at a time: AVX-512 has twice the registers

// One piece of work.
struct Piece {
  int64_t b, first, count, channel, lanes;  // columns [first, first + count), channels [channel, + lanes)
};

Piece piece_of(const DepthwiseConvolution& call, int64_t number) {
  const int64_t groups = (call.channels + W - 1) / W,
                chunks = (call.columns + kDepthwiseColumns - 1) / kDepthwiseColumns;
  Piece p;
  p.channel = number % groups * W;
  p.first = number / groups % chunks * kDepthwiseColumns;
  p.b = number / groups / chunks;
  p.count = call.columns - p.first < kDepthwiseColumns ? call.columns - p.first : kDepthwiseColumns;
  p.lanes = call.channels - p.channel < W ? call.channels - p.channel : W;
  return p;
}

// Fills a line of the ring: columns first - 3 … first + count + 3 of x, zeros outside the grid.
template <class Number>
TESSERA_INLINE void fill(const DepthwiseConvolution& call, const Piece& p, int64_t row, vf* line) {
  const int64_t begin = p.first - kReach, end = p.first + p.count + kReach;
  if (row < 0 || row >= call.rows) {
    for (int64_t i = 0; i < end - begin; ++i) line[i] = vf{};
    return;
  }
  const Number* x = static_cast<const Number*>(call.x) +
                    ((p.b * call.rows + row) * call.columns) * call.channels + p.channel;
  const int64_t from = begin < 0 ? 0 : begin, to = end < call.columns ? end : call.columns;
  for (int64_t c = begin; c < from; ++c) line[c - begin] = vf{};
  for (int64_t c = from; c < to; ++c) line[c - begin] = get(x + c * call.channels, p.lanes);
  for (int64_t c = to; c < end; ++c) line[c - begin] = vf{};
}

// Computes N adjacent outputs; the first reads entry `at` and the next six of every line.
template <int N>
TESSERA_INLINE void convolve_block(const vf* const (&lines)[K], int64_t at, const vf (&taps)[K * K], vf start,
                                   vf (&out)[N]) {
#pragma GCC unroll 14
  for (int n = 0; n < N; ++n) out[n] = start;
  for (int i = 0; i < K; ++i) {
    const vf* line = lines[i] + at;
#pragma GCC unroll 20
    for (int c = 0; c < N + K - 1; ++c) {
      const vf value = line[c];
#pragma GCC unroll 14
      for (int n = 0; n < N; ++n)
        if (c - n >= 0 && c - n < K) out[n] += value * taps[i * K + c - n];
    }
  }
}

template <int N, class Number>
TESSERA_INLINE void convolve_and_store(const vf* const (&lines)[K], int64_t at, const vf (&taps)[K * K],
                                       vf start, const Piece& p, Number* y, int64_t channels) {
  vf out[N];
  convolve_block<N>(lines, at, taps, start, out);
  const int64_t left = p.count - at;
#pragma GCC unroll 14
  for (int n = 0; n < N; ++n)
    if (n < left) put(y + (at + n) * channels, out[n], p.lanes);
}

template <class In, class Out>
void convolve_piece(const DepthwiseConvolution& call, const Piece& p) {
  vf taps[K * K], ring[K][kDepthwiseColumns + K - 1];
  for (int i = 0; i < K * K; ++i) taps[i] = get(call.weight + i * call.channels + p.channel, p.lanes);
  const vf start = call.bias ? get(call.bias + p.channel, p.lanes) : vf{};
  memset(ring, 0, sizeof ring);  // blocks read past the last column
  const auto line = [&](int64_t row) { return ring[(row + K) % K]; };
  for (int64_t row = -kReach; row < kReach; ++row) fill<In>(call, p, row, line(row));
  for (int64_t row = 0; row < call.rows; ++row) {
    fill<In>(call, p, row + kReach, line(row + kReach));
    const vf* lines[K];
    for (int i = 0; i < K; ++i) lines[i] = line(row + i - kReach);
    Out* y = static_cast<Out*>(call.y) + ((p.b * call.rows + row) * call.columns + p.first) * call.channels +
             p.channel;
    int64_t at = 0;
    for (; p.count - at > kNarrow; at += kWide)
      convolve_and_store<kWide>(lines, at, taps, start, p, y, call.channels);
    if (at < p.count) convolve_and_store<kNarrow>(lines, at, taps, start, p, y, call.channels);
  }
}

void convolve(const DepthwiseConvolution& call, int64_t begin, int64_t end) {
  for (int64_t number = begin; number < end; ++number) {
    const Piece p = piece_of(call, number);
    const bool wide_in = call.x_element == Element::f32, wide_out = call.y_element == Element::f32;
    if (wide_in && wide_out)
      convolve_piece<float, float>(call, p);
    else if (wide_in)
      convolve_piece<float, bf16>(call, p);
    else if (wide_out)
      convolve_piece<bf16, float>(call, p);
    else
      convolve_piece<bf16, bf16>(call, p);
  }
}

}  // namespace

extern const DepthwiseFunctions depthwise_convolution;
const DepthwiseFunctions depthwise_convolution = {W, convolve};

}  // namespace tessera::kernels::TESSERA_ISA
