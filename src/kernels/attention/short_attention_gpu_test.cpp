// Attention over few keys for GPUs on the emulator, against the definition in double.
#include <numeric>
#include <ostream>

#include "kernels/attention/attention_ref.h"
#include "kernels/gpu/gpu_testing.h"

namespace tessera::kernels {
namespace {

using namespace gpu_testing;

struct Case {
  int64_t batch, heads, queries, keys, dim;
  bool causal = false;
  int64_t first_query = 0;
  float future_weight = 1;
  float spread = 1;  // deviation of q, and about that of the scores
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "B" << c.batch << " H" << c.heads << " Q" << c.queries << " K" << c.keys << " D" << c.dim
             << (c.causal ? " causal" : "") << " from " << c.first_query << " future " << c.future_weight
             << " scores " << c.spread;
}

// One token, tiles and their neighbours, every form; masks of both kinds, a cache; flat and sharp weights.
const Case kCases[] = {
    {1, 1, 1, 1, 32},
    {2, 2, 7, 7, 64},
    {1, 2, 64, 64, 64, true},
    {2, 1, 65, 65, 32, true, 0, 1, 8},
    {1, 2, 197, 197, 64},
    {1, 1, 197, 197, 64, false, 0, 0.25f, 4},
    {1, 1, 208, 208, 48, true, 0, 1, 3},
    {1, 1, 49, 209, 40, false},
    {1, 1, 33, 256, 64, true, 223},
    {1, 1, 300, 20, 24, false, 0, 0.5f},
    {1, 1, 70, 130, 16, true, 60, 1, 30},
    {1, 1, 80, 80, 72},
    {1, 1, 66, 256, 128, true, 190},
};

// All tensors of a case. q, k and v are parts of (B,T,3,H,D) if there are as many queries as keys.
struct Problem {
  explicit Problem(const Case& config)
      : c(config),
        packed(c.queries == c.keys),
        q(Element::bf16, normal(numbers(c.queries), 1, 0, c.spread)),
        k(Element::bf16, normal(numbers(c.keys), 2)),
        v(Element::bf16, normal(numbers(c.keys), 3)),
        out(Element::bf16, rows(c.queries)),
        dout(Element::bf16, normal(rows(c.queries), 4)),
        dq(Element::bf16, rows(c.queries)),
        dk(Element::bf16, rows(c.keys)),
        dv(Element::bf16, rows(c.keys)),
        lse(Element::f32, c.batch * c.heads * c.queries) {}

  int64_t rows(int64_t tokens) const { return c.batch * tokens * c.heads * c.dim; }
  int64_t numbers(int64_t tokens) const { return rows(tokens) * (packed ? 3 : 1); }
  // Places of a (B,T,H,D) tensor, the part of a packed one.
  template <class Pointer>
  gpu::HeadsOf<Pointer> places(DeviceArray& of, int64_t tokens, int64_t part, bool in_packed) const {
    const int64_t token = c.heads * c.dim * (in_packed ? 3 : 1);
    return {of.as<std::remove_pointer_t<Pointer>>() + (in_packed ? part * c.heads * c.dim : 0),
            tokens * token, c.dim, token};
  }
  gpu::AttentionForward forward() {
    gpu::AttentionForward call;
    call.batch = c.batch, call.heads = c.heads, call.queries = c.queries, call.keys = c.keys,
    call.dim = c.dim;
    call.scale = 1 / std::sqrt(static_cast<float>(c.dim));
    call.causal = c.causal, call.first_query = c.first_query, call.future_weight = c.future_weight;
    call.q = places<const uint16_t*>(q, c.queries, 0, packed);
    call.k = places<const uint16_t*>(k, c.keys, 1, packed);
    call.v = places<const uint16_t*>(v, c.keys, 2, packed);
    call.out = places<uint16_t*>(out, c.queries, 0, false);
    call.lse = lse.as<float>();
    return call;
  }
  gpu::AttentionBackward backward() {
    return {forward(), places<const uint16_t*>(dout, c.queries, 0, false),
            places<uint16_t*>(dq, c.queries, 0, false), places<uint16_t*>(dk, c.keys, 0, false),
            places<uint16_t*>(dv, c.keys, 0, false)};
  }

  // The numbers of one head of a tensor, (tokens,dim).
  template <class Pointer>
  std::vector<double> head(const gpu::HeadsOf<Pointer>& of, int64_t tokens, int64_t item) const {
    std::vector<double> all;
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t d = 0; d < c.dim; ++d)
        all.push_back(read_element(of.data, Element::bf16,
                                   item / c.heads * of.sample + item % c.heads * of.head + t * of.token + d));
    return all;
  }
  AttentionHead<double> definition(int64_t item) {
    const gpu::AttentionForward call = forward();
    AttentionHead<double> head_of;
    head_of.queries = c.queries, head_of.keys = c.keys, head_of.dim = c.dim, head_of.scale = call.scale;
    head_of.mask = {c.causal, 0, c.first_query, c.future_weight};
    head_of.q = head(call.q, c.queries, item), head_of.k = head(call.k, c.keys, item);
    head_of.v = head(call.v, c.keys, item);
    return head_of;
  }

  Case c;
  bool packed;
  DeviceArray q, k, v, out, dout, dq, dk, dv, lse;
};

double norm(const std::vector<double>& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
}
void expect_close(const char* name, const std::vector<double>& got, std::vector<double> want, double bound,
                  double least) {
  const double size = norm(want);
  for (size_t i = 0; i < want.size(); ++i) want[i] -= got[i];
  EXPECT_LE(norm(want), bound * size + least) << name;
}

// Rounding weights and results to bfloat16 leaves 2e-3 each. Gradients of q and k are differences of
// rounded terms, which cancel if all weight of a row is on one key.
constexpr double kForward = 4e-3, kGradient = 8e-3, kTerms = 1e-3;

TEST(ShortAttentionOnGpu, IsTheDefinition) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c);
    Problem p(c);
    const gpu::AttentionForward call = p.forward();
    run_emulated(&gpu::Table::attention, call, {&p.out, &p.lse});
    for (int64_t item = 0; item < c.batch * c.heads; ++item) {
      const auto want = attention_head_forward(p.definition(item));
      expect_close("out", p.head(call.out, c.queries, item), want.out, kForward, 0);
      for (int64_t t = 0; t < c.queries; ++t) EXPECT_NEAR(p.lse.get(item * c.queries + t), want.lse[t], 1e-4);
    }
  }
}

TEST(ShortAttentionOnGpu, GradientsAreTheDefinition) {
  for (const Case& c : kCases) {
    if (c.dim > 64) continue;
    SCOPED_TRACE(::testing::Message() << c);
    Problem p(c);
    run_emulated(&gpu::Table::attention, p.forward(), {&p.out, &p.lse});
    const gpu::AttentionBackward call = p.backward();
    run_emulated(&gpu::Table::attention_backward, call, {&p.dq, &p.dk, &p.dv});
    for (int64_t item = 0; item < c.batch * c.heads; ++item) {
      const auto dout = p.head(call.dout, c.queries, item);
      const auto want = attention_head_backward(p.definition(item), dout);
      expect_close("dq", p.head(call.dq, c.queries, item), want.dq, kGradient, kTerms * norm(dout));
      expect_close("dk", p.head(call.dk, c.keys, item), want.dk, kGradient, kTerms * c.spread * norm(dout));
      expect_close("dv", p.head(call.dv, c.keys, item), want.dv, kGradient, 0);
    }
  }
}

TEST(ShortAttentionOnGpu, OtherShapesAreDeclined) {
  Problem p({1, 2, 197, 197, 64});
  const auto taken = [&](const auto& change) {
    gpu::AttentionBackward call = p.backward();
    change(call);
    return std::pair(gpu::choose_form(tessera_gpu_table()->attention, 90, call.of) != nullptr,
                     gpu::choose_form(tessera_gpu_table()->attention_backward, 90, call) != nullptr);
  };
  EXPECT_EQ(taken([](auto&) {}), std::pair(true, true));
  EXPECT_EQ(taken([](auto& call) { call.of.keys = 257; }), std::pair(false, false));
  EXPECT_EQ(taken([](auto& call) { call.of.batch = int64_t{1} << 29; }), std::pair(false, false));
  EXPECT_EQ(taken([](auto& call) { call.of.dim = 60; }), std::pair(false, false));
  EXPECT_EQ(taken([](auto& call) { call.of.dim = 128; }), std::pair(true, false));
  EXPECT_EQ(taken([](auto& call) { call.of.k.token += 4; }), std::pair(false, false));
  EXPECT_EQ(taken([](auto& call) { call.of.lse = nullptr; }), std::pair(true, false));
  EXPECT_EQ(taken([](auto& call) { call.dq.data += 1; }), std::pair(true, false));
}

}  // namespace
}  // namespace tessera::kernels
