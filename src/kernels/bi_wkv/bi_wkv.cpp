// Bidirectional WKV attention for one instruction set; contract in bi_wkv.h. Per-ISA.
//
// Processes W channels at a time. A first walk from the last token stores the sums over later tokens, a second
// from the first token has those over earlier ones in registers. The gradients of k and v are sums of the same
// kind, with -m_t in place of k_i, where e^{m_t} times a number of usual size is the divisor of y_t.
#include "kernels/bi_wkv/bi_wkv.h"

#include "kernels/simd.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

constexpr float kNothing = -1e30f;  // exponent of an empty sum

// The channels of a piece at one token.
template <class View>
TESSERA_INLINE auto row(const View& view, const BiWkvPiece& p, int64_t token) {
  return view.data + p.sample * view.batch + token * view.token + p.channel;
}
TESSERA_INLINE vf at(const FloatRows& view, const BiWkvPiece& p, int64_t token) {
  return get(row(view, p, token), p.count);
}

// Two sums over tokens, e^p n and e^p d.
struct Sums {
  vf n = {}, d = {}, p = splat(kNothing);
};
// Factors that bring an old sum and a new term to one exponent.
struct Joined {
  vf old, added, p;
};
TESSERA_INLINE Joined join(vf old, vf added) {
  const vf e = exp(-abs(old - added)), one = splat(1.0f);
  return {old >= added ? one : e, old >= added ? e : one, max(old, added)};
}
// Adds a token with exponent k and terms n, d after the sum has decayed.
TESSERA_INLINE void add(Sums& s, vf w, vf k, vf n, vf d) {
  const Joined j = join(s.p - w, k);
  s.n = j.old * s.n + j.added * n;
  s.d = j.old * s.d + j.added * d;
  s.p = j.p;
}

// The same sums and their derivatives with respect to w, e^p n_w and e^p d_w.
struct SlopedSums : Sums {
  vf n_w = {}, d_w = {};
};
TESSERA_INLINE void add(SlopedSums& s, vf w, vf k, vf v) {
  const Joined j = join(s.p - w, k);
  s.n_w = j.old * (s.n_w - s.n);
  s.d_w = j.old * (s.d_w - s.d);
  s.n = j.old * s.n + j.added * v;
  s.d = j.old * s.d + j.added;
  s.p = j.p;
}

// The weights of earlier tokens, later ones and the token itself, over e^m.
struct Weights {
  vf earlier, later, own, m;
};
TESSERA_INLINE Weights weights(vf earlier, vf later, vf own) {
  const vf m = max(max(earlier, later), own);
  return {exp(earlier - m), exp(later - m), exp(own - m), m};
}

void forward(const BiWkvForward& call, const BiWkvPiece& p) {
  const vf w = get(call.w + p.channel, p.count), u = get(call.u + p.channel, p.count);
  Sums later;
  for (int64_t t = call.tokens; t-- > 0;) {
    float* to = p.scratch + t * 3 * W;
    store(to, later.n);
    store(to + W, later.d);
    store(to + 2 * W, later.p);
    add(later, w, at(call.k, p, t), at(call.v, p, t), splat(1.0f));
  }
  Sums earlier;
  for (int64_t t = 0; t < call.tokens; ++t) {
    const float* from = p.scratch + t * 3 * W;
    const vf k = at(call.k, p, t), v = at(call.v, p, t);
    const Weights by = weights(earlier.p, load(from + 2 * W), u + k);
    const vf n = by.earlier * earlier.n + by.later * load(from) + by.own * v;
    const vf d = by.earlier * earlier.d + by.later * load(from + W) + by.own;
    put(row(call.y, p, t), n / d, p.count);
    add(earlier, w, k, v, splat(1.0f));
  }
}

// Stores the sums over later tokens of each token.
void later_sums(const BiWkvBackward& call, const BiWkvPiece& p, vf w) {
  SlopedSums later;
  for (int64_t t = call.tokens; t-- > 0;) {
    float* to = p.scratch + t * kBiWkvScratch * W;
    const vf values[] = {later.n, later.d, later.p, later.n_w, later.d_w};
    for (int i = 0; i < 5; ++i) store(to + i * W, values[i]);
    add(later, w, at(call.k, p, t), at(call.v, p, t));
  }
}

// Replaces them by the contributions of earlier tokens and of the token itself to the gradients of its k and
// v.
void walk_forward(const BiWkvBackward& call, const BiWkvPiece& p, vf w, vf u) {
  SlopedSums earlier;
  Sums back;
  vf gw = {}, gu = {};
  for (int64_t t = 0; t < call.tokens; ++t) {
    float* at_token = p.scratch + t * kBiWkvScratch * W;
    const vf k = at(call.k, p, t), v = at(call.v, p, t);
    const Weights by = weights(earlier.p, load(at_token + 2 * W), u + k);
    const vf d = by.earlier * earlier.d + by.later * load(at_token + W) + by.own;
    const vf y = (by.earlier * earlier.n + by.later * load(at_token) + by.own * v) / d;
    const vf q = at(call.gy, p, t) / d;
    const vf n_w = by.earlier * earlier.n_w + by.later * load(at_token + 3 * W);
    const vf d_w = by.earlier * earlier.d_w + by.later * load(at_token + 4 * W);
    gw += q * (n_w - y * d_w);
    gu += q * by.own * (v - y);
    const vf values[] = {back.n, back.d, back.p, q, y, by.m};
    for (int i = 0; i < 6; ++i) store(at_token + i * W, values[i]);
    add(back, w, -by.m, q, q * y);
    add(earlier, w, k, v);
  }
  put(p.gw, gw, p.count);
  put(p.gu, gu, p.count);
}

void backward(const BiWkvBackward& call, const BiWkvPiece& p) {
  const vf w = get(call.w + p.channel, p.count), u = get(call.u + p.channel, p.count);
  later_sums(call, p, w);
  walk_forward(call, p, w, u);
  Sums back;
  for (int64_t t = call.tokens; t-- > 0;) {
    const float* from = p.scratch + t * kBiWkvScratch * W;
    const vf k = at(call.k, p, t), q = load(from + 3 * W), y = load(from + 4 * W), m = load(from + 5 * W);
    const vf left = exp(k + load(from + 2 * W)), own = exp(u + k - m) * q, right = exp(k + back.p);
    const vf gv = left * load(from) + own + right * back.n;
    const vf by_y = left * load(from + W) + own * y + right * back.d;
    put(row(call.gv, p, t), gv, p.count);
    put(row(call.gk, p, t), at(call.v, p, t) * gv - by_y, p.count);
    add(back, w, -m, q, q * y);
  }
}

}  // namespace

extern const BiWkvFunctions bi_wkv_functions;
const BiWkvFunctions bi_wkv_functions = {W, forward, backward};

}  // namespace tessera::kernels::TESSERA_ISA
