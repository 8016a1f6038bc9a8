#include "optim/plain_loops.h"

#include <math.h>
#include <string.h>

#include <algorithm>

#include "core/threads.h"

namespace tessera::train::plain {

TESSERA_FOR_EACH_ISA
void adam(float* __restrict p, const float* __restrict g, float* __restrict m, float* __restrict v, int64_t n,
          const Adam& constants) {
  const Adam c = constants;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float grad = g[i] * c.scale + p[i] * c.l2;
    const float mean = c.beta1 * m[i] + c.one_minus_beta1 * grad;
    const float square = c.beta2 * v[i] + c.one_minus_beta2 * grad * grad;
    m[i] = mean;
    v[i] = square;
    p[i] = p[i] * c.decay - c.step_size * (mean / (sqrtf(square) / c.root_bias2 + c.eps));
  }
}

TESSERA_FOR_EACH_ISA
void amsgrad(float* __restrict p, const float* __restrict g, float* __restrict m, float* __restrict v,
             float* __restrict largest, int64_t n, const Adam& constants) {
  const Adam c = constants;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float grad = g[i] * c.scale + p[i] * c.l2;
    const float mean = c.beta1 * m[i] + c.one_minus_beta1 * grad;
    const float square = c.beta2 * v[i] + c.one_minus_beta2 * grad * grad;
    const float most = square > largest[i] ? square : largest[i];
    m[i] = mean;
    v[i] = square;
    largest[i] = most;
    p[i] = p[i] * c.decay - c.step_size * (mean / (sqrtf(most) / c.root_bias2 + c.eps));
  }
}

TESSERA_FOR_EACH_ISA
LambNorms lamb_moments(float* __restrict p, const float* __restrict g, float* __restrict m,
                       float* __restrict v, int64_t n, const Lamb& constants) {
  const Lamb c = constants;
  double parameter = 0, update = 0;
  if (c.decay != 1) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) p[i] *= c.decay;
  }
#pragma omp simd reduction(+ : parameter, update)
  for (int64_t i = 0; i < n; ++i) {
    const float grad = g[i] * c.scale;
    const float mean = c.beta1 * m[i] + c.beta3 * grad;
    const float square = c.beta2 * v[i] + c.one_minus_beta2 * grad * grad;
    m[i] = mean;
    v[i] = square;
    const double u = (mean / c.bias1) / (sqrtf(square) / c.root_bias2 + c.eps) + c.l2 * p[i];
    const double w = p[i];
    parameter += w * w;
    update += u * u;
  }
  return {parameter, update};
}

TESSERA_FOR_EACH_ISA
void lamb_step(float* __restrict p, const float* __restrict m, const float* __restrict v, int64_t n,
               const Lamb& constants, float step) {
  const Lamb c = constants;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i)
    p[i] -= step * ((m[i] / c.bias1) / (sqrtf(v[i]) / c.root_bias2 + c.eps) + c.l2 * p[i]);
}

TESSERA_FOR_EACH_ISA
void sgd(float* __restrict p, const float* __restrict g, float* __restrict b, int64_t n,
         const Sgd& constants) {
  const Sgd c = constants;
  if (!b) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) p[i] -= c.lr * (c.trust * (c.scale * g[i] + c.l2 * p[i]));
    return;
  }
  // The first buffer is the gradient itself, without dampening.
  const float momentum = c.first ? 0 : c.momentum, keep = c.first ? 1 : c.keep;
  const float from_gradient = c.nesterov ? 1 : 0, from_buffer = c.nesterov ? c.momentum : 1;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float grad = c.trust * (c.scale * g[i] + c.l2 * p[i]);
    const float buffer = momentum * b[i] + keep * grad;
    b[i] = buffer;
    p[i] -= c.lr * (from_gradient * grad + from_buffer * buffer);
  }
}

// Processes four quarters at once, since a core reads a third faster from memory in four streams than in one.
TESSERA_FOR_EACH_ISA
double sum_of_squares(const float* x, int64_t n) {
  const auto square = [](float v) { return static_cast<double>(v) * static_cast<double>(v); };
  const int64_t quarter = n / 4;
  const float *x1 = x + quarter, *x2 = x1 + quarter, *x3 = x2 + quarter;
  double sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
#pragma omp simd reduction(+ : sum0, sum1, sum2, sum3)
  for (int64_t i = 0; i < quarter; ++i) {
    sum0 += square(x[i]);
    sum1 += square(x1[i]);
    sum2 += square(x2[i]);
    sum3 += square(x3[i]);
  }
  for (int64_t i = 4 * quarter; i < n; ++i) sum0 += square(x[i]);
  return (sum0 + sum1) + (sum2 + sum3);
}

TESSERA_FOR_EACH_ISA
double sum_of_magnitudes(const float* x, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(fabsf(x[i]));
  return sum;
}

double sum_of_powers(const float* x, int64_t n, double divisor, double power) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += pow(fabs(static_cast<double>(x[i])) / divisor, power);
  return sum;
}

// Magnitudes of floats are ordered like their bits, with NaNs above all others.
TESSERA_FOR_EACH_ISA
float largest_magnitude(const float* x, int64_t n) {
  uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits;
    memcpy(&bits, x + i, sizeof bits);
    bits &= 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  float value;
  memcpy(&value, &largest, sizeof value);
  return value;
}

TESSERA_FOR_EACH_ISA
void average(float* __restrict mean, const float* __restrict x, int64_t n, float add) {
  if (add == 1) return static_cast<void>(memcpy(mean, x, static_cast<size_t>(n) * sizeof(float)));
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) mean[i] += add * (x[i] - mean[i]);
}

std::vector<Block> cut_into_blocks(std::span<const int64_t> sizes) {
  constexpr int64_t kElements = 1 << 14;  // 64 KiB per array: four fit the second-level cache
  std::vector<Block> blocks;
  for (size_t tensor = 0; tensor < sizes.size(); ++tensor)
    for (int64_t begin = 0; begin < sizes[tensor]; begin += kElements)
      blocks.push_back({tensor, begin, std::min(sizes[tensor], begin + kElements)});
  return blocks;
}

}  // namespace tessera::train::plain
