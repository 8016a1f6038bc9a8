// The mLSTM's states between chunks on a GPU, and their gradients.
//
// For a chunk with a_s, its F and M = max(m, max a) at its end:
//   C <- exp(m - M) C + sum_s exp(a_s - M) k_s v_s^T,   n likewise,   m <- F + M
// and from the last chunk to the first, with the numbers of mlstm_gradient.cuh:
//   dC <- exp(m - M) dC + sum_t r_t / N_t q_t dh_t^T,   dn <- exp(m - M) dn + sum_t r_t e_t q_t
// A block keeps 64 rows of the matrix and a slice of its columns in registers, in float, and walks over the chunks.
// Other kernels read it rounded to bfloat16; the sum goes on unrounded.
#pragma once

#include "kernels/mlstm/mlstm_tile.cuh"

namespace tessera::kernels::gpu {

// Two tensors (tokens, width) of a head for a sum of products of their rows, and the steps between tokens.
struct StateOperands {
  const bf16 *k, *v;
  int64_t k_step, v_step;
  int length;
};

// Returns a chunk's rows of two tensors (B,T,H,K) and (B,T,H,V).
template <class Call>
TESSERA_DEVICE StateOperands operands_of(const Call& call, const ChunkPlace& place, const uint16_t* k,
                                         const uint16_t* v) {
  const int64_t step = place.step * call.heads;
  return {(const bf16*)k + place.row(call, call.key_dim), (const bf16*)v + place.row(call, call.value_dim),
          step * call.key_dim, step * call.value_dim, place.length};
}

// c = sum_s weight_s k_s v_s^T, 64 rows and kValue columns of it, and n = sum_s n_weight_s k_s.
template <int kValue>
struct StateSum {
  static constexpr int kTiles = kValue / 8;
  static constexpr int kKeyPitch = kTileRows + kTilePad, kValuePitch = kValue + kTilePad;
  static constexpr int kNumbers = 2 * kTileRows * (kKeyPitch + kValuePitch);

  const int64_t key_dim, value_dim, first_row, first_column;
  const int rows;       // at most 64
  bf16 *keys, *values;  // two tiles each
  float c[kTiles][4] = {}, n = 0;

  // Block x: 64 rows of c, y: a slice of its columns.
  template <class Call>
  TESSERA_DEVICE StateSum(const Call& call, char* shared, Block at)
      : key_dim(call.key_dim),
        value_dim(call.value_dim),
        first_row(at.x * kTileRows),
        first_column(at.y * kValue),
        rows(smaller(kTileRows, (int)(call.key_dim - at.x * kTileRows))),
        keys((bf16*)shared),
        values(keys + 2 * kTileRows * kKeyPitch) {}

  // Calls visit(two elements of c, their offset in the whole matrix) for this lane's numbers.
  template <class Visit>
  TESSERA_DEVICE void each(const Visit& visit) {
    TESSERA_UNROLL for (int tile = 0; tile < kTiles; ++tile) {
      TESSERA_UNROLL for (int i = 0; i < 4; i += 2) {
        const int row = warp() * 16 + (lane() >> 2) + 4 * i;
        if (row < rows)
          visit(c[tile][i], c[tile][i + 1],
                (first_row + row) * value_dim + first_column + 8 * tile + 2 * (lane() & 3));
      }
    }
  }
  // True for the threads that have a row of n: in the blocks of the first slice.
  TESSERA_DEVICE bool keeps_n() const { return first_column == 0 && thread() < rows; }
  TESSERA_DEVICE bool is_first() const { return first_row == 0 && first_column == 0 && thread() == 0; }

  TESSERA_DEVICE void read(const float* from_c, const float* from_n) {
    each([&](float& x, float& y, int64_t at) { x = from_c[at], y = from_c[at + 1]; });
    if (keeps_n()) n = from_n[first_row + thread()];
  }
  TESSERA_DEVICE void write(float* to_c, float* to_n) {
    each([&](float& x, float& y, int64_t at) { to_c[at] = x, to_c[at + 1] = y; });
    if (keeps_n()) to_n[first_row + thread()] = n;
  }
  TESSERA_DEVICE void write_rounded(uint16_t* to_c, float* to_n) {
    each([&](float& x, float& y, int64_t at) { *(uint32_t*)(to_c + at) = pack(x, y); });
    if (keeps_n()) to_n[first_row + thread()] = n;
  }
  TESSERA_DEVICE void decay(float by) {
    TESSERA_UNROLL for (int tile = 0; tile < kTiles; ++tile) {
      TESSERA_UNROLL for (int i = 0; i < 4; ++i) c[tile][i] *= by;
    }
    n *= by;
  }

  // Starts the copy of tile j of the tokens.
  TESSERA_DEVICE void load(const StateOperands& of, int j) {
    const int first = j * kTileRows, tokens = smaller(kTileRows, of.length - first);
    load_tile<kTileRows>(keys + (j & 1) * kTileRows * kKeyPitch, of.k + of.k_step * first + first_row,
                         of.k_step, tokens, rows);
    load_tile<kValue>(values + (j & 1) * kTileRows * kValuePitch, of.v + of.v_step * first + first_column,
                      of.v_step, tokens);
    commit_copies();
  }

  // Adds all tokens; the copy of tile 0 was started. weight, n_weight: a number for each token.
  TESSERA_DEVICE void add(const StateOperands& of, const float* weight, const float* n_weight) {
    const int tiles = (of.length + kTileRows - 1) / kTileRows;
    for (int j = 0; j < tiles; ++j) {
      if (j + 1 < tiles)
        load(of, j + 1);
      else
        commit_copies();
      wait_copies<1>();
      barrier();
      add_tile(weight + j * kTileRows, n_weight + j * kTileRows, keys + (j & 1) * kTileRows * kKeyPitch,
               values + (j & 1) * kTileRows * kValuePitch);
      barrier();
    }
  }

  TESSERA_DEVICE void add_tile(const float* weight, const float* n_weight, const bf16* k, const bf16* v) {
    if (keeps_n())
      for (int s = 0; s < kTileRows; ++s) n += n_weight[s] * to_float(k[s * kKeyPitch + thread()]);
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

template <int kValue>
struct MlstmStatesKernel {
  using Call = MlstmStates;
  using Sum = StateSum<kValue>;
  static constexpr int kThreads = kCellThreads;
  static constexpr int kShared = 2 * Sum::kNumbers + ChunkGates::kBytes, kBlocks = 3;

  // Block x, y: a part of C, z: a head of a sample.
  static TESSERA_DEVICE void run(const Call& call, char* shared, Block at) {
    const int64_t item = at.z, chunks = chunks_of(call.tokens, call.chunk),
                  size = call.key_dim * call.value_dim;
    Sum sum(call, shared, at);
    const ChunkGates gates(shared + 2 * Sum::kNumbers);
    float m = -INFINITY;
    if (call.c0) sum.read(call.c0 + item * size, call.n0 + item * call.key_dim), m = call.m0[item];
    for (int64_t i = 0; i < chunks; ++i) {
      const int64_t state = item * chunks + i;
      sum.write_rounded(call.c + state * size, call.n + state * call.key_dim);
      if (sum.is_first()) call.m[state] = m;
      const ChunkPlace place(call, item, i);
      const StateOperands of = operands_of(call, place, call.k, call.v);
      sum.load(of, 0);
      const int64_t at_gate = place.gate(call);
      const float f = gates.fill(call.igate + at_gate, call.fgate + at_gate, place.step, place.length, m);
      const float end = gates.m[kMostChunk - 1];
      sum.decay(exp2_fast(m * kLog2e - end));
      for (int s = 2 * thread(); s < 2 * thread() + 2; ++s) gates.column[s] = exp2_fast(gates.a[s] - end);
      sum.add(of, gates.column, gates.column);
      m = f + end / kLog2e;
      barrier();  // the gates and tiles are free
    }
    if (!call.last_c) return;
    sum.write(call.last_c + item * size, call.last_n + item * call.key_dim);
    if (sum.is_first()) call.last_m[item] = m;
  }
};

// The gradients of the states after each chunk, and `crossing`: <C, dC> + <n, dn> there, the sum of the weights'
// gradients of all pairs of tokens with the chunk's end between them, in parts.
template <int kValue>
struct MlstmStateGradientsKernel {
  using Call = MlstmGradients;
  using Sum = StateSum<kValue>;
  static constexpr int kThreads = kCellThreads;
  static constexpr int kShared = 2 * Sum::kNumbers + ChunkGates::kBytes, kBlocks = 3;

  static TESSERA_DEVICE int64_t parts(const Call& call) {
    return (call.key_dim + kTileRows - 1) / kTileRows * (call.value_dim / kValue);
  }

  static TESSERA_DEVICE void run(const Call& call, char* shared, Block at) {
    const int64_t item = at.z, chunks = chunks_of(call.tokens, call.chunk),
                  size = call.key_dim * call.value_dim;
    Sum sum(call, shared, at);
    const ChunkGates gates(shared + 2 * Sum::kNumbers);
    for (int64_t i = chunks - 1; i >= 0; --i) {
      const int64_t state = item * chunks + i;
      sum.write_rounded(call.dc + state * size, call.dn + state * call.key_dim);
      if (i + 1 < chunks) {
        const float part = block_sum<kThreads / kLanes>(product(call, sum, state + 1), gates.warps);
        if (thread() == 0)
          call.crossing[state * parts(call) + at.x * (call.value_dim / kValue) + at.y] = part;
      }
      if (i == 0) return;
      const ChunkPlace place(call, item, i);
      const StateOperands of = operands_of(call, place, call.q, call.dh);
      sum.load(of, 0);
      const int64_t at_gate = place.gate(call);
      const float m = call.m[state] * kLog2e;
      gates.fill(call.igate + at_gate, call.fgate + at_gate, place.step, place.length, call.m[state]);
      sum.decay(exp2_fast(m - gates.m[kMostChunk - 1]));
      for (int t = 2 * thread(); t < 2 * thread() + 2; ++t) {
        const bool present = t < place.length;
        const float read = inverse_sqrt((float)call.key_dim) * exp2_fast(m - gates.m[t]);
        const int64_t gate = at_gate + place.step * t;
        gates.column[t] = present ? read / call.normaliser[gate] : 0.0f;
        gates.floor[t] = present ? read * call.row_gradient[gate] : 0.0f;
      }
      sum.add(of, gates.column, gates.floor);
      barrier();  // the gates and tiles are free
    }
  }

  // <C, dC> + <n, dn> with the roundings that the chunks on both sides see: their own sums must cancel it.
  static TESSERA_DEVICE float product(const Call& call, Sum& sum, int64_t state) {
    const uint16_t* c = call.c + state * call.key_dim * call.value_dim;
    float total = 0;
    sum.each([&](float& x, float& y, int64_t at) {
      const uint32_t pair = *(const uint32_t*)(c + at), gradient = pack(x, y);
      total += low(pair) * low(gradient) + high(pair) * high(gradient);
    });
    if (sum.keeps_n()) total += call.n[state * call.key_dim + sum.first_row + thread()] * sum.n;
    return total;
  }
};

}  // namespace tessera::kernels::gpu
