// The definitions of the mixer's parts: plain loops, double sums over numbers of type Real. In float they end
// the tables of implementations; in double, finite differences check their gradients.
#pragma once

#include "kernels/mlstm_mixer/parts.h"

namespace tessera::kernels {

template <class Real>
void depthwise_forward_ref(const DepthwiseForwardOf<Real>& call, int64_t begin, int64_t end);
template <class Real>
void depthwise_backward_ref(const DepthwiseBackwardOf<Real>& call, int64_t begin, int64_t end);
template <class Real>
void headwise_forward_ref(const HeadwiseForwardOf<Real>& call, int64_t begin, int64_t end);
template <class Real>
void headwise_backward_ref(const HeadwiseBackwardOf<Real>& call, int64_t begin, int64_t end);
template <class Real>
void gates_forward_ref(const GatesForwardOf<Real>& call, int64_t begin, int64_t end);
template <class Real>
void gates_backward_ref(const GatesBackwardOf<Real>& call, int64_t begin, int64_t end);
template <class Real>
void head_norm_forward_ref(const HeadNormForwardOf<Real>& call, int64_t begin, int64_t end);
template <class Real>
void head_norm_backward_ref(const HeadNormBackwardOf<Real>& call, int64_t begin, int64_t end);

}  // namespace tessera::kernels
