// Attention for decoding on the emulator, against the definition in double.
#include <algorithm>

#include "kernels/cached_attention/cached_attention.h"
#include "kernels/gpu/gpu_testing.h"
#include "kernels/isa.h"

namespace tessera::kernels {
namespace {

using namespace gpu_testing;

struct Case {
  int64_t batch, heads, kv_heads, before, room, dim;
  bool rotated, of_samples, masked;  // angles of each sample; padding and slopes
  int64_t window;
};
const Case kCases[] = {
    {1, 1, 1, 0, 1, 8, false, false, false, 0},       {2, 6, 2, 5, 70, 64, true, true, true, 0},
    {1, 9, 3, 127, 300, 40, true, false, false, 0},   {1, 4, 4, 128, 129, 96, true, false, true, 0},
    {2, 2, 2, 200, 256, 128, false, false, true, 70}, {1, 16, 1, 300, 400, 72, true, true, false, 129},
    {1, 5, 1, 257, 260, 256, true, false, true, 1},   {1, 7, 1, 255, 256, 16, false, false, false, 128},
};

// The tensors of a case; every second token of the cache has channels of another head next to it.
struct Problem {
  explicit Problem(const Case& c, int64_t room = 0)
      : sizes(c),
        q(Element::bf16, normal(c.batch * c.heads * c.dim, 1)),
        new_k(Element::bf16, normal(c.batch * c.kv_heads * c.dim, 2)),
        new_v(Element::bf16, normal(c.batch * c.kv_heads * c.dim, 3)),
        cos(Element::f32, uniform(c.batch * c.dim / 2, 4, -1, 1)),
        sin(Element::f32, uniform(c.batch * c.dim / 2, 5, -1, 1)),
        slopes(Element::f32, uniform(c.heads, 6, 0, 0.1)),
        k(cache(c, room, 7)),
        v(cache(c, room, 8)),
        out(Element::bf16, c.batch * c.heads * c.dim),
        seen(static_cast<size_t>(c.batch * (room ? room : c.room)), 1) {
    call.batch = c.batch, call.heads = c.heads, call.kv_heads = c.kv_heads, call.dim = c.dim;
    call.room = room ? room : c.room, call.scale = 0.3f, call.before = &before, call.window = c.window;
    before = c.before;
    call.q = {q.as<uint16_t>(), c.heads * c.dim, c.dim, c.dim};
    call.new_k = {new_k.as<uint16_t>(), c.kv_heads * c.dim, c.dim, c.dim};
    call.new_v = {new_v.as<uint16_t>(), c.kv_heads * c.dim, c.dim, c.dim};
    call.k = {k.as<uint16_t>(), c.kv_heads * call.room * c.dim, c.dim, c.kv_heads * c.dim};
    call.v = {v.as<uint16_t>(), c.kv_heads * call.room * c.dim, c.dim, c.kv_heads * c.dim};
    call.out = {out.as<uint16_t>(), c.heads * c.dim, c.dim, c.dim};
    if (c.rotated) call.cos = cos.as<float>(), call.sin = sin.as<float>();
    call.angles_sample = c.of_samples ? c.dim / 2 : 0;
    if (c.masked) {
      for (size_t i = 0; i < seen.size(); ++i) seen[i] = i % static_cast<size_t>(call.room) >= 3;
      call.seen = seen.data(), call.seen_sample = call.room, call.slopes = slopes.as<float>();
    }
    partial = std::make_unique<DeviceArray>(Element::f32, gpu::cached_numbers(call));
    call.partial = partial->as<float>();
  }
  // Tokens after the new one are NaN.
  static DeviceArray cache(const Case& c, int64_t room, uint64_t seed) {
    const int64_t of_token = c.kv_heads * c.dim, tokens = room ? room : c.room;
    DeviceArray all(Element::bf16, c.batch * tokens * of_token);
    const std::vector<float> values = normal(c.batch * c.before * of_token, seed);
    for (int64_t i = 0; i < std::ssize(values); ++i) {
      const int64_t sample = i / (c.before * of_token);
      write_element(all.data(), Element::bf16, i + sample * (tokens - c.before) * of_token, values[i]);
    }
    return all;
  }
  // Returns the result by the definition, which adds the new token to this problem's cache.
  std::vector<double> want() {
    const auto in = [](const gpu::HeadsOf<const uint16_t*>& x) {
      return HeadRows{x.data, Element::bf16, x.sample, x.head, x.token};
    };
    const auto to = [](const gpu::HeadsOf<uint16_t*>& x) {
      return HeadRowsOut{x.data, Element::bf16, x.sample, x.head, x.token};
    };
    DeviceArray wide(Element::f32, out.count());
    CachedAttention plain{sizes.batch, sizes.heads,    sizes.kv_heads, before + 1, sizes.dim,  call.scale,
                          in(call.q),  in(call.new_k), in(call.new_v), to(call.k), to(call.v), to(call.out)};
    plain.out.data = wide.data(), plain.out.element = Element::f32;
    plain.cos = call.cos, plain.sin = call.sin, plain.angles_batch = call.angles_sample;
    plain.window = call.window, plain.slopes = call.slopes;
    plain.seen = call.seen, plain.seen_batch = call.seen_sample;
    const Isa active = active_isa();
    force_isa(Isa::reference);
    cached_attention(plain);
    force_isa(active);
    return wide.values();
  }
  Case sizes;
  DeviceArray q, new_k, new_v, cos, sin, slopes, k, v, out;
  std::unique_ptr<DeviceArray> partial;
  std::vector<uint8_t> seen;
  int64_t before = 0;
  gpu::CachedAttention call;
};

// Compares numbers that may be NaN in both.
void expect_same(const DeviceArray& got, const DeviceArray& want, const std::string& what) {
  for (int64_t i = 0; i < want.count(); ++i)
    ASSERT_TRUE(got.get(i) == want.get(i) || (std::isnan(got.get(i)) && std::isnan(want.get(i))))
        << what << ": element " << i << " is " << got.get(i) << ", want " << want.get(i);
}

TEST(CachedAttentionOnGpu, IsTheDefinition) {
  for (const Case& c : kCases) {
    const std::string what = text("case ", &c - kCases);
    Problem got(c), plain(c);
    run_emulated(&gpu::Table::cached_attention, got.call, {&got.out});
    expect_rounded(got.out, plain.want(), 2e-5, what);
    expect_same(got.k, plain.k, what + ", keys");
    expect_same(got.v, plain.v, what + ", values");
  }
}

TEST(CachedAttentionOnGpu, MoreRoomChangesNoBit) {
  for (const Case& c : {kCases[1], kCases[5]}) {
    Problem tight(c, c.before + 1), wide(c, c.before + 500);
    run_emulated(&gpu::Table::cached_attention, tight.call, {&tight.out});
    run_emulated(&gpu::Table::cached_attention, wide.call, {&wide.out});
    expect_same(wide.out, tight.out, "the result");
  }
}

TEST(CachedAttentionOnGpu, ATokenThatSeesNoKeyReadsZeros) {
  Problem p(kCases[3]);
  std::fill(p.seen.begin(), p.seen.end(), 0);
  run_emulated(&gpu::Table::cached_attention, p.call, {&p.out});
  for (const double value : p.out.values()) EXPECT_EQ(value, 0);
}

TEST(CachedAttentionOnGpu, AFullCacheIsLeftAlone) {
  for (const int64_t before : {int64_t{70}, int64_t{1} << 40, int64_t{-1}}) {
    Problem p(kCases[1]), untouched(kCases[1]);
    p.before = before;
    run_emulated(&gpu::Table::cached_attention, p.call, {});
    expect_same(p.k, untouched.k, "keys");
    expect_same(p.out, untouched.out, "the result");
  }
}

TEST(CachedAttentionOnGpu, OtherShapesAreDeclined) {
  Problem p(kCases[1]);
  const auto form = [&] { return gpu::choose_form(tessera_gpu_table()->cached_attention, 90, p.call); };
  const auto declines = [&](auto change) {
    const gpu::CachedAttention before = p.call;
    change(p.call);
    EXPECT_EQ(form(), nullptr);
    p.call = before;
  };
  ASSERT_NE(form(), nullptr);
  EXPECT_STREQ(form()->name, "chunks64");
  declines([](auto& call) { call.dim = 60; });
  declines([](auto& call) { call.dim = 264; });
  declines([](auto& call) { call.heads = 34; });  // 17 queries of a head
  declines([](auto& call) { call.heads = 5; });
  declines([](auto& call) { call.room = 0; });
  declines([](auto& call) { call.k.token = 4; });
}

}  // namespace
}  // namespace tessera::kernels
