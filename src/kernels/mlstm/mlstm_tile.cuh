// Pieces of the mLSTM's kernels on a GPU: chunks of tokens, their gates, products with a state.
//
// With log f = logsigmoid(fgate), F_t = sum of log f in the chunk, a_s = log i_s - F_s and the state's m:
//   M_t = max(m, max_(s<=t) a_s)
// is known before any product. The weight of token s in row t is exp(a_s - M_t). Between blocks of tokens it is
// a factor of the column times one of the row, both at most 1, so only the diagonal block takes exponentials.
#pragma once

#include "kernels/gpu/tile.h"

namespace tessera::kernels::gpu {

constexpr int kCellThreads = kTileThreads, kMostChunk = 256;  // tokens

// True if the kernels take a call's chunks, and its tensors' places in memory.
template <class Call>
bool fits(const Call& call) {
  constexpr int64_t kMostBlocks = 65535;  // of a grid's y and z
  return call.batch > 0 && call.tokens > 0 && call.batch * call.heads <= kMostBlocks &&
         call.chunk >= kTileRows && call.chunk <= kMostChunk && call.chunk % kTileRows == 0 &&
         vectors(call.k) && vectors(call.v) && vectors(call.c);
}

// out += A C for this warp's 16 rows of the tile A, which has kDim columns, and 8 kTiles columns of C in memory. `tile`
// takes 64 rows of C at a time; waits for all copies.
template <int kDim, int kTiles>
TESSERA_DEVICE void add_product(float (&out)[kTiles][4], const bf16* rows, bf16* tile, const bf16* c,
                                int64_t stride) {
  for (int d0 = 0; d0 < kDim; d0 += kTileRows) {
    load_tile<8 * kTiles>(tile, c + d0 * stride, stride, smaller(kTileRows, kDim - d0));
    commit_copies();
    wait_copies<0>();
    barrier();
    TESSERA_UNROLL for (int d = 0; d < kTileRows; d += 16) {
      if (d0 + d >= kDim) break;
      uint32_t a[4], b[4];
      fragment_a(a, rows, kDim + kTilePad, warp() * 16, d0 + d);
      TESSERA_UNROLL for (int n = 0; n < kTiles / 2; ++n) {
        fragment_b_transposed(b, tile, 8 * kTiles + kTilePad, d, 16 * n);
        multiply_add(out[2 * n], a, b[0], b[1]);
        multiply_add(out[2 * n + 1], a, b[2], b[3]);
      }
    }
    barrier();
  }
}
// Replaces the block's 256 values, two a thread, by their inclusive sums or maxima. `warps`: four floats.
template <bool kMax>
TESSERA_DEVICE void scan(float& x0, float& x1, float* warps) {
  const auto join = [](float a, float b) { return kMax ? fmaxf(a, b) : a + b; };
  x1 = join(x0, x1);
  float total = x1;
  TESSERA_UNROLL for (int distance = 1; distance < kLanes; distance *= 2) {
    const float other = shuffle_up(total, distance);
    if (lane() >= distance) total = join(total, other);
  }
  if (lane() == kLanes - 1) warps[warp()] = total;
  const float before_lane = shuffle_up(total, 1);
  barrier();
  float before = kMax ? -INFINITY : 0.0f;
  for (int w = 0; w < warp(); ++w) before = join(before, warps[w]);
  if (lane() > 0) before = join(before, before_lane);
  x0 = join(before, x0), x1 = join(before, x1);
  barrier();
}

// The gates of a chunk in shared memory, in base-2 logarithms; after its last token a_s = -infinity.
struct ChunkGates {
  float *a, *m, *column, *floor, *warps;  // a_s, M_t, exp(a_s - M at the end of s's tile), exp(-F_t - M_t)
  static constexpr int kBytes = 4 * (4 * kMostChunk + 8);

  explicit TESSERA_DEVICE ChunkGates(void* shared)
      : a((float*)shared),
        m(a + kMostChunk),
        column(m + kMostChunk),
        floor(column + kMostChunk),
        warps(floor + kMostChunk) {}

  // Fills all from `length` preactivations, `step` apart; `before` is the state's m or -infinity. Returns F at
  // the chunk's last token.
  TESSERA_DEVICE float fill(const float* igate, const float* fgate, int64_t step, int length,
                            float before) const {
    const int s = 2 * thread();
    float f0 = s < length ? log_sigmoid(fgate[step * s]) : 0;
    float f1 = s + 1 < length ? log_sigmoid(fgate[step * (s + 1)]) : 0;
    scan<false>(f0, f1, warps);
    const float a0 = s < length ? igate[step * s] - f0 : -INFINITY;
    const float a1 = s + 1 < length ? igate[step * (s + 1)] - f1 : -INFINITY;
    float m0 = a0, m1 = a1;
    scan<true>(m0, m1, warps);
    m0 = fmaxf(m0, before), m1 = fmaxf(m1, before);
    a[s] = a0 * kLog2e, a[s + 1] = a1 * kLog2e;
    m[s] = m0 * kLog2e, m[s + 1] = m1 * kLog2e;
    floor[s] = expf(-(f0 + m0)), floor[s + 1] = expf(-(f1 + m1));
    if (thread() == kCellThreads - 1) warps[4] = f1;
    barrier();
    for (int i = s; i < s + 2; ++i) column[i] = exp2_fast(a[i] - m[i | (kTileRows - 1)]);
    barrier();
    return warps[4];
  }
};

// Where a chunk of one head is in memory: token t of it is `step` x t tokens from the start.
struct ChunkPlace {
  int64_t batch, head, token, step;
  int length;

  template <class Call>
  TESSERA_DEVICE ChunkPlace(const Call& call, int64_t item, int64_t chunk) {
    const int64_t first = chunk * call.chunk, left = call.tokens - first;
    batch = item / call.heads, head = item % call.heads;
    step = call.reverse ? -1 : 1, token = call.reverse ? call.tokens - 1 - first : first;
    length = (int)(left < call.chunk ? left : call.chunk);
  }
  // The index of the first token's row in a (B,T,H,width) tensor, and of its number in a (B,H,T) one.
  template <class Call>
  TESSERA_DEVICE int64_t row(const Call& call, int64_t width) const {
    return ((batch * call.tokens + token) * call.heads + head) * width;
  }
  template <class Call>
  TESSERA_DEVICE int64_t gate(const Call& call) const {
    return (batch * call.heads + head) * call.tokens + token;
  }
};

}  // namespace tessera::kernels::gpu
