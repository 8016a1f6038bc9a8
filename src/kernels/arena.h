// Cuts one block of working memory into pieces. C headers only; everything is static, so each per-ISA file
// has its own copy.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace tessera::kernels {

// Hands out pieces on 64-byte boundaries. With a null base it only counts.
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

}  // namespace tessera::kernels
