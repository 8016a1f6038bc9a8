// The machine as a kernel's device code sees it: PTX on a GPU, the same lane by lane on the host (emulate.h).
//
// Device code is in NAME.cuh next to the operator's reference. nvcc compiles it for the library, g++ for the
// tests. A kernel is a struct with the types and numbers that launch.h needs and a function
//   static TESSERA_DEVICE void run(const Call& call, char* shared, Block at)
// which every thread of block `at` runs. All sums have a fixed order: a run must continue bit for bit.
#pragma once

#include <math.h>
#include <stdint.h>

#include "kernels/types.h"

#ifdef __CUDACC__
#define TESSERA_DEVICE __device__ __forceinline__
#define TESSERA_UNROLL _Pragma("unroll")
#define TESSERA_ROLLED _Pragma("unroll 1")
#else
#define TESSERA_DEVICE inline
#define TESSERA_UNROLL
#define TESSERA_ROLLED
#endif

namespace tessera::kernels::gpu {

struct bf16 {
  uint16_t bits;
};
// The place of a block in the grid.
struct Block {
  int64_t x, y, z;
};
constexpr float kLog2e = 1.4426950408889634f;
constexpr int kLanes = 32;

}  // namespace tessera::kernels::gpu

#ifdef __CUDACC__
#include "kernels/gpu/warp_device.cuh"
#else
#include "kernels/gpu/emulate.h"
#endif

namespace tessera::kernels::gpu {

// Eight numbers of 16 or 32 bytes on a 16-byte boundary, widened to float.
struct alignas(16) Words {
  uint32_t w[4];
};
TESSERA_DEVICE void load8(float (&to)[8], const void* from, Element element, int64_t index) {
  if (element == Element::bf16) {
    const Words words = *(const Words*)((const bf16*)from + index);
    TESSERA_UNROLL for (int i = 0; i < 4; ++i) to[2 * i] = low(words.w[i]), to[2 * i + 1] = high(words.w[i]);
    return;
  }
  const Words first = *(const Words*)((const float*)from + index);
  const Words second = *(const Words*)((const float*)from + index + 4);
  TESSERA_UNROLL for (int i = 0; i < 4; ++i) to[i] = as_float(first.w[i]), to[4 + i] = as_float(second.w[i]);
}
TESSERA_DEVICE void store8(void* to, Element element, int64_t index, const float (&from)[8]) {
  if (element == Element::bf16) {
    Words words;
    TESSERA_UNROLL for (int i = 0; i < 4; ++i) words.w[i] = pack(from[2 * i], from[2 * i + 1]);
    *(Words*)((bf16*)to + index) = words;
    return;
  }
  Words first, second;
  TESSERA_UNROLL for (int i = 0; i < 4; ++i) first.w[i] = as_bits(from[i]),
                                             second.w[i] = as_bits(from[4 + i]);
  *(Words*)((float*)to + index) = first, *(Words*)((float*)to + index + 4) = second;
}

// The sum over the lanes of a warp, the same bits in each lane.
TESSERA_DEVICE float warp_sum(float x) {
  TESSERA_UNROLL for (int mask = 16; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
  return x;
}
// The sum over a block of kWarps warps; `room` holds kWarps floats of shared memory, free after a barrier.
template <int kWarps>
TESSERA_DEVICE float block_sum(float x, float* room) {
  x = warp_sum(x);
  if (kWarps == 1) return x;
  if (lane() == 0) room[warp()] = x;
  barrier();
  float total = 0;
  TESSERA_UNROLL for (int w = 0; w < kWarps; ++w) total += room[w];
  barrier();
  return total;
}

TESSERA_DEVICE float sigmoid(float x) { return 1 / (1 + exp2_fast(-kLog2e * x)); }
TESSERA_DEVICE float log_sigmoid(float x) { return x < 0 ? x - log1pf(expf(x)) : -log1pf(expf(-x)); }
TESSERA_DEVICE int smaller(int a, int b) { return a < b ? a : b; }

}  // namespace tessera::kernels::gpu
