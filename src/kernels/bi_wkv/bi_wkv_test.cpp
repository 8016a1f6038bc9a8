// Compares every implementation with the definition, at sizes around a vector, for weak, strong and negative
// decays, and the gradients of the definition with differences.
#include "kernels/bi_wkv/bi_wkv.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "kernels/isa.h"
#include "kernels/testing.h"

namespace tessera::kernels {
namespace {

std::vector<double> doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

struct WkvProblem {
  WkvProblem(int64_t tokens_, int64_t channels_, double decay)
      : tokens(tokens_), channels(channels_), row(channels_ + 5) {
    k = testing::normal(batch * tokens * row, 1, 0, 2), v = testing::normal(batch * tokens * row, 2);
    gy = testing::normal(batch * tokens * row, 3);
    w = testing::uniform(channels, 4, -0.1 * decay, decay), u = testing::normal(channels, 5);
  }
  std::map<std::string, std::vector<float>> run(Isa isa) {
    force_isa(isa);
    std::map<std::string, std::vector<float>> r;
    const auto rows = [&](const std::vector<float>& from) {
      return FloatRows{from.data(), tokens * row, row};
    };
    const auto out = [&](const char* name) {
      r[name].assign(static_cast<size_t>(batch * tokens * channels), 1e30f);
      return FloatRowsOut{r[name].data(), tokens * channels, channels};
    };
    const BiWkv call{batch, tokens, channels, w.data(), u.data(), rows(k), rows(v)};
    bi_wkv({call, out("y")});
    r["gw"].resize(w.size()), r["gu"].resize(u.size());
    bi_wkv_backward({call, rows(gy), out("gk"), out("gv"), r["gw"].data(), r["gu"].data()});
    return r;
  }
  int64_t batch = 2, tokens, channels, row;
  std::vector<float> k, v, gy, w, u;
};

class BiWkvKernel : public ::testing::Test {
 protected:
  ~BiWkvKernel() override { force_isa(before_); }
  const Isa before_ = active_isa();
};

TEST_F(BiWkvKernel, IsTheDefinition) {
  for (const int64_t channels : {1, 16, 19})
    for (const int64_t tokens : {1, 2, 17, 64})
      for (const double decay : {0.02, 1.0, 9.0}) {
        WkvProblem problem(tokens, channels, decay);
        const auto want = problem.run(Isa::reference);
        for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
          if (isa > machine().best) continue;
          for (const auto& [name, values] : problem.run(isa))
            // The exponents themselves have the error of a float, up to 2e-5 at |exponent| = 100. In gw, each
            // has its distance in tokens as a factor.
            testing::expect_within(doubles(values), doubles(want.at(name)),
                                   3e-5 * (name == "gw" ? static_cast<double>(tokens) : 1) *
                                       (1 + testing::largest(doubles(want.at(name)))),
                                   text(name_of(isa), " ", name, ", ", tokens, " tokens, ", channels,
                                        " channels, decay ", decay),
                                   1);
        }
      }
}

TEST_F(BiWkvKernel, GradientsAreSlopes) {
  WkvProblem problem(5, 2, 1.0);
  const auto gradients = problem.run(Isa::reference);
  const auto loss = [&] {
    const auto y = problem.run(Isa::reference).at("y");
    double sum = 0;
    for (int64_t t = 0; t < 10; ++t)
      for (int64_t c = 0; c < 2; ++c)
        sum += double{y[static_cast<size_t>(t * 2 + c)]} * problem.gy[static_cast<size_t>(t * 7 + c)];
    return sum;
  };
  const auto expect_slope = [&](std::vector<float>& at, size_t place, const std::string& name, size_t index) {
    const float kept = at[place], step = 1.0f / 64;
    at[place] = kept + step;
    const double above = loss();
    at[place] = kept - step;
    const double below = loss();
    at[place] = kept;
    EXPECT_NEAR((above - below) * 32, gradients.at(name)[index], 2e-3) << name << " " << index;
  };
  for (size_t t = 0; t < 10; ++t) {
    expect_slope(problem.k, t * 7 + 1, "gk", t * 2 + 1);
    expect_slope(problem.v, t * 7 + 1, "gv", t * 2 + 1);
  }
  for (size_t c = 0; c < 2; ++c) {
    expect_slope(problem.w, c, "gw", c);
    expect_slope(problem.u, c, "gu", c);
  }
}

// A constant added to all keys changes nothing, however large: the exponents are split off.
TEST_F(BiWkvKernel, IsIndependentOfTheKeysLevel) {
  WkvProblem problem(33, 16, 0.5);
  for (float& value : problem.k) value = std::round(value * 8) / 8;  // sums with 512 are exact
  const auto before = problem.run(machine().best);
  for (float& value : problem.k) value += 512;
  for (const auto& [name, values] : problem.run(machine().best))
    testing::expect_within(doubles(values), doubles(before.at(name)),
                           2e-4 * (1 + testing::largest(doubles(before.at(name)))), name, 16);
}

TEST_F(BiWkvKernel, RefusesMissingTensors) {
  WkvProblem problem(2, 4, 1);
  EXPECT_THROW(bi_wkv({BiWkv{1, 2, 4, problem.w.data(), nullptr, {}, {}}, {}}), Error);
}

}  // namespace
}  // namespace tessera::kernels
