// Adam's step for GPUs on the emulator, against its equations in double.
#include <deque>

#include "kernels/gpu/gpu_testing.h"

namespace tessera::kernels {
namespace {

using namespace gpu_testing;

constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-8, kAverage = 0.9998, kScale = 0.5, kRate = 0.01,
                 kFactor = 0.5;

// A tensor with everything that a step reads and writes.
struct Parameter {
  explicit Parameter(int64_t count, uint64_t seed, bool amsgrad)
      : p(Element::f32, normal(count, seed)),
        g(Element::f32, normal(count, seed + 1)),
        m(Element::f32, normal(count, seed + 2)),
        v(Element::f32, uniform(count, seed + 3, 0, 2)),
        largest(Element::f32, uniform(count, seed + 4, 0, 2)),
        half(Element::bf16, count),
        average(Element::f32, normal(count, seed + 5)),
        before{p.values(), g.values(), m.values(), v.values(), largest.values(), average.values()} {
    of.p = p.as<float>(), of.g = g.as<float>(), of.m = m.as<float>(), of.v = v.as<float>();
    of.largest = amsgrad ? largest.as<float>() : nullptr;
    of.half = half.as<uint16_t>(), of.average = average.as<float>(), of.count = count;
    of.rate = 0.5f, of.decay = amsgrad ? 0 : 0.1f, of.l2 = amsgrad ? 0.1f : 0;
    of.correction = count % 2 ? 3 : 0,
    of.root = count % 2 ? 0.2f : 0;  // some have updates of their own count
  }
  void expect_step() const {
    std::vector<double> want_p, want_m, want_v, want_average;
    for (size_t i = 0; i < before[0].size(); ++i) {
      const double g0 = before[1][i] * kScale + kFactor * of.l2 * before[0][i];
      const double m1 = kBeta1 * before[2][i] + (1 - kBeta1) * g0;
      const double v1 = kBeta2 * before[3][i] + (1 - kBeta2) * g0 * g0;
      const double most = of.largest ? std::max(before[4][i], v1) : v1;
      const double step = kRate * of.rate * (of.correction == 0 ? 2 : of.correction);
      const double root = of.correction == 0 ? 0.3f : of.root;
      const double p1 =
          before[0][i] * (1 - kRate * kFactor * of.decay) - step * m1 / (std::sqrt(most) / root + kEps);
      want_p.push_back(p1), want_m.push_back(m1), want_v.push_back(v1);
      want_average.push_back(kAverage * before[5][i] + (1 - kAverage) * p1);
    }
    expect_rounded(p, want_p, 2e-6, "p"), expect_rounded(m, want_m, 1e-6, "m"),
        expect_rounded(v, want_v, 1e-6, "v");
    expect_rounded(half, want_p, 2e-6, "p in bfloat16"),
        expect_rounded(average, want_average, 1e-6, "average");
  }
  DeviceArray p, g, m, v, largest, half, average;
  std::vector<double> before[6];
  gpu::AdamTensor of{};
};

// Sizes around a block's numbers; one step over all.
std::deque<Parameter> parameters(bool amsgrad, gpu::AdamStep& call, std::vector<gpu::AdamTensor>& table) {
  std::deque<Parameter> all;
  int64_t blocks = 0;
  for (const int64_t count : {1, 7, 2047, 2048, 2049, 5000}) {
    Parameter& added = all.emplace_back(count, 10 * count, amsgrad);
    added.of.first = blocks, blocks += (count + gpu::kAdamBlock - 1) / gpu::kAdamBlock;
    table.push_back(added.of);
  }
  const auto f = [](double x) { return static_cast<float>(x); };
  call = {table.data(), static_cast<int64_t>(table.size()), blocks};
  call.lr = f(kRate), call.decay_factor = f(kFactor), call.correction = 2, call.root = 0.3f;
  call.beta1 = f(kBeta1), call.rest1 = f(1 - kBeta1), call.beta2 = f(kBeta2), call.rest2 = f(1 - kBeta2);
  call.eps = f(kEps), call.average_decay = f(kAverage), call.average_rest = f(1 - kAverage);
  return all;
}

TEST(AdamOnGpu, AStepIsItsEquations) {
  for (const bool amsgrad : {false, true}) {
    gpu::AdamStep call;
    std::vector<gpu::AdamTensor> table;
    const std::deque<Parameter> all = parameters(amsgrad, call, table);
    const auto scale = static_cast<float>(kScale);
    call.scale = &scale;
    ASSERT_EQ(gpu::choose_form(tessera_gpu_table()->adam, 90, call)->run(call, nullptr), 0);
    for (const Parameter& each : all) each.expect_step();
  }
}

TEST(AdamOnGpu, AScaleThatIsNotFiniteChangesNothing) {
  for (const float scale :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    gpu::AdamStep call;
    std::vector<gpu::AdamTensor> table;
    const std::deque<Parameter> all = parameters(false, call, table);
    call.scale = &scale;
    ASSERT_EQ(gpu::choose_form(tessera_gpu_table()->adam, 90, call)->run(call, nullptr), 0);
    for (const Parameter& each : all) {
      EXPECT_EQ(each.p.values(), each.before[0]);
      EXPECT_EQ(each.m.values(), each.before[2]);
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
