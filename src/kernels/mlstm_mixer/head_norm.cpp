// Norm per head, learnable skip and output gate in one pass, forward and backward; contract in parts.h. Built
// once per instruction set. Memory bound: forward reads h, a, z and writes y; backward reads those and dy and
// writes three.
#include "kernels/mlstm_mixer/parts_isa.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

// Sets lanes past the end to zero.
TESSERA_INLINE vf only(vf value, int64_t left) {
  return left >= W ? value : lanes() < (int32_t)left ? value : vf{};
}

constexpr int64_t kBlock = 16;  // tokens per step: their sums overlap, and weights stay in registers

// The moments of one head of up to kBlock tokens.
struct Moments {
  float mean[kBlock], rstd[kBlock];
};

// Sums term(number, token) over the n channels of a head, for eight tokens. Missing tokens repeat the last
// one.
template <class Term>
TESSERA_INLINE void sum_rows(const float* h, int64_t h_row, int64_t last, int64_t n, Term term, float* out) {
  vf total[8];
#pragma GCC unroll 8
  for (int t = 0; t < 8; ++t) total[t] = vf{};
  for (int64_t c = 0; c < n; c += W)
#pragma GCC unroll 8
    for (int t = 0; t < 8; ++t)
      total[t] += only(term(get(h + (t < last ? t : last) * h_row + c, n - c), t), n - c);
  lane_sums(total, out);
}

// Two passes: the mean first, then the squared deviations.
void moments(const float* h, int64_t h_row, int64_t count, int64_t n, float eps, Moments& m) {
  for (int64_t first = 0; first < count; first += 8) {
    const float* rows = h + first * h_row;
    float *mean = m.mean + first, *rstd = m.rstd + first;
    const int64_t last = count - first - 1;
    sum_rows(
        rows, h_row, last, n, [](vf x, int) __attribute__((always_inline)) { return x; }, mean);
    for (int t = 0; t < 8; ++t) mean[t] /= (float)n;
    sum_rows(
        rows, h_row, last,
        n, [mean](vf x, int t) __attribute__((always_inline)) { return (x - mean[t]) * (x - mean[t]); },
        rstd);
    for (int t = 0; t < 8; ++t) rstd[t] = 1.0f / __builtin_sqrtf(rstd[t] / (float)n + eps);
  }
}

// Channels c … of one head, with the values that all tokens share.
struct Column {
  vf scale, bias, skip;
};
TESSERA_INLINE Column column_of(const HeadNormWeights& w, int64_t c, int64_t left) {
  return {get(w.scale + c, left), w.bias ? get(w.bias + c, left) : vf{}, get(w.skip + c, left)};
}

template <class View>
TESSERA_INLINE auto row(const View& view, int64_t b, int64_t t) {
  return view.data + b * view.batch + t * view.token;
}

TESSERA_INLINE vf gate_of(const float* z, int64_t left) { return silu(get(z, left)); }
TESSERA_INLINE vf gate_of(const bf16* z, int64_t left) { return silu_coarse(get(z, left)); }
TESSERA_INLINE SiluAndSlope gate_and_slope(const float* z, int64_t left) {
  return silu_and_slope(get(z, left));
}
TESSERA_INLINE SiluAndSlope gate_and_slope(const bf16* z, int64_t left) {
  return silu_and_slope_coarse(get(z, left));
}

// Inputs and outputs in their storage type: a, z and y in forward; a, z, dy and dz in backward.
template <class Number>
struct ForwardRows {
  TokenView<const Number*> a, z;
  TokenView<Number*> y;
};
template <class Number>
struct BackwardRows {
  TokenView<const Number*> a, z, dy;
  TokenView<Number*> dz;
};
template <class Number, class View>
TESSERA_INLINE TokenView<Number*> as(const View& rows) {
  return {(Number*)rows.data, rows.batch, rows.token};
}
template <class Number>
TESSERA_INLINE ForwardRows<Number> forward_rows(const HeadNormForward& call) {
  return {as<const Number>(call.a), as<const Number>(call.z), as<Number>(call.y)};
}
template <class Number>
TESSERA_INLINE BackwardRows<Number> backward_rows(const HeadNormBackward& call) {
  return {as<const Number>(call.a), as<const Number>(call.z), as<const Number>(call.dy), as<Number>(call.dz)};
}

// Computes tokens [t, end) of sample b, at most kBlock. This is the first access to z and y, so the next
// block's rows are prefetched early.
template <class Number>
void forward_block(const HeadNormForward& call, const ForwardRows<Number>& rows, int64_t b, int64_t t,
                   int64_t end) {
  const int64_t n = call.channels / call.heads, count = end - t;
  const float* h = row(call.h, b, t);
  const Number *a = row(rows.a, b, t), *z = row(rows.z, b, t);
  Number* y = row(rows.y, b, t);
  Moments m;
  for (int64_t head = 0; head < call.channels; head += n) {
    moments(h + head, call.h.token, count, n, call.eps, m);
    for (int64_t i = 0; i < n; i += W) {
      const int64_t c = head + i, left = n - i;
      const Column w = column_of(call.weights, c, left);
      for (int64_t j = 0; j < count; ++j) {
        __builtin_prefetch(z + (j + kBlock) * rows.z.token + c);
        __builtin_prefetch(y + (j + kBlock) * rows.y.token + c, 1);
        const vf normed = (get(h + j * call.h.token + c, left) - m.mean[j]) * m.rstd[j];
        const vf value = normed + normed * w.scale + (w.skip * get(a + j * rows.a.token + c, left) + w.bias);
        put(y + j * rows.y.token + c, value * gate_of(z + j * rows.z.token + c, left), left);
      }
    }
  }
}

template <class Number>
void backward_block(const HeadNormBackward& call, const BackwardRows<Number>& rows, int64_t b, int64_t t,
                    int64_t end) {
  const int64_t n = call.channels / call.heads, count = end - t;
  const float* h = row(call.h, b, t);
  const Number *a = row(rows.a, b, t), *z = row(rows.z, b, t), *dy = row(rows.dy, b, t);
  float *dh = row(call.dh, b, t), *da = row(call.da, b, t);
  Number* dz = row(rows.dz, b, t);
  Moments m;
  for (int64_t head = 0; head < call.channels; head += n) {
    moments(h + head, call.h.token, count, n, call.eps, m);
    vf sum_d[kBlock] = {}, sum_dx[kBlock] = {};  // sums of d loss / d normed, and of it times normed
    for (int64_t i = 0; i < n; i += W) {
      const int64_t c = head + i, left = n - i;
      const Column w = column_of(call.weights, c, left);
      vf dscale = {}, dbias = {}, dskip = {};
      for (int64_t j = 0; j < count; ++j) {
        __builtin_prefetch(z + (j + kBlock) * rows.z.token + c);
        __builtin_prefetch(dy + (j + kBlock) * rows.dy.token + c);
        __builtin_prefetch(dz + (j + kBlock) * rows.dz.token + c, 1);
        const vf normed = only((get(h + j * call.h.token + c, left) - m.mean[j]) * m.rstd[j], left);
        const vf av = get(a + j * rows.a.token + c, left), d = get(dy + j * rows.dy.token + c, left);
        const SiluAndSlope gate = gate_and_slope(z + j * rows.z.token + c, left);
        const vf value = normed + normed * w.scale + (w.skip * av + w.bias);
        const vf dvalue = d * gate.value, dnormed = dvalue + dvalue * w.scale;
        put(dz + j * rows.dz.token + c, d * value * gate.slope, left);
        put(da + j * call.da.token + c, dvalue * w.skip, left);
        put(dh + j * call.dh.token + c, dnormed, left);
        dscale += dvalue * normed, dbias += dvalue, dskip += dvalue * av;
        sum_d[j] += dnormed, sum_dx[j] += dnormed * normed;
      }
      add_to(call.dscale + c, dscale, left);
      add_to(call.dbias + c, dbias, left);
      add_to(call.dskip + c, dskip, left);
    }
    for (int64_t j = 0; j < count; ++j) {
      const float mean_d = sum(sum_d[j]) / (float)n, mean_dx = sum(sum_dx[j]) / (float)n;
      for (int64_t i = 0; i < n; i += W) {
        const int64_t left = n - i;
        const vf normed = (get(h + j * call.h.token + head + i, left) - m.mean[j]) * m.rstd[j];
        float* at = dh + j * call.dh.token + head + i;
        put(at, m.rstd[j] * (get(at, left) - mean_d - normed * mean_dx), left);
      }
    }
  }
}

void narrow_rows(const float* from, uint16_t* to, int64_t count) {
  int64_t i = 0;
  for (; i + W <= count; i += W) store((bf16*)to + i, load(from + i));
  if (i < count) store_part((bf16*)to + i, load_part(from + i, count - i), count - i);
}

}  // namespace

void head_norm_forward(const HeadNormForward& call, int64_t begin, int64_t end) {
  const auto halves = forward_rows<bf16>(call);
  const auto floats = forward_rows<float>(call);
  for_each_piece(call.tokens, kBlock, begin, end, [&](int64_t b, int64_t t, int64_t last) {
    if (call.a.element == Element::bf16)
      forward_block(call, halves, b, t, last);
    else
      forward_block(call, floats, b, t, last);
  });
}

void head_norm_backward(const HeadNormBackward& call, int64_t begin, int64_t end) {
  const auto halves = backward_rows<bf16>(call);
  const auto floats = backward_rows<float>(call);
  for_each_piece(call.tokens, kBlock, begin, end, [&](int64_t b, int64_t t, int64_t last) {
    if (call.a.element == Element::bf16)
      backward_block(call, halves, b, t, last);
    else
      backward_block(call, floats, b, t, last);
  });
}

extern const MixerFunctions mixer_functions;
const MixerFunctions mixer_functions = {depthwise_forward, depthwise_backward, headwise_forward,
                                        headwise_backward, gates_forward,      gates_backward,
                                        head_norm_forward, head_norm_backward, narrow_rows};

}  // namespace tessera::kernels::TESSERA_ISA
