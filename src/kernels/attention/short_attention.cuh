// Attention over few keys on a GPU: 64 queries of one head, against all keys.
//
//   out_t = sum_s p_ts f_ts v_s,   p_ts = exp(scale q_t . k_s) / sum_s,   f_ts = future_weight for s after t, else 1
// Tiles of keys and values are copied while the ones before are used. A row's maximum grows from tile to tile, and the sums
// so far are scaled to the new one (Dao et al. 2022, "FlashAttention", Algorithm 1).
#pragma once

#include "kernels/gpu/tile.h"

namespace tessera::kernels::gpu {

// A head of a sample, of all heads of all samples.
struct HeadPlace {
  const int sample, head;
  TESSERA_DEVICE HeadPlace(int item, int heads) : sample(item / heads), head(item % heads) {}
  template <class Pointer>
  TESSERA_DEVICE Pointer in(const HeadsOf<Pointer>& heads) const {
    return heads.data + sample * heads.sample + head * heads.head;
  }
};

// kWidth: the head dim, rounded up to a multiple of 16.
template <int kWidth>
struct ShortAttentionKernel {
  using Call = AttentionForward;
  static constexpr int kPitch = kWidth + kTilePad, kTile = kTileRows * kPitch, kTiles = kWidth / 8;
  static constexpr int kThreads = kTileThreads, kShared = 2 * 5 * kTile, kBlocks = kWidth <= 64 ? 4 : 2;

  const Call& call;
  const HeadPlace place;
  const int64_t first;            // first: query of the tile
  bf16 *queries, *keys, *values;  // one tile, two, two
  float most[2], sum[2] = {};     // for each of this lane's two rows; maxima of scores in base 2
  float out[kTiles][4] = {};

  // Block x: a tile of queries of a head of a sample, the tiles of a head after each other.
  static TESSERA_DEVICE void run(const Call& call, char* shared, Block at) {
    const int64_t tiles = (call.queries + kTileRows - 1) / kTileRows;
    ShortAttentionKernel(call, at.x / tiles, at.x % tiles * kTileRows, shared).compute();
  }

  TESSERA_DEVICE ShortAttentionKernel(const Call& c, int64_t i, int64_t start, char* shared)
      : call(c),
        place((int)i, (int)c.heads),
        first(start),
        queries((bf16*)shared),
        keys(queries + kTile),
        values(keys + 2 * kTile) {
    most[0] = most[1] = -INFINITY;
  }

  TESSERA_DEVICE void compute() {
    const bf16* q = (const bf16*)place.in(call.q);
    const int rows = smaller(kTileRows, (int)(call.queries - first)), dim = (int)call.dim;
    const int seen =
        call.causal ? smaller((int)call.keys, (int)(call.first_query + first) + rows) : (int)call.keys;
    load_tile<kWidth>(queries, q + first * call.q.token, call.q.token, rows, dim);
    load_keys(0);
    commit_copies();
    for (int j = 0; j * kTileRows < seen; ++j) {
      if ((j + 1) * kTileRows < seen) load_keys(j + 1);
      commit_copies();
      wait_copies<1>();
      barrier();
      const int count = smaller(kTileRows, seen - j * kTileRows);
      float p[8][4] = {};
      uint32_t weights[8][2];
      add_scores<kWidth>(p, queries, keys + (j & 1) * kTile, count);
      weigh(weights, p, j * kTileRows, seen);
      add_weighted(out, weights, values + (j & 1) * kTile, count);
      barrier();
    }
    store();
  }

  // Starts the copy of tile j of keys and values.
  TESSERA_DEVICE void load_keys(int j) {
    const bf16 *k = (const bf16*)place.in(call.k), *v = (const bf16*)place.in(call.v);
    const int start = j * kTileRows, rows = smaller(kTileRows, (int)call.keys - start), dim = (int)call.dim;
    load_tile<kWidth>(keys + (j & 1) * kTile, k + start * call.k.token, call.k.token, rows, dim);
    load_tile<kWidth>(values + (j & 1) * kTile, v + start * call.v.token, call.v.token, rows, dim);
  }

  TESSERA_DEVICE int64_t row_of(int half) const { return first + warp() * 16 + (lane() >> 2) + 8 * half; }

  // Turns the scores of the keys from `start` on into rounded weights relative to the rows' maxima so far.
  TESSERA_DEVICE void weigh(uint32_t (&weights)[8][2], const float (&p)[8][4], int start, int seen) {
    const float scale = call.scale * kLog2e;
    TESSERA_UNROLL for (int half = 0; half < 2; ++half) {
      const int last = (int)(call.first_query + row_of(half)),
                limit = call.causal ? smaller(seen, last + 1) : seen;
      const int column = start + 2 * (lane() & 3);
      float x[8][2], reached = most[half];
      TESSERA_UNROLL for (int n = 0; n < 8; ++n) {
        TESSERA_UNROLL for (int i = 0; i < 2; ++i) {
          x[n][i] = column + 8 * n + i < limit ? scale * p[n][2 * half + i] : -INFINITY;
          reached = fmaxf(reached, x[n][i]);
        }
      }
      reached = quad_max(reached);
      const float kept = exp2_fast(most[half] - reached);
      most[half] = reached, sum[half] *= kept;
      TESSERA_UNROLL for (int n = 0; n < kTiles; ++n) out[n][2 * half] *= kept, out[n][2 * half + 1] *= kept;
      TESSERA_UNROLL for (int n = 0; n < 8; ++n) {
        TESSERA_UNROLL for (int i = 0; i < 2; ++i) {
          x[n][i] = exp2_fast(x[n][i] - reached);
          sum[half] += x[n][i];
          if (column + 8 * n + i > last) x[n][i] *= call.future_weight;
        }
        weights[n][half] = pack(x[n][0], x[n][1]);
      }
    }
  }

  TESSERA_DEVICE void store() {
    TESSERA_UNROLL for (int half = 0; half < 2; ++half) {
      const int64_t row = row_of(half);
      const float total = quad_sum(sum[half]), factor = 1 / total;
      if (row >= call.queries) continue;
      uint16_t* to = place.in(call.out) + row * call.out.token;
      TESSERA_UNROLL for (int n = 0; n < kTiles; ++n) {
        const int c = 8 * n + 2 * (lane() & 3);
        if (c < call.dim)
          *(uint32_t*)(to + c) = pack(out[n][2 * half] * factor, out[n][2 * half + 1] * factor);
      }
      if (call.lse && (lane() & 3) == 0)
        call.lse[(place.sample * call.heads + place.head) * call.queries + row] = most[half] + log2f(total);
    }
  }
};

}  // namespace tessera::kernels::gpu
