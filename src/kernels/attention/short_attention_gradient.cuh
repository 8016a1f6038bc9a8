// The gradients of attention over few keys on a GPU: one block for a head, which has all keys and values.
//
// With p and f as in short_attention.cuh, which are made again from the rows' sums, and D_t = dout_t . out_t:
//   dp_ts = f_ts dout_t . v_s          ds_ts = scale p_ts (dp_ts - D_t)
//   dq_t = sum_s ds_ts k_s             dk_s = sum_t ds_ts q_t             dv_s = sum_t p_ts f_ts dout_t
// A warp has 16 keys and their sums dk and dv in registers, and 32 queries at a time pass. Their ds comes to all warps through
// shared memory, which makes dq complete: no sum is made in parts, so equal calls give equal bits.
#pragma once

#include "kernels/attention/short_attention.cuh"

namespace tessera::kernels::gpu {

// kWidth: the head dim, rounded up to a multiple of 16; kWarps: warps, each with 16 keys.
template <int kWidth, int kWarps>
struct ShortAttentionGradientKernel {
  using Call = AttentionBackward;
  static constexpr int kQueries = 32, kPitch = kWidth + kTilePad, kTiles = kWidth / 8;
  static constexpr int kThreads = kWarps * kLanes, kKeys = 16 * kWarps, kScorePitch = kQueries + kTilePad;
  static constexpr int kKeyNumbers = kKeys * kPitch, kQueryNumbers = kQueries * kPitch;
  static constexpr int kNumbers = 2 * kKeyNumbers + 4 * kQueryNumbers + kKeys * kScorePitch;
  static constexpr int kShared = 2 * kNumbers + 4 * 2 * kQueries, kBlocks = kWarps <= 4 ? 2 : 1;

  const Call& call;
  const AttentionForward& of;
  const HeadPlace place;
  bf16 *keys, *values, *queries, *outs,
      *scores;        // queries and gradients of out: two tiles each; ds as [key][query]
  float *lse, *dots;  // each query's sum in base 2, and D_t
  float dk[kTiles][4] = {}, dv[kTiles][4] = {};

  // Block x: a head of a sample.
  static TESSERA_DEVICE void run(const Call& call, char* shared, Block at) {
    ShortAttentionGradientKernel(call, at.x, shared).compute();
  }

  TESSERA_DEVICE ShortAttentionGradientKernel(const Call& c, int64_t i, char* shared)
      : call(c),
        of(c.of),
        place((int)i, (int)c.of.heads),
        keys((bf16*)shared),
        values(keys + kKeyNumbers),
        queries(values + kKeyNumbers),
        outs(queries + 2 * kQueryNumbers),
        scores(outs + 2 * kQueryNumbers),
        lse((float*)(scores + kKeys * kScorePitch)),
        dots(lse + kQueries) {}

  TESSERA_DEVICE void compute() {
    const bf16 *k = (const bf16*)place.in(of.k), *v = (const bf16*)place.in(of.v);
    const int count = (int)of.keys, dim = (int)of.dim;
    load_rows<kWidth, kKeys, kThreads>(keys, k, of.k.token, count, dim);
    load_rows<kWidth, kKeys, kThreads>(values, v, of.v.token, count, dim);
    load_queries(0, 0);
    int buffer = 0;
    for (int first = 0; first < of.queries; first += kQueries, buffer ^= 1) {
      fill_rows(first);
      wait_copies<0>();
      barrier();
      if (first + kQueries < of.queries) load_queries(first + kQueries, buffer ^ 1);
      TESSERA_ROLLED for (int row = 0; row < kQueries; row += 16) {
        const int at = buffer * kQueryNumbers + row * kPitch;
        add_keys(first, row, queries + at, outs + at);
      }
      barrier();
      make_dq(first);
    }
    const int row = 16 * warp() + (lane() >> 2);
    store(call.dk, row, count, dk, 0, of.scale);
    store(call.dv, row, count, dv, 0, 1);
  }

  // Starts the copy of 32 queries and of the gradients of their out.
  TESSERA_DEVICE void load_queries(int first, int buffer) {
    const bf16* q = (const bf16*)place.in(of.q);
    const bf16* dout = (const bf16*)place.in(call.dout);
    const int rows = smaller(kQueries, (int)of.queries - first), dim = (int)of.dim;
    load_rows<kWidth, kQueries, kThreads>(queries + buffer * kQueryNumbers, q + first * of.q.token,
                                          of.q.token, rows, dim);
    load_rows<kWidth, kQueries, kThreads>(outs + buffer * kQueryNumbers, dout + first * call.dout.token,
                                          call.dout.token, rows, dim);
    commit_copies();
  }

  // Fills lse and dots of 32 queries, eight lanes for each.
  TESSERA_DEVICE void fill_rows(int first) {
    const uint16_t* out = place.in(of.out);
    const uint16_t* dout = place.in(call.dout);
    TESSERA_ROLLED for (int r = 4 * warp() + (lane() >> 3); r < kQueries; r += 4 * kWarps) {
      const int row = first + r;
      float dot = 0;
      for (int c = 8 * (lane() & 7); c < of.dim && row < of.queries; c += 64) {
        float x[8], dx[8];
        load8(x, out, Element::bf16, row * of.out.token + c);
        load8(dx, dout, Element::bf16, row * call.dout.token + c);
        TESSERA_UNROLL for (int i = 0; i < 8; ++i) dot += x[i] * dx[i];
      }
      dot += shuffle_xor(dot, 1), dot += shuffle_xor(dot, 2), dot += shuffle_xor(dot, 4);
      if ((lane() & 7) > 0) continue;
      lse[r] = row < of.queries ? of.lse[(place.sample * of.heads + place.head) * of.queries + row]
                                : INFINITY;  // no weight
      dots[r] = dot;
    }
  }

  // Adds 16 queries to dk and dv of this warp's keys, and stores their ds without the scale. They are rows `row` … of the tile
  // that starts with query `first`.
  TESSERA_DEVICE void add_keys(int first, int row, const bf16* q, const bf16* dout) {
    float p[2][4] = {}, dp[2][4] = {};
    uint32_t weights[2][2], changes[2][2];
    add_scores<kWidth>(p, keys, q);
    add_scores<kWidth>(dp, values, dout);
    TESSERA_UNROLL for (int half = 0; half < 2; ++half) {
      const int key = 16 * warp() + (lane() >> 2) + 8 * half;
      TESSERA_UNROLL for (int n = 0; n < 2; ++n) {
        float weight[2], change[2];
        const int r = row + 8 * n + 2 * (lane() & 3);
        TESSERA_UNROLL for (int i = 0; i < 2; ++i) {
          const bool later = key > (int)of.first_query + first + r + i;
          const float factor = later ? of.future_weight : 1.0f;
          const bool seen = key < of.keys && !(later && of.causal);
          const float x = seen ? exp2_fast(of.scale * kLog2e * p[n][2 * half + i] - lse[r + i]) : 0.0f;
          weight[i] = x * factor;
          change[i] = x * (factor * dp[n][2 * half + i] - dots[r + i]);
        }
        weights[n][half] = pack(weight[0], weight[1]);
        changes[n][half] = pack(change[0], change[1]);
        *(uint32_t*)(scores + key * kScorePitch + r) = changes[n][half];
      }
    }
    add_weighted(dv, weights, dout);
    add_weighted(dk, changes, q);
  }

  // dq of 32 queries: a warp at a time makes 16 rows and 16 columns of it.
  TESSERA_DEVICE void make_dq(int first) {
    const int groups = ((int)of.keys + 15) / 16;
    for (int part = warp(); part < kQueries / 16 * (kWidth / 16); part += kWarps) {
      const int row = part % (kQueries / 16) * 16, column = part / (kQueries / 16) * 16;
      float sums[2][4] = {};
      TESSERA_ROLLED for (int g = 0; g < groups; ++g) {
        uint32_t a[4], b[4];
        fragment_a_transposed(a, scores, kScorePitch, 16 * g, row);
        fragment_b_transposed(b, keys, kPitch, 16 * g, column);
        multiply_add(sums[0], a, b[0], b[1]);
        multiply_add(sums[1], a, b[2], b[3]);
      }
      store(call.dq, first + row + (lane() >> 2), (int)of.queries, sums, column, of.scale);
    }
  }

  // Stores this lane's numbers of two rows, from a column on.
  template <int kCount>
  TESSERA_DEVICE void store(const HeadsOf<uint16_t*>& to, int row, int rows, const float (&x)[kCount][4],
                            int column, float factor) {
    TESSERA_UNROLL for (int half = 0; half < 2; ++half) {
      if (row + 8 * half >= rows) break;
      uint16_t* at = place.in(to) + (row + 8 * half) * to.token;
      TESSERA_UNROLL for (int n = 0; n < kCount; ++n) {
        const int c = column + 8 * n + 2 * (lane() & 3);
        if (c < of.dim) *(uint32_t*)(at + c) = pack(x[n][2 * half] * factor, x[n][2 * half + 1] * factor);
      }
    }
  }
};

}  // namespace tessera::kernels::gpu
