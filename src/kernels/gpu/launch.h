// Starts a kernel over a grid: on a GPU's stream, or block by block on the emulator.
//
// Kernel has: Call (what run() gets), kThreads (a block's), kShared (bytes of shared memory), kBlocks (at least
// that many on a multiprocessor: the compiler limits registers by it), and run().
// Threads and shared memory are template arguments of the entry, so that reports of the compiler name them.
#pragma once

#include "kernels/gpu/table.h"
#include "kernels/gpu/warp.h"

namespace tessera::kernels::gpu {

// Finds the thread's eight numbers of rows that blocks of `threads` share: returns false after the last row.
TESSERA_DEVICE bool place_of_eight(int64_t rows, int64_t width, Block at, int threads, int64_t& row,
                                   int64_t& column) {
  const int64_t of_row = width / 8, i = at.x * threads + thread();
  row = i / of_row, column = i % of_row * 8;
  return row < rows;
}
// True if a grid of blocks of `threads` holds all of them.
inline bool eight_a_thread(int64_t rows, int64_t width, int threads) {
  constexpr int64_t kMostBlocks = int64_t{1} << 31;
  return rows > 0 && width > 0 && width % 8 == 0 && rows < kMostBlocks * threads * 8 / width;
}
// Returns that grid.
inline Block grid_of_eight(int64_t rows, int64_t width, int threads) {
  return {(rows * (width / 8) + threads - 1) / threads, 1, 1};
}

#ifdef __CUDACC__

template <class Kernel, int kThreads, int kShared>
__global__ void __launch_bounds__(kThreads, Kernel::kBlocks)
    entry(const __grid_constant__ typename Kernel::Call call) {
  extern __shared__ __align__(128) char shared[];
  Kernel::run(call, shared, {(int64_t)blockIdx.x, (int64_t)blockIdx.y, (int64_t)blockIdx.z});
}

// Returns 0, or CUDA's error.
template <class Kernel>
int launch(const typename Kernel::Call& call, Block grid, Stream stream) {
  const auto kernel = entry<Kernel, Kernel::kThreads, Kernel::kShared>;
  if (Kernel::kShared > 48 << 10) {
    const cudaError_t raised =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Kernel::kShared);
    if (raised != cudaSuccess) return (int)raised;
  }
  kernel<<<dim3((unsigned)grid.x, (unsigned)grid.y, (unsigned)grid.z), Kernel::kThreads, Kernel::kShared,
           (cudaStream_t)stream>>>(call);
  return (int)cudaGetLastError();
}

#else

template <class Kernel>
int launch(const typename Kernel::Call& call, Block grid, Stream) {
  for (int64_t z = 0; z < grid.z; ++z)
    for (int64_t y = 0; y < grid.y; ++y)
      for (int64_t x = 0; x < grid.x; ++x)
        emulate(Kernel::kThreads, Kernel::kShared, [&](char* shared) {
          Kernel::run(call, shared, {x, y, z});
        });
  return 0;
}

#endif

}  // namespace tessera::kernels::gpu
