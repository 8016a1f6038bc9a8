// The cases that attention's test checks and its benchmark times: one list, one way to fill a call.
#pragma once

#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include "core/threads.h"
#include "kernels/attention/attention.h"
#include "kernels/testing.h"

namespace tessera::kernels::testing {

enum class Rotated { no, shared, by_head };
// The axes that the bias broadcasts: none, samples, or samples and heads. `windows`: alternating entries for
// two windows.
enum class Added { none, full, over_samples, over_heads, windows };

struct AttentionCase {
  int64_t batch, heads, queries, keys, dim;
  AttentionMask mask = {};
  Rotated rotated = Rotated::no;
  Added bias = Added::none;
  Layout layout = Layout::tokens_first;
  Element element = Element::f32;
  int64_t query_rows = 0, key_block = 0;
};

inline std::ostream& operator<<(std::ostream& out, const AttentionCase& c) {
  return out << "B" << c.batch << " H" << c.heads << " Q" << c.queries << " K" << c.keys << " D" << c.dim
             << (c.mask.causal ? " causal" : "") << " window " << c.mask.window << " first "
             << c.mask.first_query << " future weight " << c.mask.future_weight << " rotated "
             << static_cast<int>(c.rotated) << " bias " << static_cast<int>(c.bias) << " layout "
             << static_cast<int>(c.layout) << (c.element == Element::bf16 ? " bf16" : "");
}

// Sizes around every block boundary: vectors (4, 8, 16), tiles (4, 8 rows; 3 vectors), blocks of 16 and 64
// queries, blocks of keys. Masks, biases and rotations occur in all combinations.
inline const std::vector<AttentionCase>& attention_cases() {
  using enum Rotated;
  using enum Added;
  constexpr Layout first = Layout::heads_first, wide = Layout::tokens_first_wide,
                   tokens = Layout::tokens_first;
  constexpr Element bf = Element::bf16, f32 = Element::f32;
  static const std::vector<AttentionCase> all = {
      {1, 1, 1, 1, 1},
      {1, 2, 2, 3, 5, {}, shared},
      {2, 1, 7, 9, 16, {.future_weight = 0}, no, full, first},
      {1, 3, 15, 15, 32, {.causal = true}, by_head, over_samples, wide},
      {2, 2, 16, 16, 24, {}, no, over_heads},
      {4, 2, 17, 17, 17, {}, no, windows, wide},
      {1, 2, 33, 31, 64, {.future_weight = 0.3f}, shared, none, first},
      {1, 1, 49, 49, 32, {}, no, windows},
      {1, 2, 65, 65, 48, {.causal = true, .window = 7}},
      {1, 2, 70, 70, 40, {.window = 5}, shared},
      {1, 2, 5, 40, 64, {.causal = true, .first_query = 35}, no},
      {2, 2, 1, 33, 64, {.causal = true, .first_query = 32}, by_head, none, wide},
      {1, 2, 8, 90, 32, {.causal = true, .window = 20, .first_query = 60}, no, full, wide, f32, 3, 16},
      {1, 2, 100, 100, 64, {}, shared, none, wide, f32, 33, 30},
      {1, 1, 100, 100, 64, {.causal = true}, no, none, tokens, f32, 20, 17},
      {1, 1, 100, 100, 16, {.future_weight = 0}, no, over_samples, tokens, f32, 20, 48},
      {1, 2, 197, 197, 64, {.future_weight = 0}, shared},
      {1, 1, 197, 197, 96},
      {1, 2, 100, 100, 32, {}, no, full, tokens, f32, 20, 17},
      {1, 1, 130, 130, 128, {.window = 40}, shared, none, tokens, f32, 0, 64},
      {2, 2, 33, 33, 64, {}, no, none, wide, bf},
      {1, 2, 70, 70, 40, {.causal = true}, shared, over_samples, tokens, bf, 16, 32},
      {1, 2, 197, 197, 64, {.future_weight = 0}, shared, none, tokens, bf},
      {1, 1, 20, 0, 16},
      {0, 2, 20, 20, 16},
      {2, 2, 0, 20, 16},
  };
  return all;
}

// All arguments of one call, filled with random numbers.
struct AttentionProblem {
  // If `in_words`, bfloat16 rows start at word boundaries, else between two words.
  explicit AttentionProblem(const AttentionCase& config, uint64_t seed = 1, bool in_words = false)
      : c(config),
        shift(c.element == Element::f32 ? 1
              : in_words                ? 2
                                        : 3),
        q(tensor(c.queries)),
        out(tensor(c.queries)),
        dout(tensor(c.queries)),
        dq(tensor(c.queries)),
        k(tensor(c.keys)),
        v(tensor(c.keys)),
        dk(tensor(c.keys)),
        dv(tensor(c.keys)) {
    const int64_t rows = c.batch * c.heads * c.dim;
    q.fill(normal(rows * c.queries, seed)), k.fill(normal(rows * c.keys, seed + 1));
    v.fill(normal(rows * c.keys, seed + 2)), dout.fill(normal(rows * c.queries, seed + 3));
    lse.resize(c.batch * c.heads * c.queries);
    if (c.rotated != Rotated::no)
      for (const float angle :
           uniform((c.rotated == Rotated::by_head ? c.heads : 1) * tokens() * pairs(), seed + 4, -9, 9))
        cos.push_back(std::cos(angle)), sin.push_back(std::sin(angle));
    if (c.bias == Added::none) return;
    bias_values = normal(bias_batches() * bias_heads() * c.queries * c.keys, seed + 5);
    // Hides some keys, but never a query's own.
    for (size_t i = 0; i < bias_values.size(); i += 7) bias_values[i] = -INFINITY;
    dbias.assign(bias_values.size(), -1.0f);
  }
  int64_t tokens() const { return std::max(c.queries, c.keys); }
  int64_t pairs() const { return c.dim / 3; }  // some channels are not rotated
  int64_t items() const { return c.batch * c.heads; }
  int64_t bias_heads() const { return c.bias == Added::over_heads ? 1 : c.heads; }
  int64_t bias_batches() const {
    return c.bias == Added::full ? std::max<int64_t>(c.batch, 1) : c.bias == Added::windows ? 2 : 1;
  }
  AttentionShape shape() const {
    return attention_plan({c.batch, c.heads, c.queries, c.keys, c.dim,
                           1 / std::sqrt(static_cast<float>(c.dim)), c.query_rows, c.key_block},
                          num_threads());
  }
  Rotary rotary() const {
    if (cos.empty()) return {};
    return {cos.data(), sin.data(), c.rotated == Rotated::by_head ? tokens() * pairs() : 0, pairs(), pairs()};
  }
  AttentionBias bias() const {
    if (c.bias == Added::none) return {};
    const int64_t head = c.queries * c.keys;
    return {bias_values.data(), bias_batches(), bias_heads() * head,
            bias_heads() > 1 || c.heads == 1 ? head : 0, c.keys};
  }
  AttentionForward forward() {
    return {shape(), c.mask, q.in(), k.in(), v.in(), out.out(), rotary(), rotary(), bias(), lse.data()};
  }
  AttentionBackward backward() {
    return {shape(),  c.mask,     q.in(),    k.in(),   v.in(),
            out.in(), lse.data(), dout.in(), dq.out(), dk.out(),
            dv.out(), rotary(),   rotary(),  bias(),   dbias.empty() ? nullptr : dbias.data()};
  }

  AttentionCase c;
  int64_t shift;  // shift of all tensors, in elements
  HeadTensor q, out, dout, dq, k, v, dk, dv;
  std::vector<float> lse, cos, sin, bias_values, dbias;

 private:
  HeadTensor tensor(int64_t rows) const {
    return {c.batch, c.heads, rows, c.dim, c.layout, c.element, shift};
  }
};

}  // namespace tessera::kernels::testing
