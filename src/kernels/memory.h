// Memory of kernels: blocks per thread, their pieces, and prefetches. C headers only, because per-ISA files
// include it; the functions defined here are static, so that each such file has its own copy.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace tessera::kernels {

// Hands out pieces on 64-byte boundaries. With a null base it only counts the bytes.
struct Arena {
  char* base;
  size_t used;
};

template <class T>
[[maybe_unused]] static T* take(Arena& arena, int64_t count) {
  T* piece = arena.base ? (T*)(arena.base + arena.used) : nullptr;
  arena.used += ((size_t)count * sizeof(T) + 63) / 64 * 64;
  return piece;
}

[[maybe_unused]] static int64_t round_up16(int64_t n) { return (n + 15) / 16 * 16; }

// Blocks per thread grow on demand and are kept, so that the steady state allocates nothing.

// The user of a block; each purpose has its own, so that a kernel may call another.
enum class ScratchFor { kernel, composition, shared };

// Returns at least `bytes` bytes on a 64-byte boundary, valid until this thread's next call for the same
// purpose. The contents are undefined.
void* thread_scratch(ScratchFor purpose, size_t bytes);

// Prefetches of pieces of longer rows, which the hardware prefetcher does not predict.

// When the data is used: at once, or after work that should keep its first-level cache.
enum class FetchFor : int32_t { soon, later };

// Prefetches `bytes` from `from` on. Always inlined: GCC drops calls of a function that only prefetches,
// because it has no effect.
template <FetchFor use>
__attribute__((always_inline)) static inline void fetch(const void* from, int64_t bytes) {
  constexpr int kLocality = use == FetchFor::soon ? 3 : 2;
  const char *at = (const char*)from, *last = at + bytes - 1;
  for (; at < last; at += 64) __builtin_prefetch(at, 0, kLocality);
  __builtin_prefetch(last, 0, kLocality);
}

}  // namespace tessera::kernels
