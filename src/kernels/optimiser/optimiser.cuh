// One step of an optimiser over all tensors of a model: one kernel for Adam, AdamW and SGD; with trust ratios (LARS, LAMB) three.
//
// A block has kOptimiserBlock numbers of one tensor, found by bisection of the tensors' first blocks. Trust ratios need norms of
// whole tensors: a kernel sums squares of each block, the next adds those of each tensor in order, the last one updates.
// Bytes a number: Adam 28 (p, m, v in and out, g in), SGD 20, LARS 28, LAMB 40; the moving average 8 more,
// the copy in bfloat16 2.
#pragma once

#include "kernels/gpu/launch.h"

namespace tessera::kernels::gpu {

constexpr int kOptimiserThreads = 256;

// Common to the kernels of a step.
struct OptimiserKernel {
  using Call = OptimiserStep;
  static constexpr int kThreads = kOptimiserThreads, kShared = 0, kBlocks = 4;
};
// Those with sums over a block.
struct OptimiserSums : OptimiserKernel {
  static constexpr int kWarps = kThreads / kLanes, kShared = kWarps * (int)sizeof(float);
};

// A block's numbers of its tensor, and the step's numbers there.
struct OptimiserBlock {
  OptimiserTensor t;
  int64_t begin, end;
  float scale, share;      // of gradients; of p in the moving average
  float rate, shrink, l2;  // p <- p - shrink p
  float updates;           // with this one
  TESSERA_DEVICE bool first() const { return updates <= 1; }
};

// Returns the tensor of a block.
TESSERA_DEVICE int64_t tensor_of(const OptimiserStep& call, int64_t block) {
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
TESSERA_DEVICE OptimiserBlock block_of(const OptimiserStep& call, int64_t tensor, int64_t block) {
  OptimiserBlock of;
  of.t = call.tensors[tensor];
  of.begin = (block - of.t.first) * kOptimiserBlock;
  of.end = of.begin + kOptimiserBlock < of.t.count ? of.begin + kOptimiserBlock : of.t.count;
  of.scale = call.scale ? *call.scale : 1, of.share = call.share ? *call.share : 0;
  of.rate = call.lr * of.t.rate;
  of.shrink = call.lr * call.decay_factor * of.t.decay, of.l2 = call.decay_factor * of.t.l2;
  of.updates = of.t.updates == 0 ? call.updates : of.t.updates;
  if (call.counts) of.updates = (float)call.counts[of.t.slot];
  return of;
}
// True if the step is skipped.
TESSERA_DEVICE bool skips(const OptimiserStep& call) {
  return call.scale && !(fabsf(*call.scale) <= 3.402823466e38f);
}

// True if a number is on a boundary of 16 bytes.
TESSERA_DEVICE bool on_boundary(const float* p) { return (uintptr_t)p % 16 == 0; }

// Up to four numbers of a thread, in one access if they are on a boundary. The rest is zero.
struct Four {
  float x[4];
  int n;
  TESSERA_DEVICE explicit Four(int count) : x{}, n(count) {}
  TESSERA_DEVICE Four(const float* from, int count) : x{}, n(count) {
    if (n == 4 && on_boundary(from)) {
      const Words words = *(const Words*)from;
      TESSERA_UNROLL for (int i = 0; i < 4; ++i) x[i] = as_float(words.w[i]);
    } else {
      TESSERA_UNROLL for (int i = 0; i < 4; ++i) if (i < n) x[i] = from[i];
    }
  }
  TESSERA_DEVICE void store(float* to) const {
    if (n == 4 && on_boundary(to)) {
      Words words;
      TESSERA_UNROLL for (int i = 0; i < 4; ++i) words.w[i] = as_bits(x[i]);
      *(Words*)to = words;
    } else {
      TESSERA_UNROLL for (int i = 0; i < 4; ++i) if (i < n) to[i] = x[i];
    }
  }
  // The same in bfloat16.
  TESSERA_DEVICE void store(uint16_t* to) const {
    struct alignas(8) Pair {
      uint32_t w[2];
    };
    if (n == 4 && (uintptr_t)to % 8 == 0)
      *(Pair*)to = {pack(x[0], x[1]), pack(x[2], x[3])};
    else
      TESSERA_UNROLL for (int i = 0; i < 4; ++i) if (i < n) to[i] = to_bf16(x[i]).bits;
  }
};

// Calls each(i, n) for the thread's numbers of a block: n from i on.
template <class Each>
TESSERA_DEVICE void for_fours(const OptimiserBlock& of, Each each) {
  for (int64_t i = of.begin + 4 * thread(); i < of.end; i += 4 * kOptimiserThreads)
    each(i, (int)(of.end - i < 4 ? of.end - i : 4));
}
// Stores new numbers of p, and their copy, and adds them to the moving average.
TESSERA_DEVICE void store_parameter(const OptimiserBlock& of, int64_t i, const Four& p) {
  p.store(of.t.p + i);
  if (of.t.half) p.store(of.t.half + i);
  if (!of.t.average || of.share == 0) return;
  Four average(of.t.average + i, p.n);
  TESSERA_UNROLL for (int j = 0; j < 4; ++j) average.x[j] += of.share * (p.x[j] - average.x[j]);
  average.store(of.t.average + i);
}
// Copies p in a step that is skipped, so that the copy is that of p after every step.
TESSERA_DEVICE void copy_only(const OptimiserBlock& of) {
  if (of.t.half) for_fours(of, [&](int64_t i, int n) { Four(of.t.p + i, n).store(of.t.half + i); });
}
// Updates both moments of four numbers with their gradients.
TESSERA_DEVICE void update_moments(const OptimiserStep& call, const OptimiserBlock& of, int64_t i,
                                   const Four& g, Four& m, Four& v) {
  m = Four(of.t.m + i, g.n), v = Four(of.t.v + i, g.n);
  TESSERA_UNROLL for (int j = 0; j < 4; ++j) {
    m.x[j] = call.beta1 * m.x[j] + call.rest1 * g.x[j];
    v.x[j] = call.beta2 * v.x[j] + call.rest2 * g.x[j] * g.x[j];
  }
  m.store(of.t.m + i), v.store(of.t.v + i);
}
// 1 - beta^t
TESSERA_DEVICE float bias_of(float log_beta, float updates) { return -expm1f(updates * log_beta); }

struct AdamKernel : OptimiserKernel {
  static TESSERA_DEVICE void run(const Call& call, char*, Block at) {
    const OptimiserBlock of = block_of(call, tensor_of(call, at.x), at.x);
    if (skips(call)) return copy_only(of);
    const float step = of.rate / bias_of(call.log_beta1, of.updates);
    const float root = sqrtf(bias_of(call.log_beta2, of.updates));
    for_fours(of, [&](int64_t i, int n) {
      Four p(of.t.p + i, n), g(of.t.g + i, n), m(n), v(n);
      TESSERA_UNROLL for (int j = 0; j < 4; ++j) {
        g.x[j] = g.x[j] * of.scale + of.l2 * p.x[j];
        p.x[j] -= of.shrink * p.x[j];
      }
      update_moments(call, of, i, g, m, v);
      if (of.t.largest) {
        const Four before(of.t.largest + i, n);
        TESSERA_UNROLL for (int j = 0; j < 4; ++j) v.x[j] = fmaxf(before.x[j], v.x[j]);
        v.store(of.t.largest + i);
      }
      TESSERA_UNROLL for (int j = 0; j < 4; ++j) p.x[j] -= step * m.x[j] / (sqrtf(v.x[j]) / root + call.eps);
      store_parameter(of, i, p);
    });
  }
};

// LARS is SGD with the ratios of the workspace.
template <bool ratios>
struct SgdKernel : OptimiserKernel {
  static TESSERA_DEVICE void run(const Call& call, char*, Block at) {
    const int64_t tensor = tensor_of(call, at.x);
    const OptimiserBlock of = block_of(call, tensor, at.x);
    if (skips(call)) return copy_only(of);
    const float ratio = ratios ? call.sums[2 * call.blocks + tensor] : 1;
    // The first buffer is the gradient itself, without dampening.
    const float momentum = of.first() ? 0 : call.beta1, keep = of.first() ? 1 : call.rest1;
    for_fours(of, [&](int64_t i, int n) {
      Four p(of.t.p + i, n), g(of.t.g + i, n);
      TESSERA_UNROLL for (int j = 0; j < 4; ++j) g.x[j] = ratio * (g.x[j] * of.scale + of.l2 * p.x[j]);
      if (of.t.m) {
        Four buffer(of.t.m + i, n);
        TESSERA_UNROLL for (int j = 0; j < 4; ++j) {
          buffer.x[j] = momentum * buffer.x[j] + keep * g.x[j];
          g.x[j] = call.nesterov ? g.x[j] + call.beta1 * buffer.x[j] : buffer.x[j];
        }
        buffer.store(of.t.m + i);
      }
      TESSERA_UNROLL for (int j = 0; j < 4; ++j) p.x[j] -= of.rate * g.x[j];
      store_parameter(of, i, p);
    });
  }
};

// LAMB's update of a number before its trust ratio, from the moments and the decayed p.
struct LambUpdate {
  float correction, root, eps, l2;
  TESSERA_DEVICE LambUpdate(const OptimiserStep& call, const OptimiserBlock& of)
      : correction(1 / bias_of(call.log_beta1, of.updates)),
        root(sqrtf(bias_of(call.log_beta2, of.updates))),
        eps(call.eps),
        l2(of.l2) {}
  TESSERA_DEVICE float of(float m, float v, float p) const {
    return m * correction / (sqrtf(v) / root + eps) + l2 * p;
  }
};

// Sums p^2 and u^2 of each block: u is LARS's gradient, or LAMB's update after its moments are stored.
template <bool lamb>
struct TrustSumsKernel : OptimiserSums {
  static TESSERA_DEVICE void run(const Call& call, char* shared, Block at) {
    if (skips(call)) return;
    const OptimiserBlock of = block_of(call, tensor_of(call, at.x), at.x);
    const LambUpdate update(call, of);
    float squares = 0, update_squares = 0;
    for_fours(of, [&](int64_t i, int n) {
      Four p(of.t.p + i, n), u(of.t.g + i, n), m(n), v(n);
      TESSERA_UNROLL for (int j = 0; j < 4; ++j) u.x[j] *= of.scale;
      if (lamb) {
        update_moments(call, of, i, u, m, v);
        TESSERA_UNROLL for (int j = 0; j < 4; ++j) {
          p.x[j] -= of.shrink * p.x[j];
          u.x[j] = j < n ? update.of(m.x[j], v.x[j], p.x[j]) : 0;
        }
      }
      TESSERA_UNROLL for (int j = 0; j < 4; ++j) {
        squares += p.x[j] * p.x[j];
        update_squares += u.x[j] * u.x[j];
      }
    });
    squares = block_sum<kWarps>(squares, (float*)shared);
    update_squares = block_sum<kWarps>(update_squares, (float*)shared);
    if (thread() == 0) call.sums[2 * at.x] = squares, call.sums[2 * at.x + 1] = update_squares;
  }
};

// Computes the trust ratio of each tensor.
template <bool lamb>
struct TrustRatioKernel : OptimiserSums {
  static TESSERA_DEVICE float ratio(const Call& call, const OptimiserBlock& of, float length, float update) {
    if (!of.t.adapts) return 1;
    float ratio = 1;
    if (length > 0 && update > 0)
      ratio = call.trust * length / (lamb ? update : update + of.l2 * length + call.trust_eps);
    if (!call.clips_trust || (!lamb && !(of.rate > 0))) return ratio;
    return fminf(lamb ? ratio : ratio / of.rate, 1);
  }
  static TESSERA_DEVICE void run(const Call& call, char* shared, Block at) {
    if (skips(call)) return;
    const int64_t first = call.tensors[at.x].first,
                  blocks = (call.tensors[at.x].count + kOptimiserBlock - 1) / kOptimiserBlock;
    float squares = 0, update_squares = 0;
    for (int64_t i = first + thread(); i < first + blocks; i += kThreads)
      squares += call.sums[2 * i], update_squares += call.sums[2 * i + 1];
    squares = block_sum<kWarps>(squares, (float*)shared);
    update_squares = block_sum<kWarps>(update_squares, (float*)shared);
    if (thread() == 0)
      call.sums[2 * call.blocks + at.x] =
          ratio(call, block_of(call, at.x, first), sqrtf(squares), sqrtf(update_squares));
  }
};

struct LambKernel : OptimiserKernel {
  static TESSERA_DEVICE void run(const Call& call, char*, Block at) {
    const int64_t tensor = tensor_of(call, at.x);
    const OptimiserBlock of = block_of(call, tensor, at.x);
    if (skips(call)) return copy_only(of);
    const LambUpdate update(call, of);
    const float step = of.rate * call.sums[2 * call.blocks + tensor];
    for_fours(of, [&](int64_t i, int n) {
      Four p(of.t.p + i, n);
      const Four m(of.t.m + i, n), v(of.t.v + i, n);
      TESSERA_UNROLL for (int j = 0; j < 4; ++j) {
        p.x[j] -= of.shrink * p.x[j];
        p.x[j] -= step * update.of(m.x[j], v.x[j], p.x[j]);
      }
      store_parameter(of, i, p);
    });
  }
};

}  // namespace tessera::kernels::gpu
