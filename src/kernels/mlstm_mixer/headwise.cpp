// Block-diagonal projections q, k, v and the gates in one pass over the tokens, forward and backward;
// contract in parts.h. Built once per instruction set.
//
// A vector holds W/4 blocks of 4 channels. With s_d(x) = x with channel d of each block in all its four
// lanes, W x = sum_d lanes_d * s_d(x): four shuffles and four multiply-adds for W outputs, the weights in
// registers while the tokens of a block pass. q, k and v of a block of tokens are then still in the cache for
// the gates.
#include "kernels/mlstm_mixer/parts_isa.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

constexpr int64_t kTokenBlock = 16;
constexpr int kGates = 8;  // gates of one pass; weights and gates are padded to multiples of it

template <int d>
TESSERA_INLINE vf spread(vf x) {
  return __builtin_shuffle(x, (lanes() & ~3) | d);
}

// The blocks of one vector of channels.
struct Lanes {
  vf column[4], bias;
};
TESSERA_INLINE Lanes load_lanes(const float* lane_weights, const float* bias, int64_t channels, int64_t c) {
  const int64_t left = channels - c;
  Lanes l;
#pragma GCC unroll 4
  for (int d = 0; d < 4; ++d) l.column[d] = get(lane_weights + d * channels + c, left);
  l.bias = bias ? get(bias + c, left) : vf{};
  return l;
}
TESSERA_INLINE vf project(const Lanes& l, vf s0, vf s1, vf s2, vf s3) {
  return (l.bias + l.column[0] * s0 + l.column[1] * s1) + (l.column[2] * s2 + l.column[3] * s3);
}

// The transposed blocks: lanes of W^T.
TESSERA_INLINE Lanes transpose_lanes(const Lanes& l) {
  Lanes t;
  t.bias = vf{};
  const vi lane = lanes();
  // Column d of W^T in lane 4b+o is W[b][d][o]: lane 4b+d of column o.
#pragma GCC unroll 4
  for (int d = 0; d < 4; ++d) {
    vf column = {};
#pragma GCC unroll 4
    for (int o = 0; o < 4; ++o) {
      const vf from = __builtin_shuffle(l.column[o], (lane & ~3) | d);
      column = (lane & 3) == o ? from : column;
    }
    t.column[d] = column;
  }
  return t;
}

// Sums of the lanes of eight vectors.
TESSERA_INLINE void sums(const vf (&v)[kGates], float* out) {
#if defined(__AVX2__)
  __m256 e[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
#if defined(__AVX512F__)
    e[i] = (__m256)(__builtin_shufflevector(v[i], v[i], 0, 1, 2, 3, 4, 5, 6, 7) +
                    __builtin_shufflevector(v[i], v[i], 8, 9, 10, 11, 12, 13, 14, 15));
#else
    e[i] = (__m256)v[i];
#endif
  }
  const __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(e[0], e[1]), _mm256_hadd_ps(e[2], e[3]));
  const __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(e[4], e[5]), _mm256_hadd_ps(e[6], e[7]));
  const __m256 low = _mm256_permute2f128_ps(a, b, 0x20), high = _mm256_permute2f128_ps(a, b, 0x31);
  _mm256_storeu_ps(out, low + high);
#else
  for (int i = 0; i < kGates; ++i) out[i] = sum(v[i]);
#endif
}

// gate[t] += weight [q; k; v] for N tokens and eight gates.
template <int N>
TESSERA_INLINE void gate_tokens(const HeadwiseForward& call, const float* const (&rows)[3],
                                const int64_t (&stride)[3], float* gate, const float* weight,
                                const float* bias) {
  const int64_t C = call.channels;
  vf total[N][kGates];
#pragma GCC unroll 3
  for (int n = 0; n < N; ++n)
#pragma GCC unroll 8
    for (int g = 0; g < kGates; ++g) total[n][g] = vf{};
  for (int part = 0; part < 3; ++part) {
    const float *from = rows[part], *w = weight + part * C;
    for (int64_t c = 0; c < C; c += W) {
      const int64_t left = C - c;
      vf x[N];
#pragma GCC unroll 3
      for (int n = 0; n < N; ++n) x[n] = get(from + n * stride[part] + c, left);
#pragma GCC unroll 8
      for (int g = 0; g < kGates; ++g) {
        const vf wg = get(w + g * 3 * C + c, left);
#pragma GCC unroll 3
        for (int n = 0; n < N; ++n) total[n][g] += x[n] * wg;
      }
    }
  }
#pragma GCC unroll 3
  for (int n = 0; n < N; ++n) {
    float out[kGates];
    sums(total[n], out);
    for (int g = 0; g < kGates; ++g) gate[n * call.gate.token + g] = out[g] + bias[g];
  }
}

// Tokens [t, end) of one sample, at most kTokenBlock of them.
void forward_block(const HeadwiseForward& call, int64_t b, int64_t t, int64_t end) {
  const int64_t C = call.channels;
  const HeadwiseWeights& w = call.weights;
  const float *a = call.a.data + b * call.a.batch, *x = call.x.data + b * call.x.batch;
  float *q = call.q.data + b * call.q.batch, *k = call.k.data + b * call.k.batch,
        *v = call.v.data + b * call.v.batch;
  for (int64_t c = 0; c < C; c += W) {
    const int64_t left = C - c;
    const Lanes lq = load_lanes(w.q_lanes, w.q_bias, C, c), lk = load_lanes(w.k_lanes, w.k_bias, C, c),
                lv = load_lanes(w.v_lanes, w.v_bias, C, c);
    for (int64_t i = t; i < end; ++i) {
      const vf av = get(a + i * call.a.token + c, left), xv = get(x + i * call.x.token + c, left);
      const vf a0 = spread<0>(av), a1 = spread<1>(av), a2 = spread<2>(av), a3 = spread<3>(av);
      put(q + i * call.q.token + c, project(lq, a0, a1, a2, a3), left);
      put(k + i * call.k.token + c, project(lk, a0, a1, a2, a3), left);
      put(v + i * call.v.token + c, project(lv, spread<0>(xv), spread<1>(xv), spread<2>(xv), spread<3>(xv)),
          left);
    }
  }
  const int64_t stride[3] = {call.q.token, call.k.token, call.v.token};
  for (int64_t g = 0; g < call.gates; g += kGates) {
    const float* weight = w.gate_weight + g * 3 * C;
    int64_t i = t;
    for (; i + 3 <= end; i += 3)
      gate_tokens<3>(call, {q + i * stride[0], k + i * stride[1], v + i * stride[2]}, stride,
                     call.gate.data + b * call.gate.batch + i * call.gate.token + g, weight, w.gate_bias + g);
    for (; i < end; ++i)
      gate_tokens<1>(call, {q + i * stride[0], k + i * stride[1], v + i * stride[2]}, stride,
                     call.gate.data + b * call.gate.batch + i * call.gate.token + g, weight, w.gate_bias + g);
  }
}

// What came to q, k and v through the gates is added to what came through the cell; tokens [t, end) of sample
// b.
void gate_inputs(const HeadwiseBackward& call, int64_t b, int64_t t, int64_t end) {
  const int64_t C = call.channels;
  const FloatRowsOut parts[3] = {call.dq, call.dk, call.dv};
  const float* dgate = call.dgate.data + b * call.dgate.batch;
  for (int part = 0; part < 3; ++part) {
    float* d = parts[part].data + b * parts[part].batch;
    for (int64_t g = 0; g < call.gates; g += kGates)
      for (int64_t c = 0; c < C; c += W) {
        const int64_t left = C - c;
        vf w[kGates];
#pragma GCC unroll 8
        for (int o = 0; o < kGates; ++o)
          w[o] = get(call.weights.gate_weight + (g + o) * 3 * C + part * C + c, left);
        for (int64_t i = t; i < end; ++i) {
          const float* dg = dgate + i * call.dgate.token + g;
          vf even = get(d + i * parts[part].token + c, left), odd = {};
#pragma GCC unroll 4
          for (int o = 0; o < kGates; o += 2) even += dg[o] * w[o], odd += dg[o + 1] * w[o + 1];
          put(d + i * parts[part].token + c, even + odd, left);
        }
      }
  }
}

// Sums of dgate times q, k, v.
void gate_weights(const HeadwiseBackward& call, int64_t b, int64_t t, int64_t end) {
  const int64_t C = call.channels;
  const FloatRows parts[3] = {call.q, call.k, call.v};
  const float* dgate = call.dgate.data + b * call.dgate.batch;
  for (int64_t g = 0; g < call.gates; g += kGates) {
    for (int part = 0; part < 3; ++part) {
      const float* x = parts[part].data + b * parts[part].batch;
      for (int64_t c = 0; c < C; c += W) {
        const int64_t left = C - c;
        vf total[kGates];
#pragma GCC unroll 8
        for (int o = 0; o < kGates; ++o) total[o] = vf{};
        for (int64_t i = t; i < end; ++i) {
          const float* dg = dgate + i * call.dgate.token + g;
          const vf value = get(x + i * parts[part].token + c, left);
#pragma GCC unroll 8
          for (int o = 0; o < kGates; ++o) total[o] += dg[o] * value;
        }
#pragma GCC unroll 8
        for (int o = 0; o < kGates; ++o)
          add_to(call.sums.gate_weight + (g + o) * 3 * C + part * C + c, total[o], left);
      }
    }
    for (int64_t i = t; i < end; ++i)
      for (int o = 0; o < kGates; ++o) call.sums.gate_bias[g + o] += dgate[i * call.dgate.token + g + o];
  }
}

TESSERA_INLINE void add_lanes(float* lane_sums, float* bias_sum, int64_t channels, int64_t c,
                              const Lanes& l) {
  const int64_t left = channels - c;
#pragma GCC unroll 4
  for (int d = 0; d < 4; ++d) add_to(lane_sums + d * channels + c, l.column[d], left);
  add_to(bias_sum + c, l.bias, left);
}
TESSERA_INLINE void outer(Lanes& l, vf d, vf s0, vf s1, vf s2, vf s3) {
  l.column[0] += d * s0;
  l.column[1] += d * s1;
  l.column[2] += d * s2;
  l.column[3] += d * s3;
  l.bias += d;
}

void projections_backward(const HeadwiseBackward& call, int64_t b, int64_t t, int64_t end) {
  const int64_t C = call.channels;
  const HeadwiseWeights& w = call.weights;
  const HeadwiseGradients& s = call.sums;
  const float *a = call.a.data + b * call.a.batch, *x = call.x.data + b * call.x.batch;
  const float *dq = call.dq.data + b * call.dq.batch, *dk = call.dk.data + b * call.dk.batch,
              *dv = call.dv.data + b * call.dv.batch;
  float *da = call.da.data + b * call.da.batch, *dx = call.dx.data + b * call.dx.batch;
  for (int64_t c = 0; c < C; c += W) {
    const int64_t left = C - c;
    const Lanes lq = transpose_lanes(load_lanes(w.q_lanes, nullptr, C, c)),
                lk = transpose_lanes(load_lanes(w.k_lanes, nullptr, C, c)),
                lv = transpose_lanes(load_lanes(w.v_lanes, nullptr, C, c));
    for (int64_t i = t; i < end; ++i) {
      const vf q = get(dq + i * call.dq.token + c, left), k = get(dk + i * call.dk.token + c, left),
               v = get(dv + i * call.dv.token + c, left);
      const vf through_q = project(lq, spread<0>(q), spread<1>(q), spread<2>(q), spread<3>(q));
      const vf through_k = project(lk, spread<0>(k), spread<1>(k), spread<2>(k), spread<3>(k));
      add_to(da + i * call.da.token + c, through_q + through_k, left);
      put(dx + i * call.dx.token + c, project(lv, spread<0>(v), spread<1>(v), spread<2>(v), spread<3>(v)),
          left);
    }
    Lanes sq = {}, sk = {}, sv = {};
    for (int64_t i = t; i < end; ++i) {
      const vf av = get(a + i * call.a.token + c, left), xv = get(x + i * call.x.token + c, left);
      const vf a0 = spread<0>(av), a1 = spread<1>(av), a2 = spread<2>(av), a3 = spread<3>(av);
      outer(sq, get(dq + i * call.dq.token + c, left), a0, a1, a2, a3);
      outer(sk, get(dk + i * call.dk.token + c, left), a0, a1, a2, a3);
      outer(sv, get(dv + i * call.dv.token + c, left), spread<0>(xv), spread<1>(xv), spread<2>(xv),
            spread<3>(xv));
    }
    add_lanes(s.q_lanes, s.q_bias, C, c, sq);
    add_lanes(s.k_lanes, s.k_bias, C, c, sk);
    add_lanes(s.v_lanes, s.v_bias, C, c, sv);
  }
}

// Calls body(sample, first, last) for the pieces of at most `most` tokens of one sample that make up [begin,
// end).
template <class Body>
TESSERA_INLINE void for_each_piece(int64_t tokens, int64_t most, int64_t begin, int64_t end, Body body) {
  for (int64_t at = begin; at < end;) {
    const int64_t b = at / tokens, t = at % tokens;
    int64_t count = tokens - t < end - at ? tokens - t : end - at;
    count = count < most ? count : most;
    body(b, t, t + count);
    at += count;
  }
}

}  // namespace

void headwise_forward(const HeadwiseForward& call, int64_t begin, int64_t end) {
  for_each_piece(call.tokens, kTokenBlock, begin, end,
                 [&](int64_t b, int64_t t, int64_t last) { forward_block(call, b, t, last); });
}

void headwise_backward(const HeadwiseBackward& call, int64_t begin, int64_t end) {
  // Longer pieces than forward's: each adds its sums to memory once.
  for_each_piece(call.tokens, 4 * kTokenBlock, begin, end, [&](int64_t b, int64_t t, int64_t last) {
    gate_inputs(call, b, t, last);
    gate_weights(call, b, t, last);
    projections_backward(call, b, t, last);
  });
}

}  // namespace tessera::kernels::TESSERA_ISA
