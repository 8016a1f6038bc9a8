// The selective scan of Mamba (Gu & Dao 2023), for every channel d and state n:
//
//   h_t[n] = exp(dt_t A[n]) h_{t-1}[n] + dt_t B_t[n] u_t,    y_t = (sum_n C_t[n] h_t[n] + D u_t) silu(z_t)
//   dt_t = softplus(delta_t + delta_bias)                    or the sum itself
//
// B is discretised by Euler's rule. B_t and C_t are shared by the channels of a group. `reverse` walks from
// the last token to the first. Per token and channel, N exponentials and 3 N multiply-adds; memory traffic is
// that of the tensors. The gradient recomputes the states of kScanChunk tokens from a kept one.
// C headers only: per-ISA files include it.
#pragma once

#include "kernels/memory.h"
#include "kernels/table.h"
#include "kernels/types.h"

namespace tessera::kernels {

constexpr int64_t kScanChunk = 16;   // tokens from one kept state to the next
constexpr int64_t kScanBlock = 128;  // channels of a piece of work, at most

struct SelectiveScan {
  int64_t batch = 0, tokens = 0, channels = 0, states = 0, groups = 1;
  bool softplus = true, reverse = false;
  FloatRows u = {}, delta = {};        // (batch, tokens, channels)
  const float* a = nullptr;            // (channels, states)
  FloatRows b = {}, c = {};            // (batch, tokens, groups * states)
  const float* d = nullptr;            // (channels) or null
  FloatRows z = {};                    // (batch, tokens, channels), or null data
  const float* delta_bias = nullptr;   // (channels) or null
  const float* first_state = nullptr;  // (batch, channels, states) or null: zeros
};
struct SelectiveScanForward : SelectiveScan {
  FloatRowsOut y = {};
  float* last_state = nullptr;  // (batch, channels, states) or null
  float* kept = nullptr;        // scan_kept() floats for the gradient, in a private layout; or null
};
struct SelectiveScanBackward : SelectiveScan {
  FloatRows gy = {};
  float* kept = nullptr;  // from the forward pass
  FloatRowsOut gu = {}, gdelta = {}, gz = {};
  float *gb = nullptr, *gc = nullptr;                          // (batch, tokens, groups * states)
  float *ga = nullptr, *gd = nullptr, *gdelta_bias = nullptr;  // null where the input is
};
[[maybe_unused]] static int64_t scan_chunks(int64_t tokens) { return (tokens + kScanChunk - 1) / kScanChunk; }
// Returns the floats of `kept`: the states before each chunk, channels of a group padded to whole vectors.
[[maybe_unused]] static int64_t scan_kept(const SelectiveScan& call) {
  return call.batch * call.groups * round_up16(call.channels / call.groups) * scan_chunks(call.tokens) *
         call.states;
}

// Use all threads; the result does not depend on their number. Throw for shapes that do not match.
void selective_scan(const SelectiveScanForward& call);
void selective_scan_backward(const SelectiveScanBackward& call);

// A unit of work: the channels [channel, channel + count) of a sample, all of one group.
struct ScanPiece {
  int64_t sample = 0, channel = 0, count = 0, group = 0;
  float* scratch = nullptr;
  float* kept = nullptr;  // (chunks, count padded to 16, states) in the order of the implementation; or null
  // Gradients: overwritten with the sums of this piece. ga, gd and gdelta_bias start at `channel`.
  float *gb = nullptr, *gc = nullptr;  // (tokens, states)
  float *ga = nullptr, *gd = nullptr, *gdelta_bias = nullptr;
};
struct SelectiveScanFunctions {
  int64_t lanes;
  void (*forward)(const SelectiveScanForward& call, const ScanPiece& piece);
  void (*backward)(const SelectiveScanBackward& call, const ScanPiece& piece);
};
Table<SelectiveScanFunctions> selective_scan_table();

// Returns the floats of scratch for one piece.
[[maybe_unused]] static int64_t scan_scratch(int64_t states, int64_t lanes) {
  const int64_t vectors = (kScanBlock + lanes - 1) / lanes;
  return lanes * ((3 * vectors + 4 * kScanChunk + 1) * states + 2 * vectors);
}

}  // namespace tessera::kernels
