// Exports simd.h for its test only.
#pragma once

#include "kernels/table.h"

namespace tessera::kernels {

struct SimdProbe {
  int width;
  // out[i] = f(in[i]) for i < count, in whole vectors and a part.
  void (*exp)(const float* in, float* out, int64_t count);
  void (*exp2_below)(const float* in, float* out, int64_t count);
  void (*silu)(const float* in, float* out, int64_t count);
  void (*silu_coarse)(const float* in, float* out, int64_t count);
  void (*silu_slope)(const float* in, float* out, int64_t count);
  void (*silu_slope_coarse)(const float* in, float* out, int64_t count);
  void (*log_sigmoid)(const float* in, float* out, int64_t count);
  void (*to_bf16)(const float* in, uint16_t* out, int64_t count);
  void (*from_bf16)(const uint16_t* in, float* out, int64_t count);
  float (*sum)(const float* in);                   // the sum of one vector
  void (*transpose)(const float* in, float* out);  // transposes a width x width block
};

Table<SimdProbe> simd_probes();

}  // namespace tessera::kernels
