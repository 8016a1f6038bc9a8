// The end of sums over rows that blocks make in parts (row_parts).
//
// A block has 32 columns. Each of its eight warps adds every eighth part, and the first warp adds the warps' sums in their
// order, so equal parts give equal bits.
#pragma once

#include "kernels/gpu/warp.h"

namespace tessera::kernels::gpu {

struct PartsSum {
  static constexpr int kWarps = 8, kThreads = kWarps * kLanes, kShared = 4 * kThreads, kBlocks = 4;

  static TESSERA_DEVICE int64_t column(Block at) { return at.x * kLanes + lane(); }

  // Sums the column of the thread over `partial` [parts, width]. Returns false in threads that have no sum to store: those
  // of the later warps, and of columns beyond the width.
  static TESSERA_DEVICE bool add(const float* partial, int64_t parts, int64_t width, Block at, char* shared,
                                 float& sum) {
    float* const sums = (float*)shared;
    const int64_t place = column(at);
    sum = 0;
    if (place < width)
      for (int64_t part = warp(); part < parts; part += kWarps) sum += partial[part * width + place];
    sums[thread()] = sum;
    barrier();
    if (warp() > 0 || place >= width) return false;
    for (int w = 1; w < kWarps; ++w) sum += sums[w * kLanes + lane()];
    return true;
  }
};

}  // namespace tessera::kernels::gpu
