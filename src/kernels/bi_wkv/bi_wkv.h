// Bidirectional WKV attention of Vision-RWKV (Duan et al. 2024, eq. 4), for every channel:
//
//   y_t = (sum_{i != t} e^{k_i - (|t - i| - 1) w} v_i + e^{u + k_t} v_t) / (the same sums without v)
//
// Two recurrences, one from each end, with the largest exponent split off: so results are exact to rounding
// for any w and for u and k of usual size. It takes 5 exponentials per token and channel; the gradient takes
// 10. Memory traffic is that of the tensors, plus a few numbers per token of scratch.
// C headers only: per-ISA files include it.
#pragma once

#include "kernels/table.h"
#include "kernels/types.h"

namespace tessera::kernels {

struct BiWkv {
  int64_t batch = 0, tokens = 0, channels = 0;
  const float *w = nullptr, *u = nullptr;  // (channels)
  FloatRows k = {}, v = {};                // (batch, tokens, channels)
};
struct BiWkvForward : BiWkv {
  FloatRowsOut y = {};
};
struct BiWkvBackward : BiWkv {
  FloatRows gy = {};
  FloatRowsOut gk = {}, gv = {};
  float *gw = nullptr, *gu = nullptr;  // (channels)
};

// Use all threads; the result does not depend on their number. Throw for shapes that do not match.
void bi_wkv(const BiWkvForward& call);
void bi_wkv_backward(const BiWkvBackward& call);

// A unit of work: `count` channels of a sample, at most a vector. gw and gu get the sums of this unit only.
struct BiWkvPiece {
  int64_t sample = 0, channel = 0, count = 0;
  float* scratch = nullptr;  // kBiWkvScratch vectors a token
  float *gw = nullptr, *gu = nullptr;
};
constexpr int64_t kBiWkvScratch = 6;
struct BiWkvFunctions {
  int64_t lanes;
  void (*forward)(const BiWkvForward& call, const BiWkvPiece& piece);
  void (*backward)(const BiWkvBackward& call, const BiWkvPiece& piece);
};
Table<BiWkvFunctions> bi_wkv_table();

}  // namespace tessera::kernels
