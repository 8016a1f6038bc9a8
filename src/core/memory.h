// How the process keeps its memory.
#pragma once

#include <cstdint>

namespace tessera {

// Freed blocks stay with the process instead of going back to the system each time: training frees and asks
// for the same large tensors in every step, and fresh pages cost more than the arithmetic on them (a fifth of
// a step of a small Vision-LSTM). For programs, at their start; no effect where the C library has no such
// setting.
void keep_freed_memory();

// The reverse, from now on: what is free goes back to the system, and so does every block of `large` bytes and more once
// it is freed. For work whose few tensors are so large that fresh pages cost little beside the arithmetic on them, and
// whose gaps between blocks of different sizes would otherwise come to several times the blocks themselves.
void return_freed_memory(int large = 4 << 20);

// The machine's main memory in bytes; 0 where the system does not say.
uint64_t main_memory_bytes();

// Main memory that this process holds now (its resident set) in bytes; 0 where the system does not say.
uint64_t resident_bytes();

}  // namespace tessera
