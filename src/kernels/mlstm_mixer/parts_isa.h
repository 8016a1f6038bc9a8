// The mixer's parts as each instruction set defines them. Per-ISA.
#pragma once

#include "kernels/mlstm_mixer/parts.h"
#include "kernels/simd.h"

namespace tessera::kernels::TESSERA_ISA {

void depthwise_forward(const DepthwiseForward& call, int64_t begin, int64_t end);
void depthwise_backward(const DepthwiseBackward& call, int64_t begin, int64_t end);
void silu_backward(const SiluBackward& call, int64_t begin, int64_t end);
void headwise_forward(const HeadwiseForward& call, int64_t begin, int64_t end);
void headwise_backward(const HeadwiseBackward& call, int64_t begin, int64_t end);
void head_norm_forward(const HeadNormForward& call, int64_t begin, int64_t end);
void head_norm_backward(const HeadNormBackward& call, int64_t begin, int64_t end);

}  // namespace tessera::kernels::TESSERA_ISA
