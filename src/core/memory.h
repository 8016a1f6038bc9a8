// How the process keeps its memory.
#pragma once

#include <cstdint>

namespace tessera {

// Freed blocks stay with the process instead of going back to the system each time: training frees and asks
// for the same large tensors in every step, and fresh pages cost more than the arithmetic on them (a fifth of
// a step of a small Vision-LSTM). For programs, at their start; no effect where the C library has no such
// setting.
void keep_freed_memory();

// The machine's main memory in bytes; 0 where the system does not say.
uint64_t main_memory_bytes();

// Main memory that this process holds now (its resident set) in bytes; 0 where the system does not say.
uint64_t resident_bytes();

}  // namespace tessera
