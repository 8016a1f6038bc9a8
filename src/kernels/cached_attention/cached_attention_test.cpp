// Compares every implementation with the definition, at sizes around its blocks.
#include "kernels/cached_attention/cached_attention.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/text.h"
#include "core/threads.h"
#include "kernels/isa.h"
#include "kernels/testing.h"

namespace tessera::kernels {
namespace {

using testing::HeadTensor;
using testing::Layout;
using testing::normal;

struct Sizes {
  int64_t batch, heads, kv_heads, keys, dim;
};

struct Problem {
  Problem(const Sizes& s, Element stored)
      : sizes(s),
        element(stored),
        q(s.batch, s.heads, 1, s.dim, Layout::tokens_first, stored),
        new_k(s.batch, s.kv_heads, 1, s.dim, Layout::tokens_first_wide, stored),
        new_v(s.batch, s.kv_heads, 1, s.dim, Layout::heads_first, stored),
        cos(normal(s.batch * (s.dim / 2 + 1), 5)),
        sin(normal(s.batch * (s.dim / 2 + 1), 6)),
        slopes(normal(s.heads, 7, 0.2, 0.1)),
        seen(static_cast<size_t>(s.batch * s.keys), 1) {
    q.fill(normal(s.batch * s.heads * s.dim, 1));
    new_k.fill(normal(s.batch * s.kv_heads * s.dim, 2));
    new_v.fill(normal(s.batch * s.kv_heads * s.dim, 3));
    for (size_t i = 0; i < seen.size(); ++i) seen[i] = i % 3 != 0;
  }
  // The result, then the cache with the new token.
  std::vector<double> run(Isa isa, bool rotated, bool masked, int64_t window) {
    force_isa(isa);
    const auto& [batch, heads, kv_heads, keys, dim] = sizes;
    HeadTensor k(batch, kv_heads, keys, dim, Layout::heads_first, element, 1),
        v(batch, kv_heads, keys, dim, Layout::tokens_first_wide, element),
        out(batch, heads, 1, dim, Layout::tokens_first, element);
    k.fill(normal(batch * kv_heads * keys * dim, 8));
    v.fill(normal(batch * kv_heads * keys * dim, 9));
    CachedAttention call{batch,  heads,      kv_heads,   keys,    dim,     0.3f,
                         q.in(), new_k.in(), new_v.in(), k.out(), v.out(), out.out()};
    if (rotated) call.cos = cos.data(), call.sin = sin.data(), call.angles_batch = dim / 2;
    if (masked) call.seen = seen.data(), call.seen_batch = keys, call.slopes = slopes.data();
    call.window = window;
    cached_attention(call);
    std::vector<double> all;
    for (const auto& [tensor, count] : {std::pair(&out, heads), {&k, kv_heads}, {&v, kv_heads}})
      for (int64_t i = 0; i < batch * count; ++i)
        for (const double number : tensor->item(i)) all.push_back(number);
    return all;
  }
  Sizes sizes;
  Element element;
  HeadTensor q, new_k, new_v;
  std::vector<float> cos, sin, slopes;
  std::vector<uint8_t> seen;
};

TEST(CachedAttention, IsTheDefinition) {
  const Isa before = active_isa();
  for (const Element element : {Element::f32, Element::bf16})
    for (const Sizes& s : {Sizes{1, 1, 1, 1, 2},
                           {2, 4, 2, 5, 6},
                           {1, 6, 2, 17, 16},
                           {3, 2, 1, 33, 40},
                           {1, 9, 3, 70, 64},
                           {2, 2, 2, 16, 80},
                           {1, 4, 4, 2, 130}})
      for (const bool rotated : {false, true})
        for (const bool masked : {false, true})
          for (const int64_t window : {0, 4}) {
            Problem problem(s, element);
            const std::vector<double> want = problem.run(Isa::reference, rotated, masked, window);
            // Sums of at most 130 floats; results in bfloat16 are off by half a unit of 8 bits.
            const double tolerance =
                (element == Element::f32 ? 2e-6 : 1.0 / 256) * (1 + testing::largest(want));
            for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512})
              if (isa <= machine().best)
                testing::expect_within(
                    problem.run(isa, rotated, masked, window), want, tolerance,
                    text(name_of(isa), " ", s.batch, " x ", s.heads, " x ", s.keys, " x ", s.dim), s.dim);
          }
  force_isa(before);
}

TEST(CachedAttention, ATokenThatSeesNoKeyReadsZeros) {
  const Isa before = active_isa();
  Problem problem({1, 2, 1, 3, 8}, Element::f32);
  problem.seen.assign(3, 0);
  for (const Isa isa : {Isa::reference, before}) {
    const std::vector<double> got = problem.run(isa, false, true, 0);
    for (size_t i = 0; i < 16; ++i) EXPECT_EQ(got[i], 0);
  }
  force_isa(before);
}

TEST(CachedAttention, ThreadsChangeNothing) {
  Problem problem({2, 8, 4, 300, 64}, Element::f32);
  const Isa before = active_isa();
  const int threads = num_threads();
  set_num_threads(3);
  const std::vector<double> shared = problem.run(before, true, true, 0);
  set_num_threads(1);
  EXPECT_EQ(problem.run(before, true, true, 0), shared);
  set_num_threads(threads);
}

TEST(CachedAttention, RefusesWhatDoesNotFit) {
  CachedAttention call{.batch = 1, .heads = 3, .kv_heads = 2, .keys = 1, .dim = 4};
  EXPECT_THROW(cached_attention(call), Error);
  call.heads = 2;
  EXPECT_THROW(cached_attention(call), Error);  // no tensors
  const float angle = 1;
  call.dim = 3, call.cos = &angle, call.sin = &angle;
  EXPECT_THROW(cached_attention(call), Error);
}

}  // namespace
}  // namespace tessera::kernels
