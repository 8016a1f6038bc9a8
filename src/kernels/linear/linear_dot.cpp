// Products of int8 quadruples (AVX512_VNNI) or bfloat16 pairs (AVX512_BF16). Built once for each, on top of
// AVX-512.
#include "kernels/linear/product_tile.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

#if defined(__AVX512BF16__)
struct Dot {
  using Word = int32_t;
  using Vector = vi;
  using Sum = vf;
  TESSERA_INLINE vi splat(int32_t a) { return splat_int(a); }
  TESSERA_INLINE vf multiply_add(vf sum, vi a, vi b) { return dot_pairs(sum, a, b); }
};
#else
// Bytes of x are unsigned (the number plus 128), those of W signed.
struct Dot {
  using Word = int32_t;
  using Vector = vi;
  using Sum = vi;
  TESSERA_INLINE vi splat(int32_t a) { return splat_int(a); }
  TESSERA_INLINE vi multiply_add(vi sum, vi a, vi b) {
    return (vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
  }
};
#endif

}  // namespace

extern void (*const linear_dot)(const ProductTile&);
void (*const linear_dot)(const ProductTile&) = product<Dot>;

}  // namespace tessera::kernels::TESSERA_ISA
