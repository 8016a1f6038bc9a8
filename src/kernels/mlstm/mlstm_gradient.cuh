// The gradients of the mLSTM cell on a GPU.
//
// With w_ts = exp(a_s - M_t) / sqrt(K) for s <= t (mlstm_tile.cuh), r_t = exp(m - M_t) / sqrt(K), the normaliser N_t,
// and e_t the gradient of the row's sum, -sign_t (dh_t . h_t) / N_t:
//   S_ts = w_ts (dh_t . v_s / N_t + e_t)
//   dq_t = sum_s S_ts k_s                  + r_t (C dh_t / N_t + e_t n)
//   dk_s = sum_t S_ts q_t                  + exp(a_s - M_end) (dC v_s + dn)
//   dv_s = sum_t w_ts (q_t . k_s) dh_t / N_t + exp(a_s - M_end) dC^T k_s
//   digate_s = k_s . dk_s
//   dlogf_t  = the sum over t' >= t of q_t' . dq_t' - k_t' . dk_t'
// Each of dq, dk and dv is the cell's own form, tiles of rows against tiles of tokens, with other operands. The last
// two lines take the unrounded dq and dk. The sum over t' ends at the chunk: the rest of it is <C, dC> + <n, dn> there,
// so roundings do not add up over a long sequence. It has the rounding of C and dC, 2^-9 of each term, for all tokens
// of a chunk alike: if the terms cancel, dlogf is 1e-2 off. eps is taken as a constant, not as a multiple of exp(M).
#pragma once

#include "kernels/mlstm/mlstm_tile.cuh"

namespace tessera::kernels::gpu {

// Computes e_t, a warp for each row. If one token has nearly all of a row's weight, S is a small difference of dh . v
// and dh . h: h needs more bits than bfloat16 has.
struct MlstmRowGradientKernel {
  using Call = MlstmGradients;
  static constexpr int kThreads = 128, kShared = 0, kBlocks = 8;
  static constexpr int kAtOnce = kThreads / kLanes;

  static TESSERA_DEVICE void run(const Call& call, char*, Block at) {
    const int64_t row = at.x * kAtOnce + warp();  // of (B,T,H)
    if (row >= call.batch * call.tokens * call.heads) return;
    const int64_t head = row % call.heads, token = row / call.heads % call.tokens,
                  sample = row / call.heads / call.tokens;
    float dot = 0;
    for (int64_t d = 8 * lane(); d < call.value_dim; d += 8 * kLanes) {
      float h[8], rest[8], dh[8];
      load8(h, call.h, Element::bf16, row * call.value_dim + d);
      load8(rest, call.h_rest, Element::bf16, row * call.value_dim + d);
      load8(dh, call.dh, Element::bf16, row * call.value_dim + d);
      TESSERA_UNROLL for (int i = 0; i < 8; ++i) dot += (h[i] + rest[i]) * dh[i];
    }
    dot = warp_sum(dot);
    const int64_t gate = (sample * call.heads + head) * call.tokens + token;
    if (lane() == 0) call.row_gradient[gate] = -call.row_sign[gate] * dot / call.normaliser[gate];
  }
};

enum class MlstmInput { q, k, v };

// kDim: head dim; kSlice: columns of the gradient that a block computes; kState: the sequence has several chunks, or an
// initial state.
template <int kDim, int kSlice, MlstmInput kOf, bool kState>
struct MlstmGradientKernel {
  using Call = MlstmGradients;
  static constexpr int kPitch = kDim + kTilePad, kSlicePitch = kSlice + kTilePad, kTiles = kSlice / 8;
  static constexpr int kThreads = kCellThreads;
  static constexpr int kTileNumbers = kTileRows * (3 * kPitch + 2 * kSlicePitch);
  static constexpr int kShared = 2 * kTileNumbers + ChunkGates::kBytes + 3 * 4 * kMostChunk;
  static constexpr int kBlocks = kDim <= 96 && !kState ? 3 : kDim <= 192 ? 2 : 1;

  const Call& call;
  const ChunkPlace place;
  const int64_t item, slice, step;  // step: between tokens
  const int64_t state;              // the chunk's, of all
  const int tile;                   // of the gradient's rows, in the chunk
  bf16 *rows, *columns, *values;    // one tile, two, two
  ChunkGates gates;
  float *inverse, *row_gradient, *ahead;  // 1 / N_t, e_t, exp(M at the end of this tile - M_t)
  int row0;                               // this lane's rows are row0 and row0 + 8 of the chunk
  float out[kTiles][4] = {};

  // Block x: a tile of rows, y: a slice of the columns, z: a head of a sample.
  static TESSERA_DEVICE void run(const Call& call, char* shared, Block at) {
    const int64_t tiles = call.chunk / kTileRows;
    const ChunkPlace place(call, at.z, at.x / tiles);
    if ((at.x % tiles) * kTileRows >= place.length) return;  // the last chunk is shorter
    MlstmGradientKernel(call, place, shared, at).compute();
  }

  TESSERA_DEVICE MlstmGradientKernel(const Call& c, const ChunkPlace& p, char* shared, Block at)
      : call(c),
        place(p),
        item(at.z),
        slice(at.y),
        step(p.step * c.heads * kDim),
        state(at.z * chunks_of(c.tokens, c.chunk) + at.x / (c.chunk / kTileRows)),
        tile((int)(at.x % (c.chunk / kTileRows))),
        rows((bf16*)shared),
        columns(rows + kTileRows * kPitch),
        values(columns + 2 * kTileRows * kPitch),
        gates(rows + kTileNumbers),
        inverse((float*)(shared + 2 * kTileNumbers + ChunkGates::kBytes)),
        row_gradient(inverse + kMostChunk),
        ahead(row_gradient + kMostChunk) {
    row0 = tile * kTileRows + warp() * 16 + (lane() >> 2);
  }

  // The tensors of the scores' rows and columns, and of their product.
  TESSERA_DEVICE const bf16* of_rows() const {
    return (const bf16*)(kOf == MlstmInput::q ? call.dh : kOf == MlstmInput::k ? call.v : call.k);
  }
  TESSERA_DEVICE const bf16* of_columns() const {
    return (const bf16*)(kOf == MlstmInput::q ? call.v : kOf == MlstmInput::k ? call.dh : call.q);
  }
  TESSERA_DEVICE const bf16* of_values() const {
    return (const bf16*)(kOf == MlstmInput::q ? call.k : kOf == MlstmInput::k ? call.q : call.dh);
  }

  TESSERA_DEVICE void compute() {
    const int64_t base = place.row(call, kDim);
    const int first = tile * kTileRows;
    load_tile<kDim>(rows, of_rows() + base + step * first, step, smaller(kTileRows, place.length - first));
    commit_copies();
    fill();
    if (kState) add_state();
    // Queries take the tokens up to theirs, keys and values those from theirs.
    const int begin = kOf == MlstmInput::q ? 0 : tile;
    const int end = kOf == MlstmInput::q ? tile + 1 : (place.length + kTileRows - 1) / kTileRows;
    load_columns(begin, begin);
    for (int j = begin; j < end; ++j) {
      if (j + 1 < end)
        load_columns(j + 1, begin);
      else
        commit_copies();
      wait_copies<1>();
      barrier();
      const int buffer = (j - begin) & 1;
      float p[8][4] = {};
      uint32_t weights[8][2];
      add_scores<kDim>(p, rows, columns + buffer * kTileRows * kPitch);
      weigh(weights, p, j);
      add_weighted(out, weights, values + buffer * kTileRows * kSlicePitch);
      barrier();
    }
    store();
  }

  TESSERA_DEVICE void fill() {
    const int64_t at = place.gate(call);
    gates.fill(call.igate + at, call.fgate + at, place.step, place.length,
               kState ? call.m[state] : -INFINITY);
    const float reference = gates.m[tile * kTileRows + kTileRows - 1];
    for (int t = 2 * thread(); t < 2 * thread() + 2; ++t) {
      const int64_t gate = at + place.step * t;
      inverse[t] = t < place.length ? 1 / call.normaliser[gate] : 0;
      row_gradient[t] = t < place.length ? call.row_gradient[gate] : 0;
      ahead[t] = exp2_fast(fminf(reference - gates.m[t], 0.0f));
    }
    barrier();
  }

  // Starts the copy of tile j of the columns and values.
  TESSERA_DEVICE void load_columns(int j, int begin) {
    const int first = j * kTileRows, count = smaller(kTileRows, place.length - first),
              buffer = (j - begin) & 1;
    const int64_t at = place.row(call, kDim) + step * first;
    load_tile<kDim>(columns + buffer * kTileRows * kPitch, of_columns() + at, step, count);
    load_tile<kSlice>(values + buffer * kTileRows * kSlicePitch, of_values() + at + slice * kSlice, step,
                      count);
    commit_copies();
  }

  // Turns the products of tile j into weights of the gradient, rounded.
  TESSERA_DEVICE void weigh(uint32_t (&weights)[8][2], const float (&p)[8][4], int j) {
    const float scale = inverse_sqrt((float)kDim), reference = gates.m[j * kTileRows + kTileRows - 1];
    TESSERA_UNROLL for (int half = 0; half < 2; ++half) {
      const int row = row0 + 8 * half;
      const float of_row =
          kOf == MlstmInput::q ? scale * exp2_fast(reference - gates.m[row]) : gates.column[row];
      TESSERA_UNROLL for (int n = 0; n < 8; ++n) {
        float x[2];
        TESSERA_UNROLL for (int i = 0; i < 2; ++i) {
          const int column = j * kTileRows + 8 * n + 2 * (lane() & 3) + i;
          const int t = kOf == MlstmInput::q ? row : column, s = kOf == MlstmInput::q ? column : row;
          float weight;
          if (j == tile)
            weight = s <= t ? scale * exp2_fast(gates.a[s] - gates.m[t]) : 0;
          else
            weight = of_row * (kOf == MlstmInput::q ? gates.column[s] : scale * ahead[t]);
          const float score = p[n][2 * half + i] * inverse[t] + (kOf == MlstmInput::v ? 0 : row_gradient[t]);
          x[i] = weight == 0 ? 0 : weight * score;
        }
        weights[n][half] = pack(x[0], x[1]);
      }
    }
  }

  // The part of the state before the chunk, or of its gradient after the chunk. Before all others: it is scaled as a
  // whole.
  TESSERA_DEVICE void add_state() {
    const bf16* matrix = (const bf16*)(kOf == MlstmInput::q ? call.c : call.dc) + state * kDim * kDim;
    if (kOf == MlstmInput::v)
      add_transposed(matrix + slice * kSlice);
    else
      add_rows(matrix + slice * kSlice * kDim,
               (kOf == MlstmInput::q ? call.n : call.dn) + state * kDim + slice * kSlice);
  }
  // Returns the factor of a row in it.
  TESSERA_DEVICE float state_factor(int row) const {
    return kOf == MlstmInput::q ? inverse_sqrt((float)kDim) * exp2_fast(call.m[state] * kLog2e - gates.m[row])
                                : exp2_fast(gates.a[row] - gates.m[kMostChunk - 1]);
  }

  // out += rows C^T + n, for kSlice rows of C, 64 at a time.
  TESSERA_DEVICE void add_rows(const bf16* c, const float* n) {
    TESSERA_UNROLL for (int first = 0; first < kSlice; first += kTileRows) {
      load_tile<kDim>(columns, c + (int64_t)first * kDim, kDim, smaller(kTileRows, kSlice - first));
      commit_copies();
      wait_copies<0>();
      barrier();
      float p[8][4] = {};
      add_scores<kDim>(p, rows, columns);
      barrier();
      TESSERA_UNROLL for (int half = 0; half < 2; ++half) {
        const int row = row0 + 8 * half;
        const float factor = state_factor(row);
        const float of_matrix = kOf == MlstmInput::q ? factor * inverse[row] : factor;
        const float of_n = kOf == MlstmInput::q ? factor * row_gradient[row] : factor;
        TESSERA_UNROLL for (int i = 0; i < 8; ++i) {
          if (first / 8 + i >= kTiles) break;
          const float* at = n + first + 8 * i + 2 * (lane() & 3);
          out[first / 8 + i][2 * half] = of_matrix * p[i][2 * half] + of_n * at[0];
          out[first / 8 + i][2 * half + 1] = of_matrix * p[i][2 * half + 1] + of_n * at[1];
        }
      }
    }
  }

  // out += rows C, for kSlice columns of C.
  TESSERA_DEVICE void add_transposed(const bf16* c) {
    add_product<kDim>(out, rows, values, c, kDim);
    TESSERA_UNROLL for (int half = 0; half < 2; ++half) {
      const float factor = state_factor(row0 + 8 * half);
      TESSERA_UNROLL for (int i = 0; i < kTiles; ++i) out[i][2 * half] *= factor,
          out[i][2 * half + 1] *= factor;
    }
  }

  // Stores the gradient, and for the gates its product with the input.
  TESSERA_DEVICE void store() {
    uint16_t* to = kOf == MlstmInput::q ? call.dq : kOf == MlstmInput::k ? call.dk : call.dv;
    const uint16_t* input = kOf == MlstmInput::q ? call.q : call.k;
    TESSERA_UNROLL for (int half = 0; half < 2; ++half) {
      const int row = row0 + 8 * half;
      const bool present = row < place.length;
      const int64_t at = place.row(call, kDim) + step * row + slice * kSlice + 2 * (lane() & 3);
      float dot = 0;
      TESSERA_UNROLL for (int n = 0; n < kTiles; ++n) {
        if (!present) break;
        const float x = out[n][2 * half], y = out[n][2 * half + 1];
        *(uint32_t*)(to + at + 8 * n) = pack(x, y);
        if (kOf == MlstmInput::v) continue;
        const uint32_t pair = *(const uint32_t*)(input + at + 8 * n);
        dot += low(pair) * x + high(pair) * y;
      }
      if (kOf == MlstmInput::v) continue;
      dot = quad_sum(dot);
      const int64_t numbers = call.batch * call.heads * call.tokens;
      const int64_t part = (kOf == MlstmInput::q ? 0 : mlstm_slices(kDim)) + slice;
      if (present && (lane() & 3) == 0) call.dots[part * numbers + place.gate(call) + place.step * row] = dot;
    }
  }
};

// The gradients of the gates of a chunk, two tokens a thread, from the last to the first.
template <int kDim, int kSlice>
struct MlstmGateGradientKernel {
  using Call = MlstmGradients;
  static constexpr int kThreads = kCellThreads, kShared = 32, kBlocks = 8;

  // Block x: a chunk, z: a head of a sample.
  static TESSERA_DEVICE void run(const Call& call, char* shared, Block at) {
    const ChunkPlace place(call, at.z, at.x);
    const int64_t chunks = chunks_of(call.tokens, call.chunk),
                  numbers = call.batch * call.heads * call.tokens;
    float dlog[2] = {};
    TESSERA_UNROLL for (int i = 0; i < 2; ++i) {
      const int s = kMostChunk - 1 - 2 * thread() - i;
      if (s >= place.length) continue;
      const int64_t gate = place.gate(call) + place.step * s;
      float of_q = 0, of_k = 0;
      TESSERA_UNROLL for (int part = 0; part < kDim / kSlice; ++part) {
        of_q += call.dots[part * numbers + gate];
        of_k += call.dots[(mlstm_slices(kDim) + part) * numbers + gate];
      }
      call.digate[gate] = of_k;
      dlog[i] = of_q - of_k;
    }
    scan<false>(dlog[0], dlog[1], (float*)shared);
    float crossing = 0;
    if (at.x + 1 < chunks) {
      constexpr int kParts = (kDim + kTileRows - 1) / kTileRows * (kDim / kSlice);
      const float* parts = call.crossing + (at.z * chunks + at.x) * kParts;
      for (int i = 0; i < kParts; ++i) crossing += parts[i];
    }
    TESSERA_UNROLL for (int i = 0; i < 2; ++i) {
      const int s = kMostChunk - 1 - 2 * thread() - i;
      if (s >= place.length) continue;
      const int64_t gate = place.gate(call) + place.step * s;
      call.dfgate[gate] = (dlog[i] + crossing) * sigmoid(-call.fgate[gate]);
    }
  }
};

}  // namespace tessera::kernels::gpu
