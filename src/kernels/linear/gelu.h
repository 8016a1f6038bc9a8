// The GELU, x Phi(x), and its approximation with tanh (Hendrycks & Gimpel 2016). Per-ISA.
#pragma once

#include "kernels/simd.h"

namespace tessera::kernels::TESSERA_ISA {

// erf(z) = z P(z^2) / Q(z^2), fitted to a relative error of 1.5e-8 on |z| < 3.85; +-1 beyond.
TESSERA_INLINE vf erf(vf z) {
  const vf s = z * z;
  vf p = s * 2.10826513e-6f + 2.85663689e-4f;
  p = p * s + 3.67364158e-3f;
  p = p * s + 5.24787909e-2f;
  p = p * s + 1.87891610e-1f;
  p = p * s + 1.12837915f;
  vf q = s * 3.87311877e-5f + 1.14542246e-3f;
  q = q * s + 1.47843144e-2f;
  q = q * s + 1.13126344e-1f;
  q = q * s + 4.99847480e-1f;
  q = q * s + 1.0f;
  const vf inside = z * p * reciprocal(min(q, splat(1e6f)));
  const vf beyond = z < 0.0f ? splat(-1.0f) : splat(1.0f);
  const vf result = abs(z) < 3.85f ? inside : beyond;
  return z != z ? z : result;
}
#if defined(__AVX512F__)
// Functions of |x| in 16 pieces: polynomials of the distance f from a piece's middle, in units of its width.
// Row k has the coefficients of f^k, which are 0 or nearly so in the last piece. Phi(-|x|) to 4e-8:
constexpr float kTailEnd = 5.7142857f, kTailPieces = 2.625f;
alignas(64) constexpr float kTail[6][16] = {
    {0.5f, 0.3516193f, 0.22305843f, 0.12654896f, 0.06377815f, 0.028405512f, 0.011135488f, 0.0038303803f,
     0.0011533109f, 3.033837e-04f, 6.961753e-05f, 1.391856e-05f, 2.422079e-06f, 3.665618e-07f, 4.821465e-08f,
     0},
    {-0.15197802f, -0.14134073f, -0.11369125f, -0.07909697f, -0.047595497f, -0.024771081f, -0.011150573f,
     -0.0043413276f, -0.0014619115f, -4.257874e-04f, -1.07260006e-04f, -2.3369867e-05f, -4.4040085e-06f,
     -7.178172e-07f, -1.0119374e-07f, -2.3267064e-07f},
    {-4.559395e-08f, 0.010255733f, 0.01649909f, 0.01721826f, 0.013814645f, 0.0089873895f, 0.004854771f,
     0.0022051444f, 8.4862363e-04f, 2.7804493e-04f, 7.781746e-05f, 1.8647774e-05f, 3.832838e-06f,
     6.765963e-07f, 1.0268268e-07f, -2.454303e-06f},
    {0.003676352f, 0.0029224975f, 0.0011536103f, -5.8560626e-04f, -0.0015218662f, -0.0015746362f,
     -0.0011393789f, -6.417148e-04f, -2.9306675e-04f, -1.107628e-04f, -3.5054116e-05f, -9.359487e-06f,
     -2.119044e-06f, -4.0829718e-07f, -6.7131445e-08f, -1.1290595e-05f},
    {-1.3918564e-06f, -3.5106207e-04f, -4.7934923e-04f, -3.5134735e-04f, -1.1412242e-04f, 6.667608e-05f,
     1.2954355e-04f, 1.0936517e-04f, 6.468897e-05f, 2.965873e-05f, 1.0973714e-05f, 3.3452857e-06f,
     8.505996e-07f, 1.8184186e-07f, 3.2865312e-08f, -2.2557802e-05f},
    {-7.812015e-05f, -5.301398e-05f, 2.7260546e-06f, 4.3035954e-05f, 4.6014462e-05f, 2.4378758e-05f,
     2.195582e-06f, -8.198133e-06f, -8.570362e-06f, -5.2870505e-06f, -2.3972625e-06f, -8.546266e-07f,
     -2.470697e-07f, -5.8927814e-08f, -1.1720739e-08f, -1.6411706e-05f},
};
// Phi(-|x|) - |x| phi(x), the slope of GELU for negative x, in the same pieces, with an error of 1.9e-7.
alignas(64) constexpr float kTailSlope[6][16] = {
    {0.5f, 0.2102786f, -0.0043240422f, -0.110741965f, -0.12660384f, -0.09544991f, -0.055767957f,
     -0.026558911f, -0.010541979f, -0.0035287016f, -0.001002982f, -2.431499e-04f, -5.0426057e-05f,
     -8.965085e-06f, -1.3685062e-06f, 0},
    {-0.303956f, -0.26216942f, -0.16138487f, -0.05488363f, 0.0153255295f, 0.040330246f, 0.035954915f,
     0.022189012f, 0.010654384f, 0.004153598f, 0.0013420867f, 3.6363662e-04f, 8.3226536e-05f, 1.6169533e-05f,
     2.6759947e-06f, 7.5609273e-06f},
    {-3.638002e-07f, 0.039533496f, 0.05641771f, 0.046384048f, 0.023182055f, 0.0033432131f, -0.005944264f,
     -0.0068606166f, -0.004487841f, -0.0021565298f, -8.1819436e-04f, -2.5292256e-04f, -6.478556e-05f,
     -1.38927035e-05f, -2.5110692e-06f, 8.006186e-05f},
    {0.014706965f, 0.010273486f, 7.523594e-04f, -0.006574892f, -0.007899853f, -0.0049332962f, -0.001423157f,
     5.029437e-04f, 8.928917e-04f, 6.1689084e-04f, 2.9323722e-04f, 1.0708057e-04f, 3.136191e-05f,
     7.53107e-06f, 1.5022313e-06f, 3.680089e-04f},
    {-1.1110475e-05f, -0.002014008f, -0.0023630126f, -0.0011097192f, 3.4693387e-04f, 9.397154e-04f,
     7.1229035e-04f, 2.6010096e-04f, -1.8783905e-05f, -8.9255445e-05f, -6.4870685e-05f, -3.0263063e-05f,
     -1.05792415e-05f, -2.926952e-06f, -6.5827646e-07f, 7.3540385e-04f},
    {-4.649471e-04f, -2.6906587e-04f, 1.2550745e-04f, 3.2341073e-04f, 2.2180572e-04f, 1.9364357e-05f,
     -8.807949e-05f, -7.950092e-05f, -3.1868945e-05f, -6.334804e-07f, 7.5959993e-06f, 5.5684677e-06f,
     2.4803535e-06f, 8.1250397e-07f, 2.0847735e-07f, 5.349792e-04f},
};
// Phi(-|x|) with an error of 4.2e-5, with powers of f up to the second.
constexpr float kCoarseEnd = 4.2f, kCoarsePieces = 3.68809524f;
alignas(64) constexpr float kCoarseTail[3][16] = {
    {0.5f, 0.39314172f, 0.29381275f, 0.20798825f, 0.1390574f, 0.087596074f, 0.051884055f, 0.028847864f,
     0.015035485f, 0.0073373453f, 0.0033492988f, 0.0014289105f, 0.000569364f, 0.00021176378f, 7.3480114e-05f,
     2.3776896e-05f},
    {-0.10792239f, -0.10404482f, -0.093228176f, -0.077641159f, -0.060096696f, -0.043234594f, -0.028908653f,
     -0.01796557f, -0.010376972f, -0.0055707847f, -0.0027795711f, -0.0012890043f, -0.00055557885f,
     -0.00022256206f, -8.286479e-05f, -2.8674893e-05f},
    {0, 0.0038113534f, 0.0068296683f, 0.0085305423f, 0.0088024009f, 0.0079135261f, 0.0063476637f,
     0.0046006222f, 0.0030356883f, 0.0018325289f, 0.0010154106f, 0.00051767804f, 0.00024325697f,
     0.00010549593f, 4.2268774e-05f, 1.5659312e-05f},
};

template <int powers>
TESSERA_INLINE vf of_pieces(vf size, const float (&table)[powers][16], float pieces) {
  const vf magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer, which is its low bits
  const vf piece = size * pieces + magic, f = size * pieces - (piece - magic);
  const auto of_piece = [&](int power) __attribute__((always_inline)) {
    return (vf)_mm512_maskz_permutexvar_ps((__mmask16)-1, (__m512i)piece, (__m512)load(table[power]));
  };
  vf p = of_piece(powers - 1);
#pragma GCC unroll 8
  for (int power = powers - 2; power >= 0; --power) p = of_piece(power) + f * p;
  return p;
}
// x Phi(x) = max(x, 0) - |x| Phi(-|x|). (0 for minus infinity, where 1 + erf would give NaN.)
template <int powers>
TESSERA_INLINE vf gelu_of_pieces(vf x, const float (&table)[powers][16], float end, float pieces) {
  const vf size = min(splat(end), abs(x));
  return max(vf{}, x) - size * of_pieces(size, table, pieces);
}
#endif

TESSERA_INLINE vf gelu(vf x) {
#if defined(__AVX512F__)
  return gelu_of_pieces(x, kTail, kTailEnd, kTailPieces);
#else
  return 0.5f * x * (1.0f + erf(x * 0.70710678f));
#endif
}
// The same to 8e-5, for inputs and results rounded to 8 bits. With AVX-512 to 5.7e-5, also for very negative
// x.
TESSERA_INLINE vf gelu_coarse(vf x) {
#if defined(__AVX512F__)
  return gelu_of_pieces(x, kCoarseTail, kCoarseEnd, kCoarsePieces);
#else
  // Phi(x) = 1/2 + x P(x^2); 1 or 0 at |x| = 4.2.
  const vf above = max(splat(-4.2f), x), held = min(splat(4.2f), above), s = held * held;
  vf p = s * -9.01750674e-10f + 7.9413212e-8f;
  p = p * s - 3.03792649e-6f;
  p = p * s + 6.68906214e-5f;
  p = p * s - 9.50656889e-4f;
  p = p * s + 9.2982268e-3f;
  p = p * s - 6.55281991e-2f;
  p = p * s + 3.98465872e-1f;
  return above * (held * p + 0.5f);
#endif
}

// The approximation 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) = x sigmoid(z). Constant below -9,
// where the exact magnitude is under 1e-27.
constexpr float kTanhLinear = 1.5957691216f, kTanhCubic = 0.0713548163f;  // z = x (linear + cubic x^2)
TESSERA_INLINE vf gelu_tanh(vf x) {
  const vf held = max(splat(-9.0f), x);
  return held * sigmoid(held * (held * held * kTanhCubic + kTanhLinear));
}
// The same with a relative error of 7e-5.
TESSERA_INLINE vf gelu_tanh_coarse(vf x) {
#if defined(__AVX512F__)
  const vf held = max(splat(-9.0f), x);
  const vf power = held * (held * held * (kTanhCubic * -1.44269504f) + kTanhLinear * -1.44269504f);
  return held * (vf)_mm512_maskz_rcp14_ps((__mmask16)-1, (__m512)(1.0f + exp2_coarse(power)));
#else
  return gelu_tanh(x);
#endif
}
// Its slope, sigmoid(z) + x sigmoid(z) (1 - sigmoid(z)) dz/dx; 0 or 1 beyond 9.
TESSERA_INLINE vf gelu_tanh_slope(vf x) {
  const vf held = min(splat(9.0f), max(splat(-9.0f), x)), square = held * held;
  const vf e = exp_minus(held * (square * kTanhCubic + kTanhLinear)), s = reciprocal(1.0f + e);
  return s * (1.0f + held * (square * (3.0f * kTanhCubic) + kTanhLinear) * e * s);
}

// d gelu / dx = Phi(x) + x phi(x).
TESSERA_INLINE vf gelu_slope(vf x) {
#if defined(__AVX512F__)
  const vf left = of_pieces(min(splat(kTailEnd), abs(x)), kTailSlope, kTailPieces);
  return x < 0.0f ? left : 1.0f - left;
#else
  return 0.5f * (1.0f + erf(x * 0.70710678f)) + x * 0.39894228f * exp(-0.5f * x * x);
#endif
}

}  // namespace tessera::kernels::TESSERA_ISA
