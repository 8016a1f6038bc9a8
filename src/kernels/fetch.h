// Lines prefetched before they are read or written: rows that are pieces of longer ones, which the processor
// does not foresee. C headers only: per-ISA files include it.
#pragma once

#include <stdint.h>

namespace tessera::kernels {

// How soon it is used: at once, or after much that should not push it out of the first-level cache.
enum class FetchFor : int32_t { soon, later };

// `bytes` from `from` on. (Inlined always: a function that does nothing else counts as one without effect,
// and GCC leaves out the call.)
template <FetchFor use>
__attribute__((always_inline)) static inline void fetch(const void* from, int64_t bytes) {
  constexpr int kLocality = use == FetchFor::soon ? 3 : 2;
  const char *at = (const char*)from, *last = at + bytes - 1;
  for (; at < last; at += 64) __builtin_prefetch(at, 0, kLocality);
  __builtin_prefetch(last, 0, kLocality);
}

}  // namespace tessera::kernels
