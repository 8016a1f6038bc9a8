// How the process manages its memory, and what its container grants.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

namespace tessera {

// Keeps freed blocks in the process instead of returning them to the system. Training allocates the same
// large tensors in every step. Fresh pages cost more than the arithmetic on them (a fifth of a step of a
// small Vision-LSTM). Call it when a program starts; it has no effect if the C library has no such setting.
void keep_freed_memory();

// Returns the pages of free blocks to the system once; later blocks are kept again.
void trim_freed_memory();

// Reverses this: returns free memory to the system, and from now on every freed block of at least `large`
// bytes. For work on a few very large tensors, where fresh pages cost little next to the arithmetic.
// Fragmentation would otherwise take several times the memory of the blocks.
void return_freed_memory(int large = 4 << 20);

struct ContainerLimits {
  std::optional<double> cores;     // processor time a second of real time: `docker run --cpus 1.5`
  std::optional<uint64_t> memory;  // bytes: `--memory 4g`
};

// Returns the smallest limits of the process's control group and those above it, in both versions of Linux's
// control groups. Files are read below `root`, which ends without "/"; missing or unreadable ones set no limit.
ContainerLimits container_limits(const std::string& root = "");

// Returns the machine's main memory in bytes, or its container's limit if that is less, or 0 if unknown.
uint64_t main_memory_bytes();

// Returns the resident set size of this process in bytes, or 0 if unknown.
uint64_t resident_bytes();

// Bytes of an allocation that failed, and those that a GPU had free; 0 = unknown.
struct FailedAllocation {
  uint64_t wanted = 0, free = 0;
};
// Returns the failed allocation of an exception, of the library or of LibTorch. Returns none for other exceptions.
std::optional<FailedAllocation> failed_allocation(const std::exception& error);

// "out of memory: 1.5 GB more needed, 1.1 GB free on the GPU; ADVICE".
std::string out_of_memory_line(const FailedAllocation& failed, const std::string& advice);

}  // namespace tessera
