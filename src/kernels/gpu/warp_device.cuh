// What warp.h promises, on a GPU. Included by warp.h alone.
#pragma once

namespace tessera::kernels::gpu {

TESSERA_DEVICE int thread() { return (int)threadIdx.x; }
TESSERA_DEVICE int lane() { return (int)(threadIdx.x & 31); }
TESSERA_DEVICE int warp() { return (int)(threadIdx.x >> 5); }
TESSERA_DEVICE void barrier() { __syncthreads(); }
TESSERA_DEVICE float shuffle_xor(float x, int mask) { return __shfl_xor_sync(~0u, x, mask); }
TESSERA_DEVICE float shuffle_up(float x, int distance) { return __shfl_up_sync(~0u, x, distance); }

TESSERA_DEVICE float as_float(uint32_t bits) { return __uint_as_float(bits); }
TESSERA_DEVICE uint32_t as_bits(float x) { return __float_as_uint(x); }
TESSERA_DEVICE float low(uint32_t pair) { return __uint_as_float(pair << 16); }
TESSERA_DEVICE float high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }
TESSERA_DEVICE float to_float(bf16 x) { return __uint_as_float((uint32_t)x.bits << 16); }
TESSERA_DEVICE uint32_t pack(float first, float second) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
TESSERA_DEVICE bf16 to_bf16(float x) { return {(uint16_t)pack(x, 0)}; }
TESSERA_DEVICE float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
TESSERA_DEVICE float inverse_sqrt(float x) { return rsqrtf(x); }

TESSERA_DEVICE uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
TESSERA_DEVICE void load_matrices(uint32_t (&r)[4], const bf16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}
TESSERA_DEVICE void load_matrices_transposed(uint32_t (&r)[4], const bf16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}
TESSERA_DEVICE void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
TESSERA_DEVICE void copy16_async(void* to, const void* from, bool present) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(present ? 16 : 0));
}
TESSERA_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;"); }
template <int kPending>
TESSERA_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending));
}

}  // namespace tessera::kernels::gpu
