// The mLSTM cell on a GPU: 64 tokens of one head, against all earlier tokens of their chunk and its first state.
//
//   h = (P v + r q C) / (max(|sum P + r q n|, exp(-F - M)) + eps),   P_ts = exp(a_s - M_t) q_t . k_s / sqrt(K)
// where r = exp(m - M) / sqrt(K); see mlstm_tile.cuh. P is rounded to bfloat16 before its product with v and before
// its sum: if one token has nearly all of a row's weight, h is its v, and the gradients cancel. After it, in registers,
// the norm of the head, skip and gate. Tiles of keys and values are copied while the ones before are used.
#pragma once

#include "kernels/mlstm/mlstm_tile.cuh"

namespace tessera::kernels::gpu {

// kKey: head dim of queries and keys; kValue: width of a slice of the values; kState: the chunk has a first
// state; kAfter: norm, skip and gate follow (then the slice is the whole head).
template <int kKey, int kValue, bool kState, bool kAfter>
struct MlstmCellKernel {
  using Call = MlstmCell;
  static constexpr int kKeyPitch = kKey + kTilePad, kValuePitch = kValue + kTilePad, kTiles = kValue / 8;
  static constexpr int kThreads = kCellThreads;
  static constexpr int kTileNumbers = kTileRows * (3 * kKeyPitch + 2 * kValuePitch);
  static constexpr int kShared = 2 * kTileNumbers + ChunkGates::kBytes;
  static constexpr int kBlocks = kKey <= 96 ? 3 : kKey <= 192 ? 2 : 1;

  const Call& call;
  const ChunkPlace place;
  const int64_t item, chunk, slice, step;  // step: between tokens
  const int tile;                          // of queries, in the chunk
  bf16 *queries, *keys, *values;           // one tile, two, two
  ChunkGates gates;
  int row0;  // this lane's rows are row0 and row0 + 8 of the chunk
  float m_row[2], sum[2] = {}, out[kTiles][4] = {};

  // Block x: a tile of queries, y: a slice of the values, z: a head of a sample.
  static TESSERA_DEVICE void run(const Call& call, char* shared, Block at) {
    const int64_t tiles = call.chunk / kTileRows;
    const ChunkPlace place(call, at.z, at.x / tiles);
    if ((at.x % tiles) * kTileRows >= place.length) return;  // the last chunk is shorter
    MlstmCellKernel(call, place, shared, at).compute();
  }

  TESSERA_DEVICE MlstmCellKernel(const Call& c, const ChunkPlace& p, char* shared, Block at)
      : call(c),
        place(p),
        item(at.z),
        chunk(at.x / (c.chunk / kTileRows)),
        slice(at.y),
        step(p.step * c.heads),
        tile((int)(at.x % (c.chunk / kTileRows))),
        queries((bf16*)shared),
        keys(queries + kTileRows * kKeyPitch),
        values(keys + 2 * kTileRows * kKeyPitch),
        gates(queries + kTileNumbers) {
    row0 = tile * kTileRows + warp() * 16 + (lane() >> 2);
  }

  TESSERA_DEVICE void compute() {
    const bf16* q = (const bf16*)call.q + place.row(call, kKey);
    const int first = tile * kTileRows;
    load_tile<kKey>(queries, q + step * kKey * first, step * kKey, smaller(kTileRows, place.length - first));
    load_keys(0);
    commit_copies();
    const int64_t at = place.gate(call);
    const float before = kState ? call.m[item * chunks_of(call.tokens, call.chunk) + chunk] : -INFINITY;
    gates.fill(call.igate + at, call.fgate + at, place.step, place.length, before);
    m_row[0] = gates.m[row0], m_row[1] = gates.m[row0 + 8];
    for (int j = 0; j <= tile; ++j) {
      if (j < tile) load_keys(j + 1);
      commit_copies();
      wait_copies<1>();
      barrier();
      float p[8][4] = {};
      uint32_t weights[8][2];
      add_scores<kKey>(p, queries, keys + (j & 1) * kTileRows * kKeyPitch);
      weigh(weights, p, j);
      add_weighted(out, weights, values + (j & 1) * kTileRows * kValuePitch);
      barrier();
    }
    if (kState) add_state(before);
    finish();
  }

  // Starts the copy of tile j of the chunk's keys and values.
  TESSERA_DEVICE void load_keys(int j) {
    const int64_t width = call.value_dim;
    const bf16* k = (const bf16*)call.k + place.row(call, kKey);
    const bf16* v = (const bf16*)call.v + place.row(call, width) + slice * kValue;
    const int first = j * kTileRows, rows = smaller(kTileRows, place.length - first);
    load_tile<kKey>(keys + (j & 1) * kTileRows * kKeyPitch, k + step * kKey * first, step * kKey, rows);
    load_tile<kValue>(values + (j & 1) * kTileRows * kValuePitch, v + step * width * first, step * width,
                      rows);
  }

  // Multiplies the scores of tile j by the weights of gates and mask, rounds, and adds their sums.
  TESSERA_DEVICE void weigh(uint32_t (&weights)[8][2], const float (&p)[8][4], int j) {
    const float scale = inverse_sqrt((float)kKey);
    const float reference = gates.m[j * kTileRows + kTileRows - 1];
    TESSERA_UNROLL for (int half = 0; half < 2; ++half) {
      const float of_row = scale * exp2_fast(reference - m_row[half]);
      const int row = row0 + 8 * half;
      TESSERA_UNROLL for (int n = 0; n < 8; ++n) {
        float x[2];
        TESSERA_UNROLL for (int i = 0; i < 2; ++i) {
          const int s = j * kTileRows + 8 * n + 2 * (lane() & 3) + i;
          float weight;
          if (j < tile)
            weight = gates.column[s] * of_row;
          else
            weight = s <= row ? scale * exp2_fast(gates.a[s] - m_row[half]) : 0;
          x[i] = weight == 0 ? 0 : p[n][2 * half + i] * weight;
        }
        weights[n][half] = pack(x[0], x[1]);
        sum[half] += low(weights[n][half]) + high(weights[n][half]);
      }
    }
  }

  // Adds q C and q n of the state before the chunk.
  TESSERA_DEVICE void add_state(float before) {
    const int64_t state = item * chunks_of(call.tokens, call.chunk) + chunk;
    const bf16* c = (const bf16*)call.c + state * kKey * call.value_dim + slice * kValue;
    float product[kTiles][4] = {};
    add_product<kKey>(product, queries, values, c, call.value_dim);
    const float* n = call.n + state * kKey;
    const bf16* q = queries + (warp() * 16 + (lane() >> 2)) * kKeyPitch;
    TESSERA_UNROLL for (int half = 0; half < 2; ++half) {
      const float of_row = inverse_sqrt((float)kKey) * exp2_fast(before * kLog2e - m_row[half]);
      float dot = 0;
      for (int d = lane() & 3; d < kKey; d += 4) dot += to_float(q[8 * half * kKeyPitch + d]) * n[d];
      sum[half] += of_row * dot;
      TESSERA_UNROLL for (int i = 0; i < kTiles; ++i) {
        out[i][2 * half] += of_row * product[i][2 * half];
        out[i][2 * half + 1] += of_row * product[i][2 * half + 1];
      }
    }
  }

  TESSERA_DEVICE void finish() {
    TESSERA_UNROLL for (int half = 0; half < 2; ++half) {
      const int row = row0 + 8 * half;
      const float r = quad_sum(sum[half]), least = gates.floor[row];
      const float normaliser = fmaxf(fabsf(r), least) + call.eps;
      float x[kTiles][2], mean = 0, factor = 0;
      TESSERA_UNROLL for (int n = 0; n < kTiles; ++n) {
        TESSERA_UNROLL for (int i = 0; i < 2; ++i) x[n][i] = out[n][2 * half + i] / normaliser;
      }
      if (kAfter) moments(x, mean, factor);
      if (row >= place.length) continue;
      const int64_t gate = place.gate(call) + place.step * row;
      if ((lane() & 3) == 0 && slice == 0 && call.normaliser) {
        call.normaliser[gate] = normaliser;
        call.row_sign[gate] = fabsf(r) > least ? (r > 0 ? 1.0f : -1.0f) : 0.0f;
      }
      store(x, mean, factor, place.row(call, call.value_dim) + step * call.value_dim * row + slice * kValue);
    }
  }

  TESSERA_DEVICE void moments(const float (&x)[kTiles][2], float& mean, float& factor) {
    float square = 0;
    TESSERA_UNROLL for (int n = 0; n < kTiles; ++n) mean += x[n][0] + x[n][1];
    mean = quad_sum(mean) / kValue;
    TESSERA_UNROLL for (int n = 0; n < kTiles; ++n) {
      TESSERA_UNROLL for (int i = 0; i < 2; ++i) square += (x[n][i] - mean) * (x[n][i] - mean);
    }
    factor = inverse_sqrt(quad_sum(square) / kValue + call.norm_eps);
  }

  // Stores a row's h, and y after norm, skip and gate.
  TESSERA_DEVICE void store(const float (&x)[kTiles][2], float mean, float factor, int64_t at) {
    TESSERA_UNROLL for (int n = 0; n < kTiles; ++n) {
      const int c = 8 * n + 2 * (lane() & 3);
      const uint32_t rounded = pack(x[n][0], x[n][1]);
      if (call.h) *(uint32_t*)(call.h + at + c) = rounded;
      if (call.h_rest)
        *(uint32_t*)(call.h_rest + at + c) = pack(x[n][0] - low(rounded), x[n][1] - high(rounded));
      if (!kAfter) continue;
      const uint32_t act = *(const uint32_t*)(call.act + at + c), z = *(const uint32_t*)(call.z + at + c);
      float y[2];
      TESSERA_UNROLL for (int i = 0; i < 2; ++i) {
        const int64_t channel = place.head * kValue + c + i;
        const float zi = i ? high(z) : low(z), bias = call.norm_bias ? call.norm_bias[channel] : 0;
        y[i] = (x[n][i] - mean) * factor * call.norm_weight[channel] + bias;
        y[i] = (y[i] + call.skip[channel] * (i ? high(act) : low(act))) * zi * sigmoid(zi);
      }
      *(uint32_t*)(call.y + at + c) = pack(y[0], y[1]);
    }
  }
};

}  // namespace tessera::kernels::gpu
