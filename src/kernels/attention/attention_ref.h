// The plain definition of attention for one head, over every pair of tokens.
//
// In double it is the reference. In float its error is the bound for the fast kernels' errors.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention/attention.h"

namespace tessera::kernels {

// Angles of one head's tokens, (tokens, pairs).
template <class Real>
struct RotaryRef {
  int64_t pairs = 0;
  std::vector<Real> cos, sin;
};

template <class Real>
struct AttentionHead {
  int64_t queries = 0, keys = 0, dim = 0;
  Real scale = 1;
  AttentionMask mask;
  std::vector<Real> q, k, v;  // (Q,D), (K,D), (K,D)
  std::vector<Real> bias;     // (Q,K) or empty
  RotaryRef<Real> q_rotary, k_rotary;
};

template <class Real>
struct AttentionHeadOutput {
  std::vector<Real> out, lse;  // (Q,D), (Q) in units of log 2
};

template <class Real>
struct AttentionHeadGradients {
  std::vector<Real> dq, dk, dv, dbias;
};

// Instantiated for double and float.
template <class Real>
AttentionHeadOutput<Real> attention_head_forward(const AttentionHead<Real>& in);
template <class Real>
AttentionHeadGradients<Real> attention_head_backward(const AttentionHead<Real>& in,
                                                     const std::vector<Real>& dout);

// Computes one item of a call in double.
AttentionHead<double> attention_head_of(const AttentionShape& shape, const AttentionMask& mask,
                                        const HeadRows& q, const HeadRows& k, const HeadRows& v,
                                        const Rotary& q_rotary, const Rotary& k_rotary,
                                        const AttentionBias& bias, int64_t item);

}  // namespace tessera::kernels
