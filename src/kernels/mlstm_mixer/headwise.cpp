// Block-diagonal projections q, k, v, forward and backward; contract in parts.h. Built once per instruction
// set.
//
// A vector holds W/4 blocks of 4 channels. With s_d(x) = x with channel d of each block in all its four
// lanes, W x = sum_d lanes_d * s_d(x): four shuffles and four multiply-adds for W outputs, the weights in
// registers while the tokens of a block pass.
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

// Tokens [t, end) of sample b, at most kTokenBlock of them; q, k and v of the sample.
template <class Number>
void forward_block(const HeadwiseForward& call, Number* q, Number* k, Number* v, int64_t b, int64_t t,
                   int64_t end) {
  const int64_t C = call.channels;
  const HeadwiseWeights& w = call.weights;
  const bool half = call.q_half.data != nullptr;
  const int64_t q_row = half ? call.q_half.token : call.q.token,
                k_row = half ? call.k_half.token : call.k.token,
                v_row = half ? call.v_half.token : call.v.token;
  const float *a = call.a.data + b * call.a.batch, *x = call.x.data + b * call.x.batch;
  for (int64_t c = 0; c < C; c += W) {
    const int64_t left = C - c;
    const Lanes lq = load_lanes(w.q_lanes, w.lane_row, w.q_bias, c, left),
                lk = load_lanes(w.k_lanes, w.lane_row, w.k_bias, c, left),
                lv = load_lanes(w.v_lanes, w.lane_row, w.v_bias, c, left);
    for (int64_t i = t; i < end; ++i) {
      const vf av = get(a + i * call.a.token + c, left), xv = get(x + i * call.x.token + c, left);
      const vf a0 = spread<0>(av), a1 = spread<1>(av), a2 = spread<2>(av), a3 = spread<3>(av);
      put(q + i * q_row + c, project(lq, a0, a1, a2, a3), left);
      put(k + i * k_row + c, project(lk, a0, a1, a2, a3), left);
      put(v + i * v_row + c, project(lv, spread<0>(xv), spread<1>(xv), spread<2>(xv), spread<3>(xv)), left);
    }
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

void weight_gradient(const HeadwiseBackward& call, int64_t b, int64_t t, int64_t end, int64_t c) {
  const int64_t left = call.channels - c;
  const float *a = call.a.data + b * call.a.batch + c, *x = call.x.data + b * call.x.batch + c;
  const float *dq = call.dq.data + b * call.dq.batch + c, *dk = call.dk.data + b * call.dk.batch + c,
              *dv = call.dv.data + b * call.dv.batch + c;
  const HeadwiseGradients& s = call.sums;
  Lanes sq = {}, sk = {}, sv = {};
  for (int64_t i = t; i < end; ++i) {
    const vf av = get(a + i * call.a.token, left), xv = get(x + i * call.x.token, left);
    const vf a0 = spread<0>(av), a1 = spread<1>(av), a2 = spread<2>(av), a3 = spread<3>(av);
    outer(sq, get(dq + i * call.dq.token, left), a0, a1, a2, a3);
    outer(sk, get(dk + i * call.dk.token, left), a0, a1, a2, a3);
    outer(sv, get(dv + i * call.dv.token, left), spread<0>(xv), spread<1>(xv), spread<2>(xv), spread<3>(xv));
  }
  add_lanes(s.q_lanes, s.lane_row, s.q_bias, c, left, sq);
  add_lanes(s.k_lanes, s.lane_row, s.k_bias, c, left, sk);
  add_lanes(s.v_lanes, s.lane_row, s.v_bias, c, left, sv);
}

}  // namespace

void headwise_forward(const HeadwiseForward& call, int64_t begin, int64_t end) {
  for_each_piece(call.tokens, kTokenBlock, begin, end, [&](int64_t b, int64_t t, int64_t last) {
    const auto half = [b](const TokenView<uint16_t*>& rows) { return (bf16*)rows.data + b * rows.batch; };
    const auto whole = [b](const FloatRowsOut& rows) { return rows.data + b * rows.batch; };
    if (call.q_half.data)
      forward_block(call, half(call.q_half), half(call.k_half), half(call.v_half), b, t, last);
    else
      forward_block(call, whole(call.q), whole(call.k), whole(call.v), b, t, last);
  });
}

void headwise_backward(const HeadwiseBackward& call, int64_t begin, int64_t end) {
  // Longer pieces than forward's: each adds its sums to memory once.
  for_each_piece(call.tokens, 4 * kTokenBlock, begin, end, [&](int64_t b, int64_t t, int64_t last) {
    for (int64_t c = 0; c < call.channels; c += W) {
      if (call.da.data) input_gradient(call, b, t, last, c);
      if (call.sums.q_lanes) weight_gradient(call, b, t, last, c);
    }
  });
}

}  // namespace tessera::kernels::TESSERA_ISA
