// A block of a GPU on the host, for tests: what warp.h promises, lane by lane, under the sanitizers.
//
// Threads are fibers that take turns. The lane that arrives last does the work of a collective for its warp.
// A race shows in one of two passes (set_emulated_order): asynchronous copies arrive as late as they may and
// the first warp runs ahead as far as barriers let it, or copies arrive at once and the last warp does.
// Shared memory starts as NaN. Not emulated: the memory model between blocks, and speed.
#pragma once

#include <stddef.h>
#include <string.h>

#include <functional>
#include <stdexcept>

namespace tessera::kernels::gpu {

// Thrown by emulate() for an error that a GPU would hang or stop at.
struct EmulatedFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};
enum class EmulatedOrder { late, early };
void set_emulated_order(EmulatedOrder order);

// Runs body(shared) in each of `threads` threads of a block with that much shared memory. Throws EmulatedFault.
void emulate(int threads, size_t shared_bytes, const std::function<void(char* shared)>& body);

// The rest is for device code. Collectives take all 32 lanes of a warp.
int thread();
inline int lane() { return thread() & 31; }
inline int warp() { return thread() >> 5; }
void barrier();
float shuffle_xor(float x, int mask);
float shuffle_up(float x, int distance);  // lanes below `distance` keep their own

inline float as_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}
inline uint32_t as_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(x));
  return bits;
}
inline float low(uint32_t pair) { return as_float(pair << 16); }
inline float high(uint32_t pair) { return as_float(pair & 0xffff0000u); }
inline float to_float(bf16 x) { return as_float(static_cast<uint32_t>(x.bits) << 16); }
inline bf16 to_bf16(float x) {
  const uint32_t bits = as_bits(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return {0x7fc0};
  return {static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}
inline uint32_t pack(float first, float second) {  // the first one in the low half
  return to_bf16(first).bits | static_cast<uint32_t>(to_bf16(second).bits) << 16;
}
inline float exp2_fast(float x) { return exp2f(x); }
inline float inverse_sqrt(float x) { return 1 / sqrtf(x); }

// ldmatrix x4: four 8 x 8 matrices, matrix i from the rows that lanes 8 i … 8 i + 7 point to (16-byte aligned).
void load_matrices(uint32_t (&r)[4], const bf16* row);
void load_matrices_transposed(uint32_t (&r)[4], const bf16* row);
// mma.sync m16n8k16: d (16,8) += a (16,16) b (16,8), sums in float.
void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
// cp.async of 16 bytes to shared memory; zeros if not `present`.
void copy16_async(void* to, const void* from, bool present);
void commit_copies();
void wait_for_copies(int pending);  // until at most that many groups are on their way
template <int kPending>
void wait_copies() {
  wait_for_copies(kPending);
}

}  // namespace tessera::kernels::gpu
