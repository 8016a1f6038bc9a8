// The mLSTM's states between chunks on a GPU: C, n and m before each chunk of a head, and after its last token.
//
// For a chunk with a_s, its F and M = max(m, max a) at its end:
//   C <- exp(m - M) C + sum_s exp(a_s - M) k_s v_s^T,   n likewise,   m <- F + M
// A block keeps 64 rows of C and a slice of its columns in registers, in float, and walks over the chunks. What
// the cell reads is rounded to bfloat16; the sum goes on unrounded.
#pragma once

#include "kernels/mlstm/mlstm_tile.cuh"

namespace tessera::kernels::gpu {

template <int kValue>
struct MlstmStatesKernel {
  using Call = MlstmStates;
  static constexpr int kThreads = kCellThreads, kTiles = kValue / 8;
  static constexpr int kKeyPitch = kTileRows + kTilePad, kValuePitch = kValue + kTilePad;
  static constexpr int kTileNumbers = 2 * kTileRows * (kKeyPitch + kValuePitch);
  static constexpr int kShared = 2 * kTileNumbers + ChunkGates::kBytes, kBlocks = 3;

  const Call& call;
  const int64_t item, first_row, first_column, state_size;
  const int rows;       // of C, at most 64
  bf16 *keys, *values;  // two tiles each
  ChunkGates gates;
  float c[kTiles][4] = {}, n = 0, m = -INFINITY;

  // Block x: 64 rows of C, y: a slice of its columns, z: a head of a sample.
  static TESSERA_DEVICE void run(const Call& call, char* shared, Block at) {
    MlstmStatesKernel(call, shared, at).compute();
  }

  TESSERA_DEVICE MlstmStatesKernel(const Call& k, char* shared, Block at)
      : call(k),
        item(at.z),
        first_row(at.x * kTileRows),
        first_column(at.y * kValue),
        state_size(k.key_dim * k.value_dim),
        rows(smaller(kTileRows, (int)(k.key_dim - at.x * kTileRows))),
        keys((bf16*)shared),
        values(keys + 2 * kTileRows * kKeyPitch),
        gates(keys + kTileNumbers) {}

  TESSERA_DEVICE void compute() {
    start();
    const int64_t chunks = chunks_of(call.tokens, call.chunk);
    for (int64_t i = 0; i < chunks; ++i) {
      store_before(item * chunks + i);
      const ChunkPlace place(call, item, i);
      load(place, 0);
      commit_copies();
      const int64_t at = place.gate(call);
      const float f = gates.fill(call.igate + at, call.fgate + at, place.step, place.length, m);
      add(place, gates.m[kMostChunk - 1]);
      m = f + gates.m[kMostChunk - 1] / kLog2e;
      barrier();  // the gates and tiles are free
    }
    store_last();
  }

  // Calls visit(element of c, row of C, column of C) for this lane's numbers.
  template <class Visit>
  TESSERA_DEVICE void each(const Visit& visit) {
    TESSERA_UNROLL for (int tile = 0; tile < kTiles; ++tile) {
      TESSERA_UNROLL for (int i = 0; i < 4; i += 2) {
        const int row = warp() * 16 + (lane() >> 2) + 4 * i;
        if (row < rows)
          visit(c[tile][i], c[tile][i + 1], first_row + row, first_column + 8 * tile + 2 * (lane() & 3));
      }
    }
  }
  // This thread's row of n, kept by the blocks of the first slice.
  TESSERA_DEVICE bool keeps_n() const { return first_column == 0 && thread() < rows; }

  TESSERA_DEVICE void start() {
    if (!call.c0) return;
    const float* from = call.c0 + item * state_size;
    each([&](float& x, float& y, int64_t row, int64_t column) {
      x = from[row * call.value_dim + column], y = from[row * call.value_dim + column + 1];
    });
    if (keeps_n()) n = call.n0[item * call.key_dim + first_row + thread()];
    m = call.m0[item];
  }

  TESSERA_DEVICE void store_before(int64_t state) {
    uint16_t* to = call.c + state * state_size;
    each([&](float& x, float& y, int64_t row, int64_t column) {
      *(uint32_t*)(to + row * call.value_dim + column) = pack(x, y);
    });
    if (keeps_n()) call.n[state * call.key_dim + first_row + thread()] = n;
    if (first_row == 0 && first_column == 0 && thread() == 0) call.m[state] = m;
  }

  TESSERA_DEVICE void store_last() {
    if (!call.last_c) return;
    float* to = call.last_c + item * state_size;
    each([&](float& x, float& y, int64_t row, int64_t column) {
      to[row * call.value_dim + column] = x, to[row * call.value_dim + column + 1] = y;
    });
    if (keeps_n()) call.last_n[item * call.key_dim + first_row + thread()] = n;
    if (first_row == 0 && first_column == 0 && thread() == 0) call.last_m[item] = m;
  }

  // Starts the copy of tile j of the chunk's keys and values.
  TESSERA_DEVICE void load(const ChunkPlace& place, int j) {
    const int64_t step = place.step * call.heads, k_row = step * call.key_dim, v_row = step * call.value_dim;
    const bf16* k = (const bf16*)call.k + place.row(call, call.key_dim) + first_row;
    const bf16* v = (const bf16*)call.v + place.row(call, call.value_dim) + first_column;
    const int first = j * kTileRows, tokens = smaller(kTileRows, place.length - first);
    load_tile<kTileRows>(keys + (j & 1) * kTileRows * kKeyPitch, k + k_row * first, k_row, tokens, rows);
    load_tile<kValue>(values + (j & 1) * kTileRows * kValuePitch, v + v_row * first, v_row, tokens);
  }

  // Decays the state and adds the chunk's tokens, relative to M = `end`.
  TESSERA_DEVICE void add(const ChunkPlace& place, float end) {
    const float decay = exp2_fast(m * kLog2e - end);
    TESSERA_UNROLL for (int tile = 0; tile < kTiles; ++tile) {
      TESSERA_UNROLL for (int i = 0; i < 4; ++i) c[tile][i] *= decay;
    }
    n *= decay;
    for (int s = 2 * thread(); s < 2 * thread() + 2; ++s) gates.column[s] = exp2_fast(gates.a[s] - end);
    const int tiles = (place.length + kTileRows - 1) / kTileRows;
    for (int j = 0; j < tiles; ++j) {
      if (j + 1 < tiles) load(place, j + 1);
      commit_copies();
      wait_copies<1>();
      barrier();
      add_tile(gates.column + j * kTileRows, keys + (j & 1) * kTileRows * kKeyPitch,
               values + (j & 1) * kTileRows * kValuePitch);
      barrier();
    }
  }

  TESSERA_DEVICE void add_tile(const float* weight, const bf16* k, const bf16* v) {
    if (keeps_n())
      for (int s = 0; s < kTileRows; ++s) n += weight[s] * to_float(k[s * kKeyPitch + thread()]);
    TESSERA_UNROLL for (int s = 0; s < kTileRows; s += 16) {
      uint32_t a[4], b[4];
      fragment_a_transposed(a, k, kKeyPitch, s, warp() * 16);
      const float* w = weight + s + 2 * (lane() & 3);
      TESSERA_UNROLL for (int i = 0; i < 4; ++i) {
        const int later = i < 2 ? 0 : 8;  // tokens of the fragment's second half
        a[i] = pack(low(a[i]) * w[later], high(a[i]) * w[later + 1]);
      }
      TESSERA_UNROLL for (int tile = 0; tile < kTiles / 2; ++tile) {
        fragment_b_transposed(b, v, kValuePitch, s, 16 * tile);
        multiply_add(c[2 * tile], a, b[0], b[1]);
        multiply_add(c[2 * tile + 1], a, b[2], b[3]);
      }
    }
  }
};

}  // namespace tessera::kernels::gpu
