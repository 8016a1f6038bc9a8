// Activations and gated activations on a GPU, forward and backward: eight numbers a thread.
//
// gelu is exact, x Phi(x); gelu_tanh its approximation by tanh (Hendrycks & Gimpel 2016); silu is x sigmoid(x).
#pragma once

#include "kernels/gpu/launch.h"

namespace tessera::kernels::gpu {

struct ValueAndSlope {
  float value, slope;
};

// Returns f(x) and f'(x).
TESSERA_DEVICE ValueAndSlope activation_of(ActivationKind kind, float x) {
  if (kind == ActivationKind::silu) {
    const float s = sigmoid(x);
    return {x * s, s * (1 + x * (1 - s))};
  }
  if (kind == ActivationKind::gelu_tanh) {
    constexpr float kRoot = 0.7978845608028654f, kCubic = 0.044715f;  // sqrt(2 / pi)
    const float s = sigmoid(2 * kRoot * (x + kCubic * x * x * x));    // (1 + tanh) / 2
    return {x * s, s + x * s * (1 - s) * 2 * kRoot * (1 + 3 * kCubic * x * x)};
  }
  constexpr float kHalfRoot = 0.7071067811865476f, kDensity = 0.3989422804014327f;  // 1 / sqrt(2 pi)
  const float phi = 0.5f * erfcf(-x * kHalfRoot);
  return {x * phi, phi + x * kDensity * exp2_fast(-0.5f * kLog2e * x * x)};
}

struct ActivationForwardKernel {
  using Call = ActivationForward;
  static constexpr int kThreads = 256, kShared = 0, kBlocks = 4;

  static TESSERA_DEVICE void run(const Call& call, char*, Block at) {
    int64_t row, column;
    if (!place_of_eight(call.rows, call.width, at, kThreads, row, column)) return;
    float x[8];
    load8(x, call.x.data, call.x.element, row * call.x.row + column);
    TESSERA_UNROLL for (int j = 0; j < 8; ++j) x[j] = activation_of(call.kind, x[j]).value;
    if (call.gate.data) {
      float gate[8];
      load8(gate, call.gate.data, call.gate.element, row * call.gate.row + column);
      TESSERA_UNROLL for (int j = 0; j < 8; ++j) x[j] *= gate[j];
    }
    store8(call.y.data, call.y.element, row * call.y.row + column, x);
  }
};

// dx = dy gate f'(x), dgate = dy f(x).
struct ActivationBackwardKernel {
  using Call = ActivationBackward;
  static constexpr int kThreads = 256, kShared = 0, kBlocks = 4;

  static TESSERA_DEVICE void run(const Call& call, char*, Block at) {
    int64_t row, column;
    if (!place_of_eight(call.rows, call.width, at, kThreads, row, column)) return;
    float x[8], dy[8];
    load8(x, call.x.data, call.x.element, row * call.x.row + column);
    load8(dy, call.dy.data, call.dy.element, row * call.dy.row + column);
    float gate[8], dgate[8];
    if (call.gate.data) load8(gate, call.gate.data, call.gate.element, row * call.gate.row + column);
    TESSERA_UNROLL for (int j = 0; j < 8; ++j) {
      const ValueAndSlope f = activation_of(call.kind, x[j]);
      dgate[j] = dy[j] * f.value;
      x[j] = dy[j] * f.slope * (call.gate.data ? gate[j] : 1);
    }
    store8(call.dx.data, call.dx.element, row * call.dx.row + column, x);
    if (call.gate.data) store8(call.dgate.data, call.dgate.element, row * call.dgate.row + column, dgate);
  }
};

}  // namespace tessera::kernels::gpu
