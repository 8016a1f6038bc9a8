// The mixer's parts as each instruction set defines them. Per-ISA.
#pragma once

#include "kernels/mlstm_mixer/parts.h"
#include "kernels/simd.h"

namespace tessera::kernels::TESSERA_ISA {

// Calls body(sample, first, last) for the pieces of at most `most` tokens of one sample that make up [begin,
// end).
template <class Body>
TESSERA_INLINE void for_each_piece(int64_t tokens, int64_t most, int64_t begin, int64_t end, Body body) {
  for (int64_t at = begin; at < end;) {
    const int64_t b = at / tokens, t = at % tokens;
    int64_t count = tokens - t < end - at ? tokens - t : end - at;
    count = count < most ? count : most;
    body(b, t, t + count);
    at += count;
  }
}

void depthwise_forward(const DepthwiseForward& call, int64_t begin, int64_t end);
void depthwise_backward(const DepthwiseBackward& call, int64_t begin, int64_t end);
void headwise_forward(const HeadwiseForward& call, int64_t begin, int64_t end);
void headwise_backward(const HeadwiseBackward& call, int64_t begin, int64_t end);
void gates_forward(const GatesForward& call, int64_t begin, int64_t end);
void gates_backward(const GatesBackward& call, int64_t begin, int64_t end);
void head_norm_forward(const HeadNormForward& call, int64_t begin, int64_t end);
void head_norm_backward(const HeadNormBackward& call, int64_t begin, int64_t end);

}  // namespace tessera::kernels::TESSERA_ISA
