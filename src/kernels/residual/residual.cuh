// The end of a residual branch on a GPU, forward and backward: one pass over memory.
//
// Bytes: forward the branch and the residual in, the sum out; backward x and dy in, dx out. The sums for the scale stay in
// registers over all rows of a part, and a second kernel adds the parts in order.
#pragma once

#include "kernels/gpu/launch.h"
#include "kernels/gpu/parts.h"

namespace tessera::kernels::gpu {

struct ResidualForwardKernel {
  using Call = ResidualForward;
  static constexpr int kThreads = 256, kShared = 0, kBlocks = 4;

  static TESSERA_DEVICE void run(const Call& call, char*, Block at) {
    int64_t row, column;
    if (!place_of_eight(call.rows, call.width, at, kThreads, row, column)) return;
    const int64_t of_sample = call.sample_rows > 0 ? row / call.sample_rows * call.width : 0;
    float x[8], residual[8], scale[8];
    load8(x, call.x.data, call.x.element, row * call.x.row + column);
    load8(residual, call.residual.data, call.residual.element, row * call.residual.row + column);
    load8(scale, call.scale, Element::f32, of_sample + column);
    TESSERA_UNROLL for (int j = 0; j < 8; ++j) x[j] = residual[j] + x[j] * scale[j];
    store8(call.y.data, call.y.element, row * call.y.row + column, x);
  }
};

// A block has the rows of one part of one sample and 256 columns; a warp takes a row.
struct ResidualBackwardKernel {
  using Call = ResidualBackward;
  static constexpr int kWarps = 8, kThreads = kWarps * kLanes, kColumns = 8 * kLanes, kShared = 4 * kColumns,
                       kBlocks = 4;

  static TESSERA_DEVICE int64_t rows_of_sample(const Call& call) {
    return call.sample_rows > 0 ? call.sample_rows : call.rows;
  }

  static TESSERA_DEVICE void run(const Call& call, char* shared, Block at) {
    const int64_t rows = rows_of_sample(call), parts = row_parts(rows), sample = at.x / parts,
                  column = at.y * kColumns + lane() * 8;
    const bool inside = column < call.width;
    float sums[8] = {};
    if (inside) {
      float scale[8];
      load8(scale, call.scale, Element::f32, sample * call.width + column);
      for (int64_t i = at.x % parts * kWarps + warp(); i < rows; i += parts * kWarps)
        gradient(call, sample * rows + i, column, scale, sums);
    }
    if (call.partial) keep(call, at.x, column, inside, sums, (float*)shared);
  }

  static TESSERA_DEVICE void gradient(const Call& call, int64_t row, int64_t column, const float (&scale)[8],
                                      float (&sums)[8]) {
    float x[8], dy[8];
    load8(x, call.x.data, call.x.element, row * call.x.row + column);
    load8(dy, call.dy.data, call.dy.element, row * call.dy.row + column);
    TESSERA_UNROLL for (int j = 0; j < 8; ++j) sums[j] += x[j] * dy[j], dy[j] *= scale[j];
    store8(call.dx.data, call.dx.element, row * call.dx.row + column, dy);
  }

  // Adds the sums of the block's warps in order, and stores them.
  static TESSERA_DEVICE void keep(const Call& call, int64_t part, int64_t column, bool inside,
                                  const float (&sums)[8], float* room) {
    float* const mine = room + lane() * 8;
    TESSERA_UNROLL for (int turn = 0; turn < kWarps; ++turn) {
      if (turn == warp()) {
        TESSERA_UNROLL for (int j = 0; j < 8; ++j) mine[j] = sums[j] + (turn > 0 ? mine[j] : 0);
      }
      barrier();
    }
    if (warp() > 0 || !inside) return;
    float total[8];
    TESSERA_UNROLL for (int j = 0; j < 8; ++j) total[j] = mine[j];
    store8(call.partial, Element::f32, part * call.width + column, total);
  }
};

// dscale: y of the block is the sample.
struct ResidualPartsKernel : PartsSum {
  using Call = ResidualBackward;

  static TESSERA_DEVICE void run(const Call& call, char* shared, Block at) {
    const int64_t parts = row_parts(ResidualBackwardKernel::rows_of_sample(call));
    float sum;
    if (add(call.partial + at.y * parts * call.width, parts, call.width, at, shared, sum))
      call.dscale[at.y * call.width + column(at)] = sum;
  }
};

}  // namespace tessera::kernels::gpu
