// Compares every implementation with the definition, at sizes around vectors, blocks and chunks, and the
// gradients of the definition with differences.
#include "kernels/selective_scan/selective_scan.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "core/threads.h"
#include "kernels/isa.h"
#include "kernels/testing.h"

namespace tessera::kernels {
namespace {

struct Sizes {
  int64_t batch = 2, tokens = 1, channels = 1, states = 16, groups = 1;
  bool softplus = true, reverse = false, rest = true;  // rest: D, z, delta_bias and a first state
};

std::vector<double> wide(const std::vector<float>& values) { return {values.begin(), values.end()}; }

// Tensors of one call, with rows longer than their numbers.
struct Problem {
  explicit Problem(const Sizes& s) : sizes(s) {
    const int64_t rows = s.batch * s.tokens, row = s.channels + 3, of_b = s.groups * s.states + 1;
    u = testing::normal(rows * row, 1), delta = testing::normal(rows * row, 2, -1, 1.5);
    if (!s.softplus)
      for (float& value : delta) value = std::abs(value);
    z = testing::normal(rows * row, 3), gy = testing::normal(rows * row, 4);
    a = testing::uniform(s.channels * s.states, 5, -3, -0.01);
    b = testing::normal(rows * of_b, 6), c = testing::normal(rows * of_b, 7);
    d = testing::normal(s.channels, 8), bias = testing::normal(s.channels, 9);
    state = testing::normal(s.batch * s.channels * s.states, 10);
  }
  FloatRows rows(const std::vector<float>& from) const {
    const int64_t row = sizes.channels + 3;
    return {from.data(), sizes.tokens * row, row};
  }
  FloatRowsOut out(std::vector<float>& to) const {
    to.assign(static_cast<size_t>(sizes.batch * sizes.tokens * sizes.channels), 1e30f);
    return {to.data(), sizes.tokens * sizes.channels, sizes.channels};
  }
  template <class Call>
  Call call() const {
    Call c_;
    c_.batch = sizes.batch, c_.tokens = sizes.tokens, c_.channels = sizes.channels, c_.states = sizes.states;
    c_.groups = sizes.groups, c_.softplus = sizes.softplus, c_.reverse = sizes.reverse;
    c_.u = rows(u), c_.delta = rows(delta), c_.a = a.data();
    const int64_t of_b = sizes.groups * sizes.states + 1;
    c_.b = {b.data(), sizes.tokens * of_b, of_b}, c_.c = {c.data(), sizes.tokens * of_b, of_b};
    if (sizes.rest)
      c_.d = d.data(), c_.z = rows(z), c_.delta_bias = bias.data(), c_.first_state = state.data();
    return c_;
  }
  // All results by name.
  std::map<std::string, std::vector<float>> run(Isa isa) {
    force_isa(isa);
    std::map<std::string, std::vector<float>> r;
    auto forward = call<SelectiveScanForward>();
    std::vector<float> kept(static_cast<size_t>(scan_kept(forward)));
    r["last state"].resize(state.size());
    forward.y = out(r["y"]), forward.last_state = r["last state"].data(), forward.kept = kept.data();
    selective_scan(forward);
    auto backward = call<SelectiveScanBackward>();
    backward.kept = kept.data(), backward.gy = rows(gy);
    backward.gu = out(r["gu"]), backward.gdelta = out(r["gdelta"]);
    if (sizes.rest) backward.gz = out(r["gz"]);
    const auto sums = [&](const char* name, int64_t count) {
      r[name].assign(static_cast<size_t>(count), 1e30f);
      return r[name].data();
    };
    const int64_t of_b = sizes.batch * sizes.tokens * sizes.groups * sizes.states;
    backward.gb = sums("gb", of_b), backward.gc = sums("gc", of_b);
    backward.ga = sums("ga", sizes.channels * sizes.states);
    if (sizes.rest)
      backward.gd = sums("gd", sizes.channels), backward.gdelta_bias = sums("gdelta_bias", sizes.channels);
    selective_scan_backward(backward);
    return r;
  }
  Sizes sizes;
  std::vector<float> u, delta, z, gy, a, b, c, d, bias, state;
};

class SelectiveScanKernel : public ::testing::Test {
 protected:
  ~SelectiveScanKernel() override { force_isa(before_); }
  const Isa before_ = active_isa();
};

void expect_the_definition(const Sizes& s) {
  Problem problem(s);
  const auto want = problem.run(Isa::reference);
  for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512}) {
    if (isa > machine().best) continue;
    for (const auto& [name, values] : problem.run(isa))
      // Rounding of floats grows with the number of terms; sums over tokens and channels have the most.
      testing::expect_within(wide(values), wide(want.at(name)),
                             2e-5 * (1 + testing::largest(wide(want.at(name)))),
                             text(name_of(isa), " ", name, ", ", s.tokens, " tokens, ", s.channels,
                                  " channels, ", s.states, " states, ", s.groups, " groups"),
                             1);
  }
}

TEST_F(SelectiveScanKernel, IsTheDefinition) {
  for (const int64_t channels : {1, 16, 19, 130})
    for (const int64_t tokens : {1, 15, 16, 17, 49})
      for (const bool reverse : {false, true})
        expect_the_definition({.tokens = tokens, .channels = channels, .reverse = reverse});
  for (const int64_t states : {1, 5, 17})
    for (const bool softplus : {true, false})
      expect_the_definition({.tokens = 18, .channels = 20, .states = states, .softplus = softplus});
  expect_the_definition({.tokens = 20, .channels = 33, .rest = false});
}

TEST_F(SelectiveScanKernel, GroupsShareBAndC) {
  for (const int64_t groups : {2, 3, 18})
    expect_the_definition({.tokens = 17, .channels = 18, .states = 5, .groups = groups, .reverse = true});
}

// (f(x + e) - f(x - e)) / 2e of f = sum y gy, in float tensors: the definition itself is in double.
TEST_F(SelectiveScanKernel, GradientsAreSlopes) {
  Problem problem({.batch = 1, .tokens = 6, .channels = 3, .states = 2});
  const auto gradients = problem.run(Isa::reference);
  const auto loss = [&] {
    const auto y = problem.run(Isa::reference).at("y");
    double sum = 0;
    for (int64_t t = 0; t < 6; ++t)
      for (int64_t c = 0; c < 3; ++c)
        sum += double{y[static_cast<size_t>(t * 3 + c)]} * problem.gy[static_cast<size_t>(t * 6 + c)];
    return sum;
  };
  const auto expect_slope = [&](std::vector<float>& at, size_t place, const std::string& name, size_t index) {
    const float kept = at[place], step = 1.0f / 64;
    at[place] = kept + step;
    const double above = loss();
    at[place] = kept - step;
    const double below = loss();
    at[place] = kept;
    EXPECT_NEAR((above - below) * 32, gradients.at(name)[index], 5e-3) << name << " " << index;
  };
  for (size_t t = 0; t < 6; ++t) {
    expect_slope(problem.u, t * 6 + 1, "gu", t * 3 + 1);
    expect_slope(problem.delta, t * 6 + 1, "gdelta", t * 3 + 1);
    expect_slope(problem.z, t * 6 + 1, "gz", t * 3 + 1);
    expect_slope(problem.b, t * 3 + 1, "gb", t * 2 + 1);
    expect_slope(problem.c, t * 3 + 1, "gc", t * 2 + 1);
  }
  for (size_t i = 0; i < 6; ++i) expect_slope(problem.a, i, "ga", i);
  for (size_t i = 0; i < 3; ++i) {
    expect_slope(problem.d, i, "gd", i);
    expect_slope(problem.bias, i, "gdelta_bias", i);
  }
}

// A sequence in two pieces, with the state between them, is the whole sequence.
TEST_F(SelectiveScanKernel, ContinuesFromItsState) {
  Problem problem({.batch = 2, .tokens = 40, .channels = 21});
  const auto whole = problem.run(machine().best);
  std::vector<float> y(whole.at("y").size()), state(problem.state);
  const int64_t row = 21 + 3, of_b = 17;
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {1, 22}, {23, 17}}) {
    auto part = problem.call<SelectiveScanForward>();
    part.tokens = count, part.first_state = state.data();
    for (FloatRows* rows : {&part.u, &part.delta, &part.z}) rows->data += first * row;
    for (FloatRows* rows : {&part.b, &part.c}) rows->data += first * of_b;
    std::vector<float> last(state.size());
    part.y = {y.data() + first * 21, 40 * 21, 21}, part.last_state = last.data();
    selective_scan(part);
    state = last;
  }
  testing::expect_within(wide(y), wide(whole.at("y")), 0, "y", 21);
  testing::expect_within(wide(state), wide(whole.at("last state")), 0, "state", 16);
}

TEST_F(SelectiveScanKernel, RefusesShapesThatDoNotFit) {
  Problem problem({.tokens = 2, .channels = 4});
  auto call = problem.call<SelectiveScanForward>();
  call.groups = 3;
  EXPECT_THROW(selective_scan(call), Error);
}

}  // namespace
}  // namespace tessera::kernels
