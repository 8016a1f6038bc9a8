// An optimiser's step for GPUs on the emulator, against its equations in double.
#include <array>
#include <deque>

#include "kernels/gpu/gpu_testing.h"

namespace tessera::kernels {
namespace {

using namespace gpu_testing;
using gpu::OptimiserRule;

// The differences between the cases. Decays are decoupled, or l2.
struct Case {
  OptimiserRule rule = OptimiserRule::adam;
  bool largest = false, decoupled = true, buffer = true, nesterov = false, clips = false, averages = false;
  double rest1 = 0.1;
  int updates = 3;
};
constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-8, kScale = 0.5, kRate = 0.01, kFactor = 0.5,
                 kTrust = 0.4, kTrustEps = 1e-3, kShare = 0.03;

bool has_ratio(const Case& c) { return c.rule == OptimiserRule::lars || c.rule == OptimiserRule::lamb; }
bool has_moments(const Case& c) { return c.rule == OptimiserRule::adam || c.rule == OptimiserRule::lamb; }

// A tensor with everything that a step reads and writes. Gradients are views that start off a boundary.
struct Parameter {
  Parameter(const Case& of_case, int64_t count, uint64_t seed)
      : c(of_case),
        p(Element::f32, normal(count, seed)),
        g(Element::f32, normal(count + 1, seed + 1)),
        m(Element::f32, normal(count, seed + 2)),
        v(Element::f32, uniform(count, seed + 3, 0, 2)),
        largest(Element::f32, uniform(count, seed + 4, 0, 2)),
        average(Element::f32, normal(count, seed + 5)),
        half(Element::bf16, count + 1),
        before{p.values(), g.values(), m.values(), v.values(), largest.values(), average.values()} {
    of.p = p.as<float>(), of.g = g.as<float>() + 1, of.count = count;
    of.m = has_moments(c) || c.buffer ? m.as<float>() : nullptr;
    of.v = has_moments(c) ? v.as<float>() : nullptr;
    of.largest = c.largest ? largest.as<float>() : nullptr;
    of.average = average.as<float>(), of.half = half.as<uint16_t>() + count % 2;  // on a boundary or off it
    of.rate = 0.5f, (c.decoupled ? of.decay : of.l2) = 0.1f;
    of.updates = count == 7 ? 1 : 0;  // one has updates of its own count
    of.adapts = count != 2048;
  }
  double bias(double beta) const { return 1 - std::pow(beta, of.updates == 0 ? c.updates : of.updates); }
  double rate() const { return kRate * of.rate; }
  double decayed(size_t i) const { return before[0][i] * (1 - kRate * kFactor * of.decay); }
  double gradient(size_t i) const { return before[1][i + 1] * kScale; }
  double moment(size_t i, double gradient) const { return kBeta1 * before[2][i] + c.rest1 * gradient; }
  double square(size_t i, double gradient) const {
    return kBeta2 * before[3][i] + (1 - kBeta2) * gradient * gradient;
  }
  double adam(double m1, double v1) const {
    return m1 / bias(kBeta1) / (std::sqrt(v1) / std::sqrt(bias(kBeta2)) + kEps);
  }
  double lamb(size_t i) const {
    return adam(moment(i, gradient(i)), square(i, gradient(i))) + kFactor * of.l2 * decayed(i);
  }
  double ratio() const {
    if (!has_ratio(c) || !of.adapts) return 1;
    double squares = 0, updates = 0;
    const bool is_lamb = c.rule == OptimiserRule::lamb;
    for (size_t i = 0; i < before[0].size(); ++i)
      squares += std::pow(is_lamb ? decayed(i) : before[0][i], 2),
          updates += std::pow(is_lamb ? lamb(i) : gradient(i), 2);
    const double length = std::sqrt(squares), update = std::sqrt(updates);
    const double r = kTrust * length / (is_lamb ? update : update + kFactor * of.l2 * length + kTrustEps);
    return c.clips ? std::min(is_lamb ? r : r / rate(), 1.0) : r;
  }
  // Returns the new p, m and v of a number.
  std::array<double, 3> updated(size_t i, double ratio) const {
    if (has_moments(c)) {
      const double l2 = kFactor * of.l2 * before[0][i];
      const double g1 = gradient(i) + (c.rule == OptimiserRule::adam ? l2 : 0);
      const double m1 = moment(i, g1), v1 = square(i, g1);
      const double u =
          c.rule == OptimiserRule::lamb ? lamb(i) : adam(m1, c.largest ? std::max(before[4][i], v1) : v1);
      return {decayed(i) - rate() * ratio * u, m1, v1};
    }
    const double g1 = ratio * (gradient(i) + kFactor * of.l2 * before[0][i]);
    const bool first = of.updates == 1 || (of.updates == 0 && c.updates == 1);
    const double m1 = first ? g1 : kBeta1 * before[2][i] + c.rest1 * g1;
    const double u = !c.buffer ? g1 : c.nesterov ? g1 + kBeta1 * m1 : m1;
    return {before[0][i] - rate() * u, m1, before[3][i]};
  }
  void expect_step() const {
    std::vector<double> want_p, want_m, want_v, want_average;
    const double r = ratio();
    for (size_t i = 0; i < before[0].size(); ++i) {
      const auto [p1, m1, v1] = updated(i, r);
      want_p.push_back(p1), want_m.push_back(of.m ? m1 : before[2][i]);
      want_v.push_back(of.v ? v1 : before[3][i]);
      want_average.push_back(before[5][i] + (c.averages ? kShare : 0) * (p1 - before[5][i]));
    }
    expect_rounded(p, want_p, 4e-6, "p"), expect_rounded(m, want_m, 2e-6, "m"),
        expect_rounded(v, want_v, 1e-6, "v");
    expect_rounded(average, want_average, 1e-6, "average");
    EXPECT_EQ(g.values(), before[1]);
    expect_copy();
  }
  void expect_copy() const {
    for (int64_t i = 0; i < of.count; ++i)
      ASSERT_EQ(half.get(i + of.count % 2),
                static_cast<double>(gpu::low(gpu::to_bf16(static_cast<float>(p.get(i))).bits)))
          << i;
  }
  void expect_nothing() const {
    EXPECT_EQ(p.values(), before[0]);
    EXPECT_EQ(m.values(), before[2]);
    EXPECT_EQ(v.values(), before[3]);
    EXPECT_EQ(average.values(), before[5]);
    expect_copy();
  }
  Case c;
  DeviceArray p, g, m, v, largest, average, half;
  std::vector<double> before[6];
  gpu::OptimiserTensor of{};
};

// Tensors of sizes around a block's numbers, and a step over all of them.
struct Step {
  explicit Step(const Case& c) {
    int64_t blocks = 0;
    for (const int64_t count : {1, 7, 2047, 2048, 2049, 9001}) {
      Parameter& added = all.emplace_back(c, count, static_cast<uint64_t>(10 * count));
      added.of.first = blocks, added.of.slot = static_cast<int64_t>(table.size());
      blocks += (count + gpu::kOptimiserBlock - 1) / gpu::kOptimiserBlock;
      table.push_back(added.of);
    }
    const auto f = [](double x) { return static_cast<float>(x); };
    call.rule = c.rule, call.tensors = table.data();
    call.count = static_cast<int64_t>(table.size()), call.blocks = blocks;
    call.lr = f(kRate), call.decay_factor = f(kFactor), call.updates = f(c.updates);
    call.beta1 = f(kBeta1), call.rest1 = f(c.rest1), call.beta2 = f(kBeta2), call.rest2 = f(1 - kBeta2);
    call.eps = f(kEps), call.log_beta1 = f(std::log(kBeta1)), call.log_beta2 = f(std::log(kBeta2));
    call.nesterov = c.nesterov, call.clips_trust = c.clips, call.trust = f(kTrust),
    call.trust_eps = f(kTrustEps);
    call.scale = &scale, call.share = c.averages ? &share : nullptr;
    sums.assign(static_cast<size_t>(2 * blocks + call.count), std::nanf(""));
    call.sums = sums.data();
  }
  void run() {
    const auto* form = gpu::choose_form(tessera_gpu_table()->optimiser, 90, call);
    ASSERT_NE(form, nullptr);
    ASSERT_EQ(form->run(call, nullptr), 0);
  }
  std::deque<Parameter> all;
  std::vector<gpu::OptimiserTensor> table;
  std::vector<float> sums;
  float scale = static_cast<float>(kScale), share = static_cast<float>(kShare);
  gpu::OptimiserStep call;
};

std::vector<Case> cases() {
  std::vector<Case> all = {
      {},
      {.largest = true, .decoupled = false, .averages = true},
      {.rule = OptimiserRule::sgd, .decoupled = false, .buffer = false},
      {.rule = OptimiserRule::sgd, .decoupled = false, .averages = true, .rest1 = 1},
      {.rule = OptimiserRule::sgd, .decoupled = false, .nesterov = true, .rest1 = 0.7, .updates = 1},
  };
  for (const bool clips : {false, true}) {
    all.push_back({.rule = OptimiserRule::lars, .decoupled = false, .clips = clips, .rest1 = 1});
    all.push_back({.rule = OptimiserRule::lamb, .decoupled = clips, .clips = clips, .averages = true});
  }
  return all;
}

TEST(OptimiserOnGpu, AStepIsItsEquations) {
  for (const Case& c : cases()) {
    const ::testing::Message where = ::testing::Message()
                                     << "rule " << static_cast<int>(c.rule) << ", clips " << c.clips;
    SCOPED_TRACE(where);
    for (const auto order : {gpu::EmulatedOrder::late, gpu::EmulatedOrder::early}) {
      gpu::set_emulated_order(order);
      Step step(c);
      step.run();
      for (const Parameter& each : step.all) each.expect_step();
    }
  }
}

// Counts of updates on the device replace those of the host.
TEST(OptimiserOnGpu, CountsMayBeOnTheDevice) {
  for (const Case& c : cases()) {
    Step host(c), there(c);
    std::vector<double> counts;
    for (gpu::OptimiserTensor& row : there.table)
      counts.push_back(row.updates == 0 ? c.updates : row.updates), row.updates = 17;
    there.call.counts = counts.data(), there.call.updates = 99;
    host.run(), there.run();
    for (size_t i = 0; i < host.all.size(); ++i)
      EXPECT_EQ(host.all[i].p.values(), there.all[i].p.values()) << static_cast<int>(c.rule);
  }
}

TEST(OptimiserOnGpu, WithoutBiasCorrection) {
  Step plain({}), late({.updates = 1 << 20});
  plain.call.log_beta1 = plain.call.log_beta2 = -HUGE_VALF;
  for (gpu::OptimiserTensor& row : plain.table) row.updates = 0;
  for (gpu::OptimiserTensor& row : late.table) row.updates = 0;
  plain.run(), late.run();
  for (size_t i = 0; i < plain.all.size(); ++i) EXPECT_EQ(plain.all[i].p.values(), late.all[i].p.values());
}

TEST(OptimiserOnGpu, AScaleThatIsNotFiniteChangesNothing) {
  for (const Case& c : cases())
    for (const float scale :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      Step step(c);
      step.scale = scale;
      step.run();
      for (const Parameter& each : step.all) each.expect_nothing();
    }
}

TEST(OptimiserOnGpu, RatiosNeedTheirWorkspace) {
  Step step({.rule = OptimiserRule::lamb});
  step.call.sums = nullptr;
  EXPECT_EQ(gpu::choose_form(tessera_gpu_table()->optimiser, 90, step.call), nullptr);
}

}  // namespace
}  // namespace tessera::kernels
