// Norm a head, learnable skip and output gate in one pass, forward and backward; contract in parts.h. Built
// once per instruction set. Memory bound: forward reads h, a, z and writes y; backward reads those and dy and
// writes three.
#include "kernels/mlstm_mixer/parts_isa.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

// Lanes that are beyond the end hold zero.
TESSERA_INLINE vf only(vf value, int64_t left) {
  return left >= W ? value : lanes() < (int32_t)left ? value : vf{};
}

struct Moments {
  float mean, rstd;
};

// Two passes: the mean first, then the squares about it.
TESSERA_INLINE Moments moments(const float* h, int64_t n, float eps) {
  vf total = {};
  for (int64_t c = 0; c < n; c += W) total += get(h + c, n - c);
  const float mean = sum(total) / (float)n;
  vf squares = {};
  for (int64_t c = 0; c < n; c += W) {
    const vf d = only(get(h + c, n - c) - mean, n - c);
    squares += d * d;
  }
  return {mean, 1.0f / __builtin_sqrtf(sum(squares) / (float)n + eps)};
}

void forward_token(const HeadNormForward& call, const float* h, const float* a, const float* z, float* y) {
  const int64_t n = call.channels / call.heads;
  const HeadNormWeights& w = call.weights;
  for (int64_t head = 0; head < call.channels; head += n) {
    const Moments m = moments(h + head, n, call.eps);
    for (int64_t i = 0; i < n; i += W) {
      const int64_t c = head + i, left = n - i;
      const vf normed = (get(h + c, left) - m.mean) * m.rstd;
      vf value = normed + normed * get(w.scale + c, left) + get(w.skip + c, left) * get(a + c, left);
      if (w.bias) value += get(w.bias + c, left);
      put(y + c, value * silu(get(z + c, left)), left);
    }
  }
}

void backward_token(const HeadNormBackward& call, const float* h, const float* a, const float* z,
                    const float* dy, float* dh, float* da, float* dz) {
  const int64_t n = call.channels / call.heads;
  const HeadNormWeights& w = call.weights;
  for (int64_t head = 0; head < call.channels; head += n) {
    const Moments m = moments(h + head, n, call.eps);
    vf sum_d = {}, sum_dx = {};  // of d loss / d normed, and of it times normed
    for (int64_t i = 0; i < n; i += W) {
      const int64_t c = head + i, left = n - i;
      const vf normed = only((get(h + c, left) - m.mean) * m.rstd, left), scale = get(w.scale + c, left);
      const vf skip = get(w.skip + c, left), av = get(a + c, left), zv = get(z + c, left),
               d = get(dy + c, left);
      vf value = normed + normed * scale + skip * av;
      if (w.bias) value += get(w.bias + c, left);
      const SiluAndSlope gate = silu_and_slope(zv);
      const vf dvalue = d * gate.value, dnormed = dvalue + dvalue * scale;
      put(dz + c, d * value * gate.slope, left);
      put(da + c, dvalue * skip, left);
      put(dh + c, dnormed, left);
      add_to(call.dscale + c, dvalue * normed, left);
      add_to(call.dbias + c, dvalue, left);
      add_to(call.dskip + c, dvalue * av, left);
      sum_d += dnormed;
      sum_dx += dnormed * normed;
    }
    const float mean_d = sum(sum_d) / (float)n, mean_dx = sum(sum_dx) / (float)n;
    for (int64_t i = 0; i < n; i += W) {
      const int64_t c = head + i, left = n - i;
      const vf normed = (get(h + c, left) - m.mean) * m.rstd;
      put(dh + c, m.rstd * (get(dh + c, left) - mean_d - normed * mean_dx), left);
    }
  }
}

template <class View>
TESSERA_INLINE auto row(const View& view, int64_t b, int64_t t) {
  return view.data + b * view.batch + t * view.token;
}

void widen_rows(const uint16_t* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + W <= count; i += W) store(to + i, load((const bf16*)from + i));
  if (i < count) store_part(to + i, load_part((const bf16*)from + i, count - i), count - i);
}
void narrow_rows(const float* from, uint16_t* to, int64_t count) {
  int64_t i = 0;
  for (; i + W <= count; i += W) store((bf16*)to + i, load(from + i));
  if (i < count) store_part((bf16*)to + i, load_part(from + i, count - i), count - i);
}

}  // namespace

void head_norm_forward(const HeadNormForward& call, int64_t begin, int64_t end) {
  for (int64_t at = begin; at < end; ++at) {
    const int64_t b = at / call.tokens, t = at % call.tokens;
    forward_token(call, row(call.h, b, t), row(call.a, b, t), row(call.z, b, t), row(call.y, b, t));
  }
}

void head_norm_backward(const HeadNormBackward& call, int64_t begin, int64_t end) {
  for (int64_t at = begin; at < end; ++at) {
    const int64_t b = at / call.tokens, t = at % call.tokens;
    backward_token(call, row(call.h, b, t), row(call.a, b, t), row(call.z, b, t), row(call.dy, b, t),
                   row(call.dh, b, t), row(call.da, b, t), row(call.dz, b, t));
  }
}

extern const MixerFunctions mixer_functions;
const MixerFunctions mixer_functions = {depthwise_forward,  depthwise_backward, silu_backward,
                                        headwise_forward,   headwise_backward,  head_norm_forward,
                                        head_norm_backward, widen_rows,         narrow_rows};

}  // namespace tessera::kernels::TESSERA_ISA
