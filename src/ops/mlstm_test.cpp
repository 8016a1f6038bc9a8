// The three forms of the mLSTM cell agree for all gates, lengths and chunks.
#include "ops/mlstm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "ops/mlstm_testing.h"

namespace tessera::ops {
namespace {

using torch::Tensor;

struct Inputs {
  Tensor q, k, v, i, f;
  Inputs part(int64_t first, int64_t last) const {
    const auto cut = [&](const Tensor& x) { return x.slice(2, first, last); };
    return {cut(q), cut(k), cut(v), cut(i), cut(f)};
  }
};

// Gates uniform in [-gates, gates]; `positive` keeps the sums of weights away from zero.
Inputs draw(int64_t tokens, double gates, bool positive, int64_t key_dim = 8, int64_t value_dim = 5) {
  torch::manual_seed(static_cast<uint64_t>(tokens * 1000 + static_cast<int64_t>(gates)));
  const auto options = torch::TensorOptions().dtype(torch::kFloat64);
  const auto vectors = [&](int64_t d) { return torch::randn({2, 3, tokens, d}, options); };
  const auto gate = [&] { return (torch::rand({2, 3, tokens}, options) * 2 - 1) * gates; };
  Inputs in{vectors(key_dim), vectors(key_dim), vectors(value_dim), gate(), gate()};
  if (positive) {
    in.q = in.q.abs();
    in.k = in.k.abs();
  }
  return in;
}

Tensor parallel(const Inputs& in, const MlstmOptions& options = {}) {
  return mlstm_parallel(in.q, in.k, in.v, in.i, in.f, options);
}
MlstmResult chunkwise(const Inputs& in, int64_t chunk, const MlstmState& state,
                      const MlstmOptions& options = {}) {
  return mlstm_chunkwise(in.q, in.k, in.v, in.i, in.f, chunk, state, options);
}
MlstmResult recurrent(const Inputs& in, const MlstmState& state, const MlstmOptions& options = {}) {
  return mlstm_recurrent(in.q, in.k, in.v, in.i, in.f, state, options);
}
MlstmState fresh(const Inputs& in) { return mlstm_start(in.k, in.v); }

// Returns the amplification of a weight error in each row: the sum of magnitudes over the normaliser, times
// the values. Large if positive and negative weights cancel.
Tensor condition(const Inputs& in) {
  const Tensor decay = torch::cumsum(torch::log_sigmoid(in.f), -1);
  const Tensor later = torch::ones({decay.size(-1), decay.size(-1)}, torch::kBool).triu(1);
  const Tensor log_d = (decay.unsqueeze(-1) - decay.unsqueeze(-2) + in.i.unsqueeze(-2))
                           .masked_fill(later, -std::numeric_limits<double>::infinity());
  const Tensor m = std::get<0>(log_d.max(-1, true));
  const Tensor c = torch::matmul(in.q, in.k.transpose(-2, -1)) / std::sqrt(in.q.size(-1)) * (log_d - m).exp();
  const Tensor n = torch::maximum(c.sum(-1, true).abs(), (-m).exp()) + 1e-6;
  return c.abs().sum(-1, true) / n * (in.v.abs().max() + parallel(in).abs());
}

// Exponents are sums of up to T gates of up to 40, so weights are exact to about T * 40 * 2^-53.
void expect_same(const Tensor& got, const Inputs& in, const std::string& what) {
  const Tensor want = parallel(in), magnified = condition(in);
  const double exact = 4 * 40 * static_cast<double>(in.q.size(2)) * std::pow(2, -53);
  EXPECT_TRUE(((got - want).abs() <= exact * magnified).all().item<bool>()) << what;
  const Tensor sound = (magnified < 100 * in.v.abs().max()).expand_as(want);  // well-conditioned rows
  EXPECT_TRUE(sound.any().item<bool>()) << what;
  EXPECT_TRUE(torch::allclose(got.masked_select(sound), want.masked_select(sound), 1e-9, 1e-11)) << what;
}

TEST(Mlstm, ThreeFormsAgree) {
  for (const double gates : {1.0, 8.0, 40.0})
    for (const int64_t tokens : {1, 2, 7, 13, 24})
      for (const bool positive : {true, false}) {
        const Inputs in = draw(tokens, gates, positive);
        const std::string what = "gates " + std::to_string(gates) + ", tokens " + std::to_string(tokens);
        expect_same(recurrent(in, fresh(in)).h, in, what + ", recurrent");
        for (int64_t chunk = 1; chunk <= tokens + 1; ++chunk)
          expect_same(chunkwise(in, chunk, fresh(in)).h, in, what + ", chunk " + std::to_string(chunk));
      }
}

TEST(Mlstm, StatesAreTheSameInAllForms) {
  for (const double gates : {1.0, 40.0}) {
    const Inputs in = draw(13, gates, true);
    const MlstmState want = recurrent(in, fresh(in)).last;
    for (int64_t chunk = 1; chunk <= 14; ++chunk) {
      const MlstmState got = chunkwise(in, chunk, fresh(in)).last;
      EXPECT_TRUE(torch::allclose(got.m, want.m, 1e-12, 1e-12)) << chunk;
      EXPECT_TRUE(torch::allclose(got.c, want.c, 1e-9, 1e-12)) << chunk;
      EXPECT_TRUE(torch::allclose(got.n, want.n, 1e-9, 1e-12)) << chunk;
    }
  }
}

TEST(Mlstm, ASequenceMayBeCutAnywhere) {
  for (const double gates : {1.0, 40.0}) {
    const Inputs in = draw(11, gates, true);
    for (int64_t cut = 1; cut < 11; ++cut) {
      const MlstmResult first = chunkwise(in.part(0, cut), 4, fresh(in));
      const Tensor second = recurrent(in.part(cut, 11), first.last).h;
      expect_same(torch::cat({first.h, second}, 2), in, "cut at " + std::to_string(cut));
    }
  }
}

// Starting at m = 0 keeps m above the accumulated forget gates, which only changes the weight of eps.
TEST(Mlstm, ThePublishedStartDiffersByEpsAlone) {
  const Inputs in = draw(9, 8, true);
  const MlstmState published = mlstm_start(in.k, in.v, MlstmStart::published);
  const MlstmOptions exact{.eps = 0};
  EXPECT_TRUE(torch::allclose(chunkwise(in, 4, published, exact).h, parallel(in, exact), 1e-10, 1e-12));
  EXPECT_TRUE(torch::allclose(recurrent(in, published).h, chunkwise(in, 4, published).h, 1e-10, 1e-12));
  EXPECT_FALSE(torch::allclose(recurrent(in, published).h, parallel(in), 1e-10, 1e-12));
}

TEST(Mlstm, GradientsAgreeToo) {
  const auto gradients = [](const std::function<Tensor(const Inputs&)>& form) {
    Inputs in = draw(10, 4, true);
    for (Tensor* x : {&in.q, &in.k, &in.v, &in.i, &in.f}) x->requires_grad_();
    const Tensor h = form(in);
    torch::manual_seed(1);
    (h * torch::randn(h.sizes(), h.options())).sum().backward();
    return std::vector<Tensor>{in.q.grad(), in.k.grad(), in.v.grad(), in.i.grad(), in.f.grad()};
  };
  const auto want = gradients([](const Inputs& in) { return parallel(in); });
  const auto steps = gradients([](const Inputs& in) { return recurrent(in, fresh(in)).h; });
  const auto chunks = gradients([](const Inputs& in) { return chunkwise(in, 4, fresh(in)).h; });
  for (size_t n = 0; n < want.size(); ++n) {
    EXPECT_TRUE(torch::allclose(steps[n], want[n], 1e-8, 1e-10)) << n;
    EXPECT_TRUE(torch::allclose(chunks[n], want[n], 1e-8, 1e-10)) << n;
  }
}

// log f = f is the sigmoid form with another pre-activation.
TEST(Mlstm, TheExponentialForgetGateIsItsOwnLogarithm) {
  Inputs in = draw(9, 4, true);
  const Tensor want = parallel(in);
  in.f = torch::log_sigmoid(in.f);
  const MlstmOptions options{.exponential_forget = true};
  EXPECT_TRUE(torch::allclose(parallel(in, options), want));
  EXPECT_TRUE(torch::allclose(chunkwise(in, 4, fresh(in), options).h, want));
  EXPECT_TRUE(torch::allclose(recurrent(in, fresh(in), options).h, want));
}

TEST(Mlstm, LaterTokensChangeNothingEarlier) {
  const Inputs in = draw(6, 1, false);
  Inputs other = in;
  for (Tensor* x : {&other.q, &other.k, &other.v, &other.i, &other.f}) {
    *x = x->clone();
    x->select(2, 4).add_(1);
  }
  const Tensor before = parallel(in), after = parallel(other);
  EXPECT_TRUE(torch::equal(before.slice(2, 0, 4), after.slice(2, 0, 4)));
  EXPECT_FALSE(torch::allclose(before.slice(2, 4), after.slice(2, 4), 0, 1e-3));
}

TEST(Mlstm, WrongShapesAreRefused) {
  const Inputs in = draw(6, 1, false);
  EXPECT_ANY_THROW(mlstm_parallel(in.q, in.k.slice(2, 0, 5), in.v, in.i, in.f));
  EXPECT_ANY_THROW(mlstm_parallel(in.q, in.k, in.v, in.i.unsqueeze(-1), in.f));
  EXPECT_ANY_THROW(chunkwise(in, 0, fresh(in)));
  EXPECT_ANY_THROW(chunkwise(in, 3, mlstm_start(in.q, in.q)));
  const MlstmState state = fresh(in);
  EXPECT_ANY_THROW(recurrent(in, {state.n, state.n, state.m}));
}

}  // namespace
}  // namespace tessera::ops
