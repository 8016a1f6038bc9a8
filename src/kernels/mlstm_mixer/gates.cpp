// The gates of all heads from a and x, forward and backward; contract in parts.h. Built once per instruction
// set.
#include "kernels/mlstm_mixer/parts_isa.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

constexpr int kGates = 8;            // gates of one pass; weights and gates are padded to multiples of it
constexpr int64_t kTokenBlock = 16;  // of backward

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

// gate[t] = bias + weight [a; x] for N tokens and eight gates.
template <int N>
TESSERA_INLINE void gate_tokens(const GatesForward& call, const float* const (&rows)[2],
                                const int64_t (&stride)[2], float* gate, const float* weight,
                                const float* bias) {
  const int64_t C = call.channels;
  vf total[N][kGates];
#pragma GCC unroll 3
  for (int n = 0; n < N; ++n)
#pragma GCC unroll 8
    for (int g = 0; g < kGates; ++g) total[n][g] = vf{};
  for (int part = 0; part < 2; ++part) {
    const float *from = rows[part], *w = weight + part * C;
    for (int64_t c = 0; c < C; c += W) {
      const int64_t left = C - c;
      vf x[N];
#pragma GCC unroll 3
      for (int n = 0; n < N; ++n) x[n] = get(from + n * stride[part] + c, left);
#pragma GCC unroll 8
      for (int g = 0; g < kGates; ++g) {
        const vf wg = get(w + g * 2 * C + c, left);
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

// Tokens [t, end) of sample b.
void forward_piece(const GatesForward& call, int64_t b, int64_t t, int64_t end) {
  const float *a = call.a.data + b * call.a.batch, *x = call.x.data + b * call.x.batch;
  const int64_t stride[2] = {call.a.token, call.x.token};
  for (int64_t g = 0; g < call.gates; g += kGates) {
    const float *weight = call.weight + g * 2 * call.channels, *bias = call.bias + g;
    float* gate = call.gate.data + b * call.gate.batch + g;
    int64_t i = t;
    for (; i + 3 <= end; i += 3)
      gate_tokens<3>(call, {a + i * stride[0], x + i * stride[1]}, stride, gate + i * call.gate.token, weight,
                     bias);
    for (; i < end; ++i)
      gate_tokens<1>(call, {a + i * stride[0], x + i * stride[1]}, stride, gate + i * call.gate.token, weight,
                     bias);
  }
}

// What one of the two inputs, and eight of the gates, have in the gradients of tokens [t, end) of a sample.
struct Part {
  const float *in, *pre, *dgate;  // pre: null where the SiLU's slope is not due
  float* din;
  int64_t in_row, pre_row, dgate_row, din_row;
  const float* weight;  // rows of 2 C
  float* dweight;
};

// din = (din + sum_g dgate_g w_g) silu'(pre) and dw_g += sum_t dgate_g in, both in one pass.
void backward_part(const Part& p, int64_t channels, int64_t t, int64_t end) {
  for (int64_t c = 0; c < channels; c += W) {
    const int64_t left = channels - c;
    vf w[kGates], total[kGates];
#pragma GCC unroll 8
    for (int g = 0; g < kGates; ++g) w[g] = get(p.weight + g * 2 * channels + c, left), total[g] = vf{};
    for (int64_t i = t; i < end; ++i) {
      const float* dg = p.dgate + i * p.dgate_row;
      const vf in = get(p.in + i * p.in_row + c, left);
      vf even = get(p.din + i * p.din_row + c, left), odd = {};
#pragma GCC unroll 4
      for (int g = 0; g < kGates; g += 2) {
        even += dg[g] * w[g], odd += dg[g + 1] * w[g + 1];
        total[g] += dg[g] * in, total[g + 1] += dg[g + 1] * in;
      }
      const vf sum = even + odd;
      put(p.din + i * p.din_row + c, p.pre ? sum * silu_slope(get(p.pre + i * p.pre_row + c, left)) : sum,
          left);
    }
#pragma GCC unroll 8
    for (int g = 0; g < kGates; ++g) add_to(p.dweight + g * 2 * channels + c, total[g], left);
  }
}

void backward_piece(const GatesBackward& call, int64_t b, int64_t t, int64_t end) {
  const int64_t C = call.channels;
  const float* dgate = call.dgate.data + b * call.dgate.batch;
  for (int64_t g = 0; g < call.gates; g += kGates) {
    const bool last = g + kGates >= call.gates;
    const float* weight = call.weight + g * 2 * C;
    float* dweight = call.dweight + g * 2 * C;
    const Part a = {call.a.data + b * call.a.batch,
                    last ? call.pre.data + b * call.pre.batch : nullptr,
                    dgate + g,
                    call.da.data + b * call.da.batch,
                    call.a.token,
                    call.pre.token,
                    call.dgate.token,
                    call.da.token,
                    weight,
                    dweight};
    const Part x = {call.x.data + b * call.x.batch,
                    nullptr,
                    dgate + g,
                    call.dx.data + b * call.dx.batch,
                    call.x.token,
                    0,
                    call.dgate.token,
                    call.dx.token,
                    weight + C,
                    dweight + C};
    backward_part(a, C, t, end);
    backward_part(x, C, t, end);
    for (int64_t i = t; i < end; ++i)
      for (int o = 0; o < kGates; ++o) call.dbias[g + o] += dgate[i * call.dgate.token + g + o];
  }
}

}  // namespace

void gates_forward(const GatesForward& call, int64_t begin, int64_t end) {
  for_each_piece(call.tokens, call.tokens, begin, end,
                 [&](int64_t b, int64_t t, int64_t last) { forward_piece(call, b, t, last); });
}

void gates_backward(const GatesBackward& call, int64_t begin, int64_t end) {
  for_each_piece(call.tokens, kTokenBlock, begin, end,
                 [&](int64_t b, int64_t t, int64_t last) { backward_piece(call, b, t, last); });
}

}  // namespace tessera::kernels::TESSERA_ISA
