// The only pool of compute threads, OpenMP's, shared with LibTorch and oneDNN; loops per instruction set.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

// Compiles a loop for several instruction sets; the loader picks the machine's own at start-up. In ISO C++ mode,
// without contraction to fused multiply-adds, element-wise loops give the same bits on all of them.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define TESSERA_FOR_EACH_ISA __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TESSERA_FOR_EACH_ISA
#endif

namespace tessera {

// Sets the number of compute threads, once at the start (0 = OMP_NUM_THREADS, or all available cores).
void set_num_threads(int count);
int num_threads();
// Returns the number of cores that this process may use, by its mask and its container's share, rounded up.
int available_cores();
// Returns bytes that identify the mask: equal in all processes of a machine that share its cores.
std::string core_mask();
// Returns the first number of OMP_NUM_THREADS, if it is one from 1 to 1024.
std::optional<int> environment_threads();

// Calls body(begin, end) over pieces of [0, count), each at least `grain` long. The split depends only on
// count, grain and num_threads(). Nested calls run serially. Rethrows a piece's exception at the end.
void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

}  // namespace tessera
