// Attention for decoding on a GPU: the formula of cached_attention.h, with the number of tokens in the device's memory.
//
// A block has one head of keys of a sample and kCachedChunk of its keys, so a long cache occupies the whole machine: it reads
// them once for all queries of the head, and stores the sums of its softmax. A second kernel joins the chunks in order. Chunks
// count from the first token, so neither the memory that the cache has nor later tokens change a bit. Blocks after the last
// token end at once. Bytes: the keys and values, once.
#pragma once

#include "kernels/gpu/launch.h"

namespace tessera::kernels::gpu {

// Returns channel c of a row, rotated by the sample's angles. Channels m and m + D / 2 are a pair.
TESSERA_DEVICE float rotated_channel(const CachedAttention& call, const uint16_t* row, int64_t sample,
                                     int64_t c) {
  const float x = to_float(bf16{row[c]});
  if (!call.cos) return x;
  const int64_t half = call.dim / 2, place = sample * call.angles_sample + c % half;
  const float other = to_float(bf16{row[c < half ? c + half : c - half]}), turned = other * call.sin[place];
  return x * call.cos[place] + (c < half ? -turned : turned);
}

// The first key that a token after n others sees, for the whole window.
TESSERA_DEVICE int64_t first_key(const CachedAttention& call, int64_t n) {
  return call.window > 0 && n + 1 > call.window ? n + 1 - call.window : 0;
}

// kParts lanes read a key, eight channels each. Grid: heads of keys, chunks.
template <int kParts>
struct CachedChunkKernel {
  using Call = CachedAttention;
  static constexpr int kWarps = 4, kThreads = kWarps * kLanes, kBlocks = 4;
  static constexpr int kWidth = 8 * kParts, kRows = kThreads / kParts;  // channels; keys at a time
  static constexpr int kAtOnce = 4, kLoads = 4;                         // queries; keys of a thread under way
  static constexpr int kQueries = kCachedGroup * kWidth, kScores = kCachedGroup * kCachedChunk;  // floats
  static constexpr int kShared = 4 * (kQueries + kScores + kRows * kAtOnce * kWidth);

  struct Place {
    int64_t sample, head, group, n, first;  // head of keys; queries of a head; tokens before; first key
    int count;                              // keys of the chunk
    float *q, *scores, *sums;
  };

  static TESSERA_DEVICE void run(const Call& call, char* shared, Block at) {
    const int64_t n = *call.before, first = at.y * kCachedChunk;
    if (n < 0 || n >= call.room || first > n || first + kCachedChunk <= first_key(call, n)) return;
    float* const q = (float*)shared;
    const Place p = {at.x / call.kv_heads,
                     at.x % call.kv_heads,
                     call.heads / call.kv_heads,
                     n,
                     first,
                     (int)(n + 1 - first < kCachedChunk ? n + 1 - first : kCachedChunk),
                     q,
                     q + kQueries,
                     q + kQueries + kScores};
    if (n < first + kCachedChunk) append(call, p);
    for (int i = thread(); i < p.group * kWidth; i += kThreads) {
      const int64_t head = p.head * p.group + i / kWidth, c = i % kWidth;
      const uint16_t* const row = call.q.data + p.sample * call.q.sample + head * call.q.head;
      q[i] = c < call.dim ? kLog2e * call.scale * rotated_channel(call, row, p.sample, c) : 0;
    }
    barrier();
    for (int g = 0; g < p.group; g += kAtOnce) score(call, p, g);
    barrier();
    for (int g = warp(); g < p.group; g += kWarps) weigh(call, p, g);
    barrier();
    for (int g = 0; g < p.group; g += kAtOnce) add_values(call, p, g);
  }

  // Stores the new token. The block reads it after a barrier as any other.
  static TESSERA_DEVICE void append(const Call& call, const Place& p) {
    const uint16_t* const k = call.new_k.data + p.sample * call.new_k.sample + p.head * call.new_k.head;
    const uint16_t* const v = call.new_v.data + p.sample * call.new_v.sample + p.head * call.new_v.head;
    for (int64_t c = thread(); c < call.dim; c += kThreads) {
      row_of(call.k, p, p.n)[c] = to_bf16(rotated_channel(call, k, p.sample, c)).bits;
      row_of(call.v, p, p.n)[c] = v[c];
    }
  }
  static TESSERA_DEVICE uint16_t* row_of(const HeadsOf<uint16_t*>& cache, const Place& p, int64_t token) {
    return cache.data + p.sample * cache.sample + p.head * cache.head + token * cache.token;
  }
  static TESSERA_DEVICE int part() { return thread() % kParts; }
  // Reads the thread's channels of a key or value; zeros after its end.
  static TESSERA_DEVICE void load(float (&to)[8], const Call& call, const HeadsOf<uint16_t*>& cache,
                                  const Place& p, int key) {
    if (key < p.count && 8 * part() < call.dim) {
      load8(to, row_of(cache, p, p.first + key), Element::bf16, 8 * part());
    } else {
      TESSERA_UNROLL for (int j = 0; j < 8; ++j) to[j] = 0;
    }
  }

  // The scores of kAtOnce queries from g on, in base 2.
  static TESSERA_DEVICE void score(const Call& call, const Place& p, int g) {
    float q[kAtOnce][8];
    TESSERA_UNROLL for (int i = 0; i < kAtOnce; ++i) {
      TESSERA_UNROLL for (int j = 0; j < 8; ++j) {
        q[i][j] = g + i < p.group ? p.q[(g + i) * kWidth + 8 * part() + j] : 0;
      }
    }
    TESSERA_ROLLED for (int begin = 0; begin < p.count; begin += kLoads * kRows) {  // of whole warps
      float x[kLoads][8];
      const int key = begin + thread() / kParts;
      TESSERA_UNROLL for (int t = 0; t < kLoads; ++t) load(x[t], call, call.k, p, key + t * kRows);
      TESSERA_UNROLL for (int t = 0; t < kLoads; ++t) score_key(call, p, g, key + t * kRows, q, x[t]);
    }
  }
  static TESSERA_DEVICE void score_key(const Call& call, const Place& p, int g, int key,
                                       const float (&q)[kAtOnce][8], const float (&x)[8]) {
    TESSERA_UNROLL for (int i = 0; i < kAtOnce; ++i) {
      float sum = 0;
      TESSERA_UNROLL for (int j = 0; j < 8; ++j) sum += q[i][j] * x[j];
      TESSERA_UNROLL for (int mask = kParts / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
      if (part() == i && key < p.count && g + i < p.group)
        p.scores[(g + i) * kCachedChunk + key] = biased(call, p, g + i, key, sum);
    }
  }
  static TESSERA_DEVICE float biased(const Call& call, const Place& p, int g, int key, float score) {
    const int64_t j = p.first + key;
    if (j < first_key(call, p.n) || (call.seen && !call.seen[p.sample * call.seen_sample + j]))
      return -INFINITY;
    if (!call.slopes) return score;
    return score + kLog2e * call.slopes[p.head * p.group + g] * (float)(j - p.n);
  }

  // Replaces a query's scores by powers, and stores their largest score and their sum. A warp has a query.
  static TESSERA_DEVICE void weigh(const Call& call, const Place& p, int g) {
    float* const scores = p.scores + g * kCachedChunk;
    float most = -INFINITY, sum = 0;
    for (int key = lane(); key < p.count; key += kLanes) most = fmaxf(most, scores[key]);
    TESSERA_UNROLL for (int mask = 16; mask > 0; mask /= 2) most = fmaxf(most, shuffle_xor(most, mask));
    const float from = most == -INFINITY ? 0 : most;  // no key is visible
    for (int key = lane(); key < p.count; key += kLanes) {
      scores[key] = exp2_fast(scores[key] - from);
      sum += scores[key];
    }
    sum = warp_sum(sum);
    if (lane() != 0) return;
    float* const stored = cached_stats(call) + 2 * unit_of(call, p, g);
    stored[0] = most, stored[1] = sum;
  }
  // The place of a query's chunk in `partial`.
  static TESSERA_DEVICE int64_t unit_of(const Call& call, const Place& p, int g) {
    const int64_t head = p.sample * call.heads + p.head * p.group + g;
    return head * cached_chunks(call.room) + p.first / kCachedChunk;
  }

  // Sums powers times values of kAtOnce queries from g on: first each row of threads its keys, then the rows in order.
  static TESSERA_DEVICE void add_values(const Call& call, const Place& p, int g) {
    float sum[kAtOnce][8] = {};
    const int row = thread() / kParts;
    TESSERA_ROLLED for (int begin = row; begin < p.count; begin += kLoads * kRows) {
      float x[kLoads][8];
      TESSERA_UNROLL for (int t = 0; t < kLoads; ++t) load(x[t], call, call.v, p, begin + t * kRows);
      TESSERA_UNROLL for (int t = 0; t < kLoads; ++t) {
        const int key = begin + t * kRows;
        TESSERA_UNROLL for (int i = 0; i < kAtOnce; ++i) {
          const bool valid = g + i < p.group && key < p.count;
          const float power = valid ? p.scores[(g + i) * kCachedChunk + key] : 0;
          TESSERA_UNROLL for (int j = 0; j < 8; ++j) sum[i][j] += power * x[t][j];
        }
      }
    }
    TESSERA_UNROLL for (int i = 0; i < kAtOnce; ++i) {
      TESSERA_UNROLL for (int j = 0; j < 8; ++j) {
        p.sums[(row * kAtOnce + i) * kWidth + 8 * part() + j] = sum[i][j];
      }
    }
    barrier();
    for (int i = thread(); i < kAtOnce * kWidth; i += kThreads) {
      const int query = g + i / kWidth, c = i % kWidth;
      if (query >= p.group || c >= call.dim) continue;
      float total = 0;
      for (int r = 0; r < kRows; ++r) total += p.sums[r * kAtOnce * kWidth + i];
      call.partial[unit_of(call, p, query) * call.dim + c] = total;
    }
    barrier();
  }
};

// Joins the chunks of a query. Grid: samples x heads.
struct CachedJoinKernel {
  using Call = CachedAttention;
  static constexpr int kThreads = 128, kShared = 0, kBlocks = 8;

  static TESSERA_DEVICE void run(const Call& call, char*, Block at) {
    const int64_t n = *call.before;
    if (n < 0 || n >= call.room) return;
    const int64_t begin = first_key(call, n) / kCachedChunk, end = n / kCachedChunk + 1;
    const int64_t unit = at.x * cached_chunks(call.room);
    const float* const stats = cached_stats(call) + 2 * unit;
    float most = -INFINITY, total = 0;
    for (int64_t i = begin; i < end; ++i) most = fmaxf(most, stats[2 * i]);
    const float from = most == -INFINITY ? 0 : most;
    for (int64_t i = begin; i < end; ++i) total += stats[2 * i + 1] * exp2_fast(stats[2 * i] - from);
    const int64_t head = at.x % call.heads, sample = at.x / call.heads;
    uint16_t* const out = call.out.data + sample * call.out.sample + head * call.out.head;
    for (int64_t c = thread(); c < call.dim; c += kThreads) {
      float sum = 0;
      for (int64_t i = begin; i < end; ++i)
        sum += call.partial[(unit + i) * call.dim + c] * exp2_fast(stats[2 * i] - from);
      out[c] = to_bf16(total > 0 ? sum / total : 0).bits;
    }
  }
};

}  // namespace tessera::kernels::gpu
