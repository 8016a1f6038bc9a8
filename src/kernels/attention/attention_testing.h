// Shared by the tests of attention: one head in double and float, and working memory with leftovers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernels/attention/attention_cases.h"
#include "kernels/attention/attention_ref.h"

namespace tessera::kernels::testing {

using Doubles = std::vector<double>;

inline AttentionHead<double> head_of(AttentionProblem& p, int64_t item) {
  return attention_head_of(p.shape(), p.c.mask, p.q.in(), p.k.in(), p.v.in(), p.rotary(), p.rotary(),
                           p.bias(), item);
}

template <class To, class From>
std::vector<To> convert(const std::vector<From>& from) {
  return std::vector<To>(from.begin(), from.end());
}
inline AttentionHead<float> in_float(const AttentionHead<double>& h) {
  const auto rotary = [](const RotaryRef<double>& t) {
    return RotaryRef<float>{t.pairs, convert<float>(t.cos), convert<float>(t.sin)};
  };
  return {h.queries,
          h.keys,
          h.dim,
          static_cast<float>(h.scale),
          h.mask,
          convert<float>(h.q),
          convert<float>(h.k),
          convert<float>(h.v),
          convert<float>(h.bias),
          rotary(h.q_rotary),
          rotary(h.k_rotary)};
}

struct Named {
  const char* name;
  Doubles values;
};
using Results = std::vector<Named>;

template <class Real>
Results expected(const AttentionHead<Real>& head, const Doubles& dout) {
  const auto g = attention_head_backward(head, convert<Real>(dout));
  return {{"out", convert<double>(attention_head_forward(head).out)},
          {"dq", convert<double>(g.dq)},
          {"dk", convert<double>(g.dk)},
          {"dv", convert<double>(g.dv)}};
}

// Aligned working memory with leftovers of earlier use; each instance has another kind.
class Scratch {
 public:
  explicit Scratch(const AttentionShape& shape) {
    static int made = 0;
    const float kinds[] = {std::numeric_limits<float>::quiet_NaN(), 1e-42f,
                           std::numeric_limits<float>::infinity(), -3e38f};
    const size_t bytes =
        std::max(attention_scratch_bytes(shape, false), attention_scratch_bytes(shape, true));
    memory_.assign(bytes / 4 + 32, kinds[made++ % 4]);
  }
  void* get() {
    return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory_.data()) + 63) / 64 * 64);
  }

 private:
  std::vector<float> memory_;
};

inline void run(AttentionProblem& p, const AttentionFunctions& functions) {
  Scratch scratch(p.shape());
  functions.forward(p.forward(), 0, attention_units(p.shape()), scratch.get());
  std::fill(p.dbias.begin(), p.dbias.end(), 0.0f);
  functions.backward(p.backward(), 0, p.items(), p.dbias.empty() ? nullptr : p.dbias.data(), scratch.get());
}

template <class Body>
void for_each_form(Body body) {
  for_each_implementation(attention_table(), body);
  for_each_implementation(
      attention_pairs_table(),
      [&](const std::string& isa, const AttentionFunctions& pairs) { body("bf16 pairs, " + isa, pairs); });
}

}  // namespace tessera::kernels::testing
