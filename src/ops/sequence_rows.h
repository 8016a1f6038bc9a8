// Views of sequences [batch, tokens, channels] for float kernels that run along the tokens.
#pragma once

#include <initializer_list>

#include "core/error.h"
#include "kernels/types.h"
#include "ops/inference.h"
#include "ops/torch.h"

namespace tessera::ops {

// True if the kernels take x, as floats, and all defined `others` are floats on the CPU.
inline bool runs_on_float_kernels(const torch::Tensor& x, std::initializer_list<torch::Tensor> others) {
  const auto fits = [](const torch::Tensor& t) {
    return t.device().is_cpu() && (t.scalar_type() == torch::kFloat32 || t.scalar_type() == torch::kBFloat16);
  };
  if (!inference_settings().fused || !fits(x)) return false;
  for (const torch::Tensor& other : others)
    if (other.defined() && !(fits(other) && other.scalar_type() == torch::kFloat32)) return false;
  return true;
}

// Returns the tensor itself if its channels are adjacent in memory, else a contiguous copy.
inline torch::Tensor channels_adjacent(const torch::Tensor& x) {
  return x.stride(-1) == 1 || x.size(-1) == 1 ? x : x.contiguous();
}

inline kernels::FloatRows float_rows(const torch::Tensor& x) {
  if (!x.defined()) return {nullptr, 0, 0};
  return {x.const_data_ptr<float>(), x.stride(0), x.stride(1)};
}
inline kernels::FloatRowsOut float_rows_out(const torch::Tensor& x) {
  if (!x.defined()) return {nullptr, 0, 0};
  return {x.mutable_data_ptr<float>(), x.stride(0), x.stride(1)};
}

}  // namespace tessera::ops
