// Slopes of activations and gradients of norms for one instruction set. Per-ISA.
#include "kernels/linear/linear_backward.h"

#include "kernels/linear/gelu.h"
#include "kernels/rows.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

// Returns W numbers of a row, or the `left` remaining ones.
TESSERA_INLINE vf numbers(const Rows& rows, int64_t r, int64_t c, int64_t left) {
  const int64_t at = r * rows.row + c;
  if (rows.element == Element::f32) return get(static_cast<const float*>(rows.data) + at, left);
  return get(static_cast<const bf16*>(rows.data) + at, left);
}
TESSERA_INLINE void put_numbers(const RowsOut& rows, int64_t r, int64_t c, vf v, int64_t left) {
  const int64_t at = r * rows.row + c;
  if (rows.element == Element::f32)
    put(static_cast<float*>(rows.data) + at, v, left);
  else
    put(static_cast<bf16*>(rows.data) + at, v, left);
}

void activation(const ActivationBackward& call, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r)
    for (int64_t c = 0; c < call.columns; c += W) {
      const int64_t left = call.columns - c;
      const vf before = numbers(call.before, r, c, left), dy = numbers(call.dy, r, c, left);
      if (call.gated) {
        const SiluAndSlope gate = silu_and_slope(numbers(call.gate_before, r, c, left));
        put_numbers(call.dbefore, r, c, dy * gate.value, left);
        put_numbers(call.dgate, r, c, dy * before * gate.slope, left);
      } else {
        const vf slope = call.with_tanh ? gelu_tanh_slope(before) : gelu_slope(before);
        put_numbers(call.dbefore, r, c, dy * slope, left);
      }
    }
}

TESSERA_INLINE vf only(vf v, int64_t left) { return left < W ? (lanes() < (int32_t)left ? v : vf{}) : v; }

void norm(const NormBackward& call, int64_t begin, int64_t end, float* sums) {
  const float count = (float)call.columns;
  for (int64_t r = begin; r < end; ++r) {
    vf total = {}, squares = {}, gradients = {}, along = {};
    for (int64_t c = 0; call.centred && c < call.columns; c += W)
      total += numbers(call.x, r, c, call.columns - c);
    const float mean = sum(total) / count;
    for (int64_t c = 0; c < call.columns; c += W) {
      const int64_t left = call.columns - c;
      const vf v = only(numbers(call.x, r, c, left) - mean, left);
      vf g = numbers(call.dy, r, c, left);
      if (call.weight) g *= get(call.weight + c, left);
      squares += v * v, gradients += g, along += g * v;
    }
    const float factor = 1.0f / __builtin_sqrtf(sum(squares) / count + call.eps);
    const float shift = call.centred ? sum(gradients) / count : 0;
    const float slope = sum(along) / count * factor * factor;
    for (int64_t c = 0; c < call.columns; c += W) {
      const int64_t left = call.columns - c;
      const vf v = numbers(call.x, r, c, left) - mean, dy = numbers(call.dy, r, c, left);
      vf g = dy;
      if (call.weight) g *= get(call.weight + c, left);
      put_numbers(call.dx, r, c, factor * (g - shift - v * slope), left);
      if (call.dweight) add_to(sums + c, dy * v * factor, left);
      if (call.dbias) add_to(sums + call.columns + c, dy, left);
    }
  }
}

void scale(const SampleScaleBackward& call, int64_t begin, int64_t end, float* sums) {
  for (int64_t r = begin; r < end; ++r)
    for (int64_t c = 0; c < call.columns; c += W) {
      const int64_t left = call.columns - c;
      const vf before = numbers(call.before, r, c, left), dy = numbers(call.dy, r, c, left);
      put_numbers(call.dbefore, r, c, dy * get(call.scale + c, left), left);
      if (call.dscale) add_to(sums + c, dy * before, left);
    }
}

}  // namespace

extern const LinearBackwardFunctions linear_backward;
const LinearBackwardFunctions linear_backward = {activation, norm, scale};

}  // namespace tessera::kernels::TESSERA_ISA
