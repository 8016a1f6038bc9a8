// Block-diagonal projections q, k, v, forward and backward; contract in parts.h. Built once per instruction
// set.
//
// A vector holds W/4 blocks of 4 channels. Let s_d(x) copy channel d of each block to all its four lanes.
// Then W x = sum_d lanes_d * s_d(x): four shuffles and four multiply-adds for W outputs. The weights stay in
// registers across the tokens of a block.
#include "kernels/mlstm_mixer/parts_isa.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

constexpr int64_t kTokenBlock = 16;

template <int d>
TESSERA_INLINE vf spread(vf x) {
  return __builtin_shuffle(x, (lanes() & ~3) | d);
}

// The blocks of one vector of channels.
struct Lanes {
  vf column[4], bias;
};
TESSERA_INLINE Lanes load_lanes(const float* lane_weights, int64_t lane_row, const float* bias, int64_t c,
                                int64_t left) {
  Lanes l;
#pragma GCC unroll 4
  for (int d = 0; d < 4; ++d) l.column[d] = get(lane_weights + d * lane_row + c, left);
  l.bias = bias ? get(bias + c, left) : vf{};
  return l;
}
TESSERA_INLINE vf project(const Lanes& l, vf s0, vf s1, vf s2, vf s3) {
  return (l.bias + l.column[0] * s0 + l.column[1] * s1) + (l.column[2] * s2 + l.column[3] * s3);
}

// Transposes the blocks: lanes of W^T.
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

// Rows of one sample.
template <class Number>
struct SampleRows {
  Number* data;
  int64_t row;
  Number* at(int64_t t, int64_t c) const { return data + t * row + c; }
};

// The projections of tokens [t, end), from a and x to q, k and v.
template <class In, class Out>
struct Projections {
  SampleRows<const In> a, x;
  SampleRows<Out> q, k, v;
};

// Computes channels c … of tokens [t, end).
template <class In, class Out>
void project_in_floats(const Projections<In, Out>& rows, const Lanes& lq, const Lanes& lk, const Lanes& lv,
                       int64_t t, int64_t end, int64_t c, int64_t left) {
  for (int64_t i = t; i < end; ++i) {
    const vf a = get(rows.a.at(i, c), left), x = get(rows.x.at(i, c), left);
    const vf a0 = spread<0>(a), a1 = spread<1>(a), a2 = spread<2>(a), a3 = spread<3>(a);
    put(rows.q.at(i, c), project(lq, a0, a1, a2, a3), left);
    put(rows.k.at(i, c), project(lk, a0, a1, a2, a3), left);
    put(rows.v.at(i, c), project(lv, spread<0>(x), spread<1>(x), spread<2>(x), spread<3>(x)), left);
  }
}

#if defined(__AVX512BF16__)
// Weights as words of two neighbours of a block's row: half the multiply-adds and shuffles.
struct PairLanes {
  vi first, second;
  vf bias;
};
TESSERA_INLINE PairLanes pair_lanes(const Lanes& l) {
  return {(vi)pair_up(to_bf16(l.column[0]), to_bf16(l.column[1])),
          (vi)pair_up(to_bf16(l.column[2]), to_bf16(l.column[3])), l.bias};
}
// Copies word `which` of each block's two to all its four lanes.
template <int which>
TESSERA_INLINE vi spread_words(vi words) {
  return __builtin_shuffle(words, (lanes() >> 2) * 2 + which);
}
TESSERA_INLINE vf project(const PairLanes& l, vi s0, vi s1) {
  return dot_pairs(dot_pairs(l.bias, s0, l.first), s1, l.second);
}
template <class Out>
void project_in_pairs(const Projections<bf16, Out>& rows, const Lanes& lq, const Lanes& lk, const Lanes& lv,
                      int64_t t, int64_t end, int64_t c, int64_t left) {
  const PairLanes pq = pair_lanes(lq), pk = pair_lanes(lk), pv = pair_lanes(lv);
  const int64_t numbers = left < W ? left : W;
  for (int64_t i = t; i < end; ++i) {
    const vi a = load_pairs(rows.a.at(i, c), numbers), x = load_pairs(rows.x.at(i, c), numbers);
    const vi a0 = spread_words<0>(a), a1 = spread_words<1>(a);
    put(rows.q.at(i, c), project(pq, a0, a1), left);
    put(rows.k.at(i, c), project(pk, a0, a1), left);
    put(rows.v.at(i, c), project(pv, spread_words<0>(x), spread_words<1>(x)), left);
  }
}
#endif

template <class In, class Out>
void forward_block(const HeadwiseForward& call, const Projections<In, Out>& rows, int64_t t, int64_t end) {
  const HeadwiseWeights& w = call.weights;
  for (int64_t c = 0; c < call.channels; c += W) {
    const int64_t left = call.channels - c;
    const Lanes lq = load_lanes(w.q_lanes, w.lane_row, w.q_bias, c, left),
                lk = load_lanes(w.k_lanes, w.lane_row, w.k_bias, c, left),
                lv = load_lanes(w.v_lanes, w.lane_row, w.v_bias, c, left);
#if defined(__AVX512BF16__)
    if constexpr (__is_same(In, bf16)) {
      if (call.pairs) {
        project_in_pairs(rows, lq, lk, lv, t, end, c, left);
        continue;
      }
    }
#endif
    project_in_floats(rows, lq, lk, lv, t, end, c, left);
  }
}

TESSERA_INLINE void add_lanes(float* lane_sums, int64_t lane_row, float* bias_sum, int64_t c, int64_t left,
                              const Lanes& l) {
#pragma GCC unroll 4
  for (int d = 0; d < 4; ++d) add_to(lane_sums + d * lane_row + c, l.column[d], left);
  if (bias_sum) add_to(bias_sum + c, l.bias, left);
}
TESSERA_INLINE void outer(Lanes& l, vf d, vf s0, vf s1, vf s2, vf s3) {
  l.column[0] += d * s0;
  l.column[1] += d * s1;
  l.column[2] += d * s2;
  l.column[3] += d * s3;
  l.bias += d;
}

// da += Wq^T dq + Wk^T dk and dx = Wv^T dv for channels c … of tokens [t, end) of sample b.
void input_gradient(const HeadwiseBackward& call, int64_t b, int64_t t, int64_t end, int64_t c) {
  const int64_t left = call.channels - c;
  const HeadwiseWeights& w = call.weights;
  const float *dq = call.dq.data + b * call.dq.batch + c, *dk = call.dk.data + b * call.dk.batch + c,
              *dv = call.dv.data + b * call.dv.batch + c;
  float *da = call.da.data + b * call.da.batch + c, *dx = call.dx.data + b * call.dx.batch + c;
  const Lanes lq = transpose_lanes(load_lanes(w.q_lanes, w.lane_row, nullptr, c, left)),
              lk = transpose_lanes(load_lanes(w.k_lanes, w.lane_row, nullptr, c, left)),
              lv = transpose_lanes(load_lanes(w.v_lanes, w.lane_row, nullptr, c, left));
  for (int64_t i = t; i < end; ++i) {
    const vf q = get(dq + i * call.dq.token, left), k = get(dk + i * call.dk.token, left),
             v = get(dv + i * call.dv.token, left);
    const vf through_q = project(lq, spread<0>(q), spread<1>(q), spread<2>(q), spread<3>(q));
    const vf through_k = project(lk, spread<0>(k), spread<1>(k), spread<2>(k), spread<3>(k));
    add_to(da + i * call.da.token, through_q + through_k, left);
    put(dx + i * call.dx.token, project(lv, spread<0>(v), spread<1>(v), spread<2>(v), spread<3>(v)), left);
  }
}

template <class Number>
void weight_gradient(const HeadwiseBackward& call, const SampleRows<const Number>& a_rows,
                     const SampleRows<const Number>& x_rows, int64_t b, int64_t t, int64_t end, int64_t c) {
  const int64_t left = call.channels - c;
  const float *dq = call.dq.data + b * call.dq.batch + c, *dk = call.dk.data + b * call.dk.batch + c,
              *dv = call.dv.data + b * call.dv.batch + c;
  const HeadwiseGradients& s = call.sums;
  Lanes sq = {}, sk = {}, sv = {};
  for (int64_t i = t; i < end; ++i) {
    const vf av = get(a_rows.at(i, c), left), xv = get(x_rows.at(i, c), left);
    const vf a0 = spread<0>(av), a1 = spread<1>(av), a2 = spread<2>(av), a3 = spread<3>(av);
    outer(sq, get(dq + i * call.dq.token, left), a0, a1, a2, a3);
    outer(sk, get(dk + i * call.dk.token, left), a0, a1, a2, a3);
    outer(sv, get(dv + i * call.dv.token, left), spread<0>(xv), spread<1>(xv), spread<2>(xv), spread<3>(xv));
  }
  add_lanes(s.q_lanes, s.lane_row, s.q_bias, c, left, sq);
  add_lanes(s.k_lanes, s.lane_row, s.k_bias, c, left, sk);
  add_lanes(s.v_lanes, s.lane_row, s.v_bias, c, left, sv);
}

template <class Number, class View>
TESSERA_INLINE SampleRows<Number> sample(const View& rows, int64_t b) {
  return {(Number*)rows.data + b * rows.batch, rows.token};
}

}  // namespace

void headwise_forward(const HeadwiseForward& call, int64_t begin, int64_t end) {
  for_each_piece(call.tokens, kTokenBlock, begin, end, [&](int64_t b, int64_t t, int64_t last) {
    if (call.a.element == Element::f32)
      return forward_block(call,
                           Projections<float, float>{sample<const float>(call.a, b),
                                                     sample<const float>(call.x, b), sample<float>(call.q, b),
                                                     sample<float>(call.k, b), sample<float>(call.v, b)},
                           t, last);
    const auto a = sample<const bf16>(call.a, b), x = sample<const bf16>(call.x, b);
    if (call.q.element == Element::bf16)
      forward_block(call,
                    Projections<bf16, bf16>{a, x, sample<bf16>(call.q, b), sample<bf16>(call.k, b),
                                            sample<bf16>(call.v, b)},
                    t, last);
    else
      forward_block(call,
                    Projections<bf16, float>{a, x, sample<float>(call.q, b), sample<float>(call.k, b),
                                             sample<float>(call.v, b)},
                    t, last);
  });
}

void headwise_backward(const HeadwiseBackward& call, int64_t begin, int64_t end) {
  // Longer pieces than in forward: each adds its sums to memory once.
  for_each_piece(call.tokens, 4 * kTokenBlock, begin, end, [&](int64_t b, int64_t t, int64_t last) {
    for (int64_t c = 0; c < call.channels; c += W) {
      if (call.da.data) input_gradient(call, b, t, last, c);
      if (!call.sums.q_lanes) continue;
      if (call.a.element == Element::bf16)
        weight_gradient(call, sample<const bf16>(call.a, b), sample<const bf16>(call.x, b), b, t, last, c);
      else
        weight_gradient(call, sample<const float>(call.a, b), sample<const float>(call.x, b), b, t, last, c);
    }
  });
}

}  // namespace tessera::kernels::TESSERA_ISA
