// Prefetches lines before they are read or written, for pieces of longer rows, which the hardware prefetcher
// does not predict. C headers only: per-ISA files include it.
#pragma once

#include <stdint.h>

namespace tessera::kernels {

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
