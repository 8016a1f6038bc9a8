#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/simd_testing.h"
#include "kernels/testing.h"

namespace tessera::kernels {

namespace reference {
// The probe's functions in double, with the C library.
template <double function(double)>
void each(const float* in, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(function(in[i]));
}
double silu(double x) { return x / (1 + std::exp(-x)); }
double silu_slope(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s + x * s * (1 - s);
}
double log_sigmoid(double x) { return std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x))); }
double exponential(double x) { return std::exp(x); }
double power_of_two(double x) { return std::exp2(x); }
extern const SimdProbe simd_probe;
const SimdProbe simd_probe = {1,
                              each<exponential>,
                              each<power_of_two>,
                              each<silu>,
                              each<silu>,
                              each<silu_slope>,
                              each<silu_slope>,
                              each<log_sigmoid>,
                              nullptr,
                              nullptr,
                              nullptr,
                              nullptr};
}  // namespace reference

TESSERA_IMPLEMENTATIONS(SimdProbe, simd_probe);
Table<SimdProbe> simd_probes() { return {kImplementations, std::size(kImplementations)}; }

namespace {

using testing::for_each_implementation;

template <class Body>
void for_each_probe(Body body) {
  for_each_implementation(simd_probes(), [&](const std::string& isa, const SimdProbe& probe) {
    if (probe.sum) body(isa, probe);
  });
}

struct Function {
  const char* name;
  void (*SimdProbe::*member)(const float*, float*, int64_t);
  double ulps;   // bound on the error of the result
  double floor;  // results below may be lost
};
// exp: 1 rounding at the polynomial's end and a little before it. sigmoid forms divide once more. silu' is a
// sum with terms of about 0.28 that cancel near its zero (x = -1.28).
const Function kFunctions[] = {{"exp", &SimdProbe::exp, 2, 2e-38},
                               {"exp2_below", &SimdProbe::exp2_below, 2, 2e-38},
                               {"silu", &SimdProbe::silu, 3.5, 2e-36},
                               {"silu_coarse", &SimdProbe::silu_coarse, 7e-5 / 6e-8, 2e-36},
                               {"silu_slope", &SimdProbe::silu_slope, 6, 2e-7},
                               {"silu_slope_coarse", &SimdProbe::silu_slope_coarse, 2e-4 / 6e-8, 3e-5},
                               {"log_sigmoid", &SimdProbe::log_sigmoid, 4, 2e-38}};

TEST(Simd, FunctionsAreExactToAFewUnitsInTheLastPlace) {
  std::vector<float> x;
  for (float v = -87.2f; v < 87.5f; v += 0.0037f) x.push_back(v);
  for (float v = 1e-30f; v < 1; v *= 1.7f) x.push_back(v), x.push_back(-v);
  for_each_probe([&](const std::string& isa, const SimdProbe& probe) {
    for (const Function& f : kFunctions) {
      std::vector<float> got(x.size()), want(x.size());
      (probe.*f.member)(x.data(), got.data(), static_cast<int64_t>(x.size()));
      (reference::simd_probe.*f.member)(x.data(), want.data(), static_cast<int64_t>(x.size()));
      for (size_t i = 0; i < x.size(); ++i)
        ASSERT_NEAR(got[i], want[i], f.ulps * 6e-8 * std::abs(want[i]) + f.floor)
            << isa << " " << f.name << "(" << x[i] << ")";
    }
  });
}

TEST(Simd, FunctionsAtTheEndsOfTheRange) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x = {inf, -inf, nan, 88.8f, 1e30f, -1e30f, -104.0f, 0.0f, -127.0f};
  for_each_probe([&](const std::string& isa, const SimdProbe& probe) {
    std::vector<float> y(x.size());
    const auto n = static_cast<int64_t>(x.size());
    probe.exp(x.data(), y.data(), n);
    EXPECT_EQ(y[0], inf) << isa;
    EXPECT_EQ(y[1], 0) << isa;
    EXPECT_TRUE(std::isnan(y[2])) << isa;
    EXPECT_EQ(y[3], inf) << isa;
    EXPECT_EQ(y[6], 0) << isa;
    EXPECT_EQ(y[7], 1) << isa;
    probe.exp2_below(x.data(), y.data(), n);
    EXPECT_EQ(y[1], 0) << isa;
    EXPECT_TRUE(std::isnan(y[2])) << isa;
    EXPECT_EQ(y[5], 0) << isa;
    EXPECT_EQ(y[6], std::ldexp(1.0f, -104)) << isa;
    EXPECT_EQ(y[7], 1) << isa;
    EXPECT_EQ(y[8], 0) << isa;
    probe.silu(x.data(), y.data(), n);
    EXPECT_EQ(y[0], inf) << isa;
    EXPECT_EQ(y[4], 1e30f) << isa;
    EXPECT_EQ(y[5], 0) << isa;
    EXPECT_TRUE(std::isnan(y[2])) << isa;
    probe.silu_coarse(x.data(), y.data(), n);
    EXPECT_EQ(y[0], inf) << isa;
    EXPECT_NEAR(y[1], 0, 2e-36) << isa;
    EXPECT_TRUE(std::isnan(y[2])) << isa;
    EXPECT_EQ(y[4], 1e30f) << isa;
    EXPECT_NEAR(y[5], 0, 2e-36) << isa;
    probe.silu_slope_coarse(x.data(), y.data(), n);
    EXPECT_TRUE(std::isnan(y[2])) << isa;
    EXPECT_EQ(y[4], 1) << isa;
    EXPECT_NEAR(y[5], 0, 2e-36) << isa;
    EXPECT_NEAR(y[7], 0.5, 4e-5) << isa;
    probe.log_sigmoid(x.data(), y.data(), n);
    EXPECT_EQ(y[0], 0) << isa;
    EXPECT_EQ(y[1], -inf) << isa;
    EXPECT_TRUE(std::isnan(y[2])) << isa;
    EXPECT_EQ(y[5], -1e30f) << isa;
  });
}

TEST(Simd, PartsLeaveTheirNeighboursAlone) {
  for_each_probe([&](const std::string& isa, const SimdProbe& probe) {
    for (int64_t count = 0; count < 3 * probe.width; ++count) {
      const auto x = testing::normal(count, 5);
      testing::Guarded y(Element::f32, count, 1), z(Element::bf16, count, 1);
      probe.exp(x.data(), static_cast<float*>(y.data()), count);
      probe.to_bf16(x.data(), static_cast<uint16_t*>(z.data()), count);
      for (int64_t i = 0; i < count; ++i) {
        EXPECT_NEAR(y.get(i), std::exp(x[i]), 1e-6 * std::exp(x[i])) << isa << " " << i << " of " << count;
        EXPECT_NEAR(z.get(i), x[i], std::abs(x[i]) / 256) << isa << " " << i << " of " << count;
      }
    }
  });
}

TEST(Simd, Bfloat16RoundsToNearestEven) {
  // Halfway cases on both sides of even, a carry into the exponent, the largest number, infinities, and a NaN
  // with its payload in the dropped part.
  const std::vector<uint32_t> in = {0x3f808000, 0x3f818000, 0x3f808001, 0x3f817fff, 0x3fffffff, 0x7f7fffff,
                                    0x7f800000, 0xff800000, 0x7f800001, 0x80000000, 0x00000001, 0xc0490fdb};
  const std::vector<uint16_t> want = {0x3f80, 0x3f82, 0x3f81, 0x3f81, 0x4000, 0x7f80,
                                      0x7f80, 0xff80, 0x7fc0, 0x8000, 0x0000, 0xc049};
  for_each_probe([&](const std::string& isa, const SimdProbe& probe) {
    std::vector<uint16_t> got(in.size());
    std::vector<float> values;
    for (uint32_t bits : in) values.push_back(std::bit_cast<float>(bits));
    probe.to_bf16(values.data(), got.data(), static_cast<int64_t>(in.size()));
    EXPECT_EQ(got, want) << isa;
    std::vector<float> back(in.size());
    probe.from_bf16(want.data(), back.data(), static_cast<int64_t>(in.size()));
    for (size_t i = 0; i < in.size(); ++i)
      EXPECT_EQ(std::bit_cast<uint32_t>(back[i]), static_cast<uint32_t>(want[i]) << 16) << isa;
  });
}

TEST(Simd, SumAndTranspose) {
  for_each_probe([&](const std::string& isa, const SimdProbe& probe) {
    const int n = probe.width;
    std::vector<float> in(n * n), out(n * n);
    std::iota(in.begin(), in.end(), 1.0f);
    EXPECT_EQ(probe.sum(in.data()), static_cast<float>(n * (n + 1) / 2)) << isa;
    probe.transpose(in.data(), out.data());
    for (int r = 0; r < n; ++r)
      for (int c = 0; c < n; ++c) EXPECT_EQ(out[c * n + r], in[r * n + c]) << isa << " " << r << "," << c;
  });
}

}  // namespace
}  // namespace tessera::kernels
