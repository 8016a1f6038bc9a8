#include "kernels/simd_testing.h"

#include "kernels/simd.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

template <class In, class Out, class Function>
TESSERA_INLINE void apply(const In* in, Out* out, int64_t count, Function function) {
  int64_t i = 0;
  for (; i + W <= count; i += W) store(out + i, function(load(in + i)));
  if (i < count) store_part(out + i, function(load_part(in + i, count - i)), count - i);
}

void probe_exp(const float* in, float* out, int64_t n) {
  apply(
      in, out, n, [](vf x) __attribute__((always_inline)) { return exp(x); });
}
void probe_exp2_below(const float* in, float* out, int64_t n) {
  apply(
      in, out, n, [](vf x) __attribute__((always_inline)) { return exp2_below(x); });
}
void probe_silu(const float* in, float* out, int64_t n) {
  apply(
      in, out, n, [](vf x) __attribute__((always_inline)) { return silu(x); });
}
void probe_silu_coarse(const float* in, float* out, int64_t n) {
  apply(
      in, out, n, [](vf x) __attribute__((always_inline)) { return silu_coarse(x); });
}
void probe_silu_slope(const float* in, float* out, int64_t n) {
  apply(
      in, out, n, [](vf x) __attribute__((always_inline)) { return silu_slope(x); });
}
void probe_silu_slope_coarse(const float* in, float* out, int64_t n) {
  apply(
      in, out, n, [](vf x) __attribute__((always_inline)) { return silu_and_slope_coarse(x).slope; });
}
void probe_log_sigmoid(const float* in, float* out, int64_t n) {
  apply(
      in, out, n, [](vf x) __attribute__((always_inline)) { return log_sigmoid(x); });
}
void probe_to_bf16(const float* in, uint16_t* out, int64_t n) {
  apply(
      in, (bf16*)out, n, [](vf x) __attribute__((always_inline)) { return x; });
}
void probe_from_bf16(const uint16_t* in, float* out, int64_t n) {
  apply((const bf16*)in, out, n, [](vf x) __attribute__((always_inline)) { return x; });
}
float probe_sum(const float* in) { return sum(load(in)); }
void probe_transpose(const float* in, float* out) {
  for (int c = 0; c < W; c += 4) {
    vf columns[4];
    transpose_four(in + c, W, columns);
    for (int i = 0; i < 4; ++i) store(out + (c + i) * W, columns[i]);
  }
}

}  // namespace

extern const SimdProbe simd_probe;
const SimdProbe simd_probe = {W,
                              probe_exp,
                              probe_exp2_below,
                              probe_silu,
                              probe_silu_coarse,
                              probe_silu_slope,
                              probe_silu_slope_coarse,
                              probe_log_sigmoid,
                              probe_to_bf16,
                              probe_from_bf16,
                              probe_sum,
                              probe_transpose};

}  // namespace tessera::kernels::TESSERA_ISA
