// One step of Adam or AdamW over all tensors of a model in one kernel.
//
// A block updates kAdamBlock numbers of one tensor, found by bisection of the tensors' first blocks. Bytes a
// number: p, m, v in and out, g in: 28; the moving average 8 more, the bfloat16 copy 2.
#pragma once

#include "kernels/gpu/launch.h"

namespace tessera::kernels::gpu {

struct AdamKernel {
  using Call = AdamStep;
  static constexpr int kThreads = 256, kShared = 0, kBlocks = 4;

  // Returns the tensor of a block.
  static TESSERA_DEVICE int64_t tensor_of(const Call& call, int64_t block) {
    int64_t low = 0, high = call.count - 1;
    while (low < high) {
      const int64_t middle = (low + high + 1) / 2;
      if (call.tensors[middle].first <= block)
        low = middle;
      else
        high = middle - 1;
    }
    return low;
  }

  static TESSERA_DEVICE void run(const Call& call, char*, Block at) {
    const float scale = call.scale ? *call.scale : 1;
    if (!(fabsf(scale) <= 3.402823466e38f)) return;  // a step that is skipped
    const AdamTensor& t = call.tensors[tensor_of(call, at.x)];
    const int64_t begin = (at.x - t.first) * kAdamBlock;
    const int64_t end = begin + kAdamBlock < t.count ? begin + kAdamBlock : t.count;
    const float root = t.correction == 0 ? call.root : t.root;
    const float step = call.lr * t.rate * (t.correction == 0 ? call.correction : t.correction);
    const float shrink = call.lr * call.decay_factor * t.decay, l2 = call.decay_factor * t.l2;
    for (int64_t i = begin + thread(); i < end; i += kThreads) {
      float p = t.p[i];
      const float g = t.g[i] * scale + l2 * p;
      p -= shrink * p;
      const float m = call.beta1 * t.m[i] + call.rest1 * g;
      const float v = call.beta2 * t.v[i] + call.rest2 * g * g;
      t.m[i] = m, t.v[i] = v;
      float largest = v;
      if (t.largest) t.largest[i] = largest = fmaxf(t.largest[i], v);
      p -= step * m / (sqrtf(largest) / root + call.eps);
      t.p[i] = p;
      if (t.half) t.half[i] = to_bf16(p).bits;
      if (t.average) t.average[i] = call.average_decay * t.average[i] + call.average_rest * p;
    }
  }
};

}  // namespace tessera::kernels::gpu
