// LayerNorm and RMSNorm of rows on a GPU, forward and backward.
//
// A row of up to 512 numbers belongs to a warp, a longer one to a block. It is read once, stays in registers,
// and its mean and variance are two sums over those. The backward pass makes both again from the row, which it
// reads anyway. Its sums for weight and bias stay in registers over all rows of a part, which are rows of one sample if the
// weights are a sample's (adaLN, Peebles & Xie 2023), and a second kernel adds the parts in order. Bytes: forward the row in and out, backward x and dy in, dx out.
#pragma once

#include "kernels/gpu/launch.h"
#include "kernels/gpu/parts.h"

namespace tessera::kernels::gpu {

// Some rows of a block at a time: one for each warp, or one for all kWarps. A thread holds kTurns x 8 numbers.
template <int kWarps, int kTurns>
struct NormRows {
  static constexpr int kAtOnce = kWarps == 1 ? 8 : 1;
  static constexpr int kThreads = kLanes * kWarps * kAtOnce;
  static constexpr int kBlocks = kWarps * kTurns == 1 ? 4 : kTurns < 4 ? 2 : 1;
  static constexpr int kMostWidth = kTurns * kWarps * kLanes * 8;

  static TESSERA_DEVICE int row() { return kWarps == 1 ? warp() : 0; }
  static TESSERA_DEVICE int column(int turn) {
    return ((turn * kWarps + (kWarps == 1 ? 0 : warp())) * kLanes + lane()) * 8;
  }
  // Reads numbers of a row; zeros after its end.
  static TESSERA_DEVICE void load(float (&to)[kTurns][8], const Rows& from, int64_t row, int64_t width) {
    TESSERA_UNROLL for (int i = 0; i < kTurns; ++i) {
      if (column(i) < width) {
        load8(to[i], from.data, from.element, row * from.row + column(i));
      } else {
        TESSERA_UNROLL for (int j = 0; j < 8; ++j) to[i][j] = 0;
      }
    }
  }
  static TESSERA_DEVICE float sum(float x, float* room) { return block_sum<kWarps>(x, room); }
};

// Replaces a row by x^ = (x - mean) / sqrt(variance + eps) and returns the factor.
template <class R, int kTurns>
TESSERA_DEVICE float normalise(float (&x)[kTurns][8], int64_t width, float eps, bool centred, float* room) {
  float mean = 0, square = 0;
  if (centred) {
    TESSERA_UNROLL for (int i = 0; i < kTurns; ++i) {
      TESSERA_UNROLL for (int j = 0; j < 8; ++j) mean += x[i][j];
    }
    mean = R::sum(mean, room) / (float)width;
  }
  TESSERA_UNROLL for (int i = 0; i < kTurns; ++i) {
    if (R::column(i) >= width) continue;
    TESSERA_UNROLL for (int j = 0; j < 8; ++j) x[i][j] -= mean, square += x[i][j] * x[i][j];
  }
  const float factor = inverse_sqrt(R::sum(square, room) / (float)width + eps);
  TESSERA_UNROLL for (int i = 0; i < kTurns; ++i) {
    TESSERA_UNROLL for (int j = 0; j < 8; ++j) x[i][j] *= factor;
  }
  return factor;
}

template <int kWarps, int kTurns>
struct NormForwardKernel : NormRows<kWarps, kTurns> {
  using R = NormRows<kWarps, kTurns>;
  using Call = NormForward;
  static constexpr int kShared = kWarps * 4;

  static TESSERA_DEVICE void run(const Call& call, char* shared, Block at) {
    const int64_t row = at.x * R::kAtOnce + R::row();
    if (row >= call.rows) return;  // whole warps, or the block
    float x[kTurns][8];
    R::load(x, call.x, row, call.width);
    normalise<R>(x, call.width, call.eps, call.centred, (float*)shared);
    const int64_t of_sample = call.sample_rows > 0 ? row / call.sample_rows * call.width : 0;
    TESSERA_UNROLL for (int i = 0; i < kTurns; ++i) {
      const int c = R::column(i);
      if (c >= call.width) continue;
      float weight[8];
      if (call.weight) {
        load8(weight, call.weight, Element::f32, of_sample + c);
        TESSERA_UNROLL for (int j = 0; j < 8; ++j) x[i][j] *= weight[j];
      }
      if (call.bias) {
        load8(weight, call.bias, Element::f32, of_sample + c);
        TESSERA_UNROLL for (int j = 0; j < 8; ++j) x[i][j] += weight[j];
      }
      store8(call.y.data, call.y.element, row * call.y.row + c, x[i]);
    }
  }
};

// dx = r (g - mean(g) - x^ mean(g x^)), g = dy weight; partial sums of dy x^ and dy over the rows of a part.
template <int kWarps, int kTurns>
struct NormBackwardKernel : NormRows<kWarps, kTurns> {
  using R = NormRows<kWarps, kTurns>;
  using Call = NormBackward;
  static constexpr int kShared = 4 * (2 * R::kMostWidth + kWarps);

  static TESSERA_DEVICE int64_t rows_of_sample(const Call& call) {
    return call.sample_rows > 0 ? call.sample_rows : call.rows;
  }

  static TESSERA_DEVICE void run(const Call& call, char* shared, Block at) {
    float *const sums = (float*)shared, *const room = sums + 2 * R::kMostWidth;
    float of_weight[kTurns][8] = {}, of_bias[kTurns][8] = {};
    const int64_t rows = rows_of_sample(call), parts = row_parts(rows), sample = at.x / parts;
    const int64_t first = sample * rows + at.x % parts * R::kAtOnce + R::row();
    for (int64_t row = first; row < (sample + 1) * rows; row += parts * R::kAtOnce) {
      float x[kTurns][8], g[kTurns][8];
      R::load(x, call.x, row, call.width), R::load(g, call.dy, row, call.width);
      const float factor = normalise<R>(x, call.width, call.eps, call.centred, room);
      TESSERA_UNROLL for (int i = 0; i < kTurns; ++i) {
        TESSERA_UNROLL for (int j = 0; j < 8; ++j) {
          of_weight[i][j] += g[i][j] * x[i][j], of_bias[i][j] += g[i][j];
        }
      }
      gradient(call, row, sample * call.width, x, g, factor, room);
    }
    if (call.partial) keep(call, at.x, of_weight, of_bias, sums);
  }

  static TESSERA_DEVICE void gradient(const Call& call, int64_t row, int64_t of_sample,
                                      const float (&x)[kTurns][8], float (&g)[kTurns][8], float factor,
                                      float* room) {
    float mean = 0, slope = 0;
    TESSERA_UNROLL for (int i = 0; i < kTurns; ++i) {
      if (call.weight && R::column(i) < call.width) {
        float weight[8];
        load8(weight, call.weight, Element::f32, of_sample + R::column(i));
        TESSERA_UNROLL for (int j = 0; j < 8; ++j) g[i][j] *= weight[j];
      }
      TESSERA_UNROLL for (int j = 0; j < 8; ++j) mean += g[i][j], slope += g[i][j] * x[i][j];
    }
    mean = call.centred ? R::sum(mean, room) / (float)call.width : 0;
    slope = R::sum(slope, room) / (float)call.width;
    TESSERA_UNROLL for (int i = 0; i < kTurns; ++i) {
      if (R::column(i) >= call.width) continue;
      TESSERA_UNROLL for (int j = 0; j < 8; ++j) g[i][j] = factor * (g[i][j] - mean - x[i][j] * slope);
      store8(call.dx.data, call.dx.element, row * call.dx.row + R::column(i), g[i]);
    }
  }

  // Adds the sums of the block's rows in the order of its warps, and stores them.
  static TESSERA_DEVICE void keep(const Call& call, int64_t part, const float (&of_weight)[kTurns][8],
                                  const float (&of_bias)[kTurns][8], float* sums) {
    TESSERA_UNROLL for (int turn = 0; turn < R::kAtOnce; ++turn) {
      TESSERA_UNROLL for (int i = 0; i < kTurns; ++i) {
        float* const at = sums + R::column(i);
        if (turn == R::row()) {
          TESSERA_UNROLL for (int j = 0; j < 8; ++j) {
            at[j] = of_weight[i][j] + (turn > 0 ? at[j] : 0);
            at[R::kMostWidth + j] = of_bias[i][j] + (turn > 0 ? at[R::kMostWidth + j] : 0);
          }
        }
      }
      barrier();
    }
    float* const to = call.partial + part * 2 * call.width;
    for (int c = thread(); c < call.width; c += R::kThreads)
      to[c] = sums[c], to[call.width + c] = sums[R::kMostWidth + c];
  }
};

// dweight and dbias: y of the block is the sample.
struct NormPartsKernel : PartsSum {
  using Call = NormBackward;

  static TESSERA_DEVICE void run(const Call& call, char* shared, Block at) {
    const int64_t parts = row_parts(call.sample_rows > 0 ? call.sample_rows : call.rows);
    float sum;
    if (!add(call.partial + at.y * parts * 2 * call.width, parts, 2 * call.width, at, shared, sum)) return;
    if (column(at) < call.width) {
      if (call.dweight) call.dweight[at.y * call.width + column(at)] = sum;
    } else if (call.dbias) {
      call.dbias[(at.y - 1) * call.width + column(at)] = sum;
    }
  }
};

}  // namespace tessera::kernels::gpu
