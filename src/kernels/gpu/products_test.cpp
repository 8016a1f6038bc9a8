// Products by cuBLASLt's interface, which a library of the test computes on the host, against sums in double.
#include "kernels/gpu/products.h"

#include <array>

#include "kernels/gpu/cublaslt_testing.h"
#include "kernels/gpu/gpu_testing.h"

namespace tessera::kernels {
namespace {

using namespace gpu_testing;

struct Case {
  int64_t rows, columns, inner;
  bool a_transposed, b_transposed;
  Element result;
  bool added = false, bias = false, gelu = false, sums = false;
  int64_t extra = 0;      // numbers between rows, of all matrices
  bool stored = false;    // GELU's input
  bool gradient = false;  // times GELU's slope
};
// A layer, its gradient with respect to x, and with respect to its weights.
const Case kCases[] = {
    {5, 16, 24, false, true, Element::bf16},
    {7, 8, 40, false, true, Element::bf16, false, true},
    {3, 24, 16, false, true, Element::bf16, false, true, true},
    {3, 24, 16, false, true, Element::bf16, false, false, true},
    {9, 16, 32, false, true, Element::f32, true, true},
    {9, 16, 32, false, true, Element::bf16, true, false},
    {5, 40, 16, false, false, Element::bf16},
    {16, 24, 9, true, false, Element::f32, false, false, false, true},
    {24, 8, 17, true, false, Element::bf16, false, false, false, true},
    {24, 16, 5, true, false, Element::f32},
    {8, 16, 24, false, true, Element::f32, true, true, false, false, 8},
    {16, 24, 8, true, false, Element::f32, false, false, false, true, 16},
    {8, 24, 16, true, true, Element::f32},
    {3, 24, 16, false, true, Element::bf16, false, true, true, false, 0, true},
    {9, 40, 16, false, true, Element::bf16, false, false, true, false, 8, true},
    {5, 16, 24, false, false, Element::bf16, false, false, false, false, 0, false, true},
};

// The matrices of a case.
struct Problem {
  explicit Problem(const Case& given)
      : c(given),
        a_row((c.a_transposed ? c.rows : c.inner) + c.extra),
        b_row((c.b_transposed ? c.inner : c.columns) + c.extra),
        row(c.columns + c.extra),
        a(Element::bf16, normal((c.a_transposed ? c.inner : c.rows) * a_row, 1)),
        b(Element::bf16, normal((c.b_transposed ? c.columns : c.inner) * b_row, 2)),
        added(c.result, normal(c.rows * row, 3)),
        bias(c.result, normal(c.columns, 4)),
        sums(c.result, c.rows),
        before(c.result, normal(c.rows * c.columns, 5)),
        y(c.result, c.rows * row) {
    call.rows = c.rows, call.columns = c.columns, call.inner = c.inner;
    call.a = {a.data(), a_row, c.a_transposed}, call.b = {b.data(), b_row, c.b_transposed};
    call.result = {y.data(), c.result, row};
    if (c.added) call.added = {added.data(), c.result, row};
    if (c.bias) call.bias = bias.data();
    call.gelu_tanh = c.gelu, call.gelu_gradient = c.gradient;
    if (c.stored || c.gradient) call.before = before.data();
    if (c.sums) call.sums_of_a = sums.data();
    alignas(256) static char workspace[gpu::kProductWorkspace];
    call.workspace = workspace;
  }
  double of_a(int64_t i, int64_t k) const { return a.get(c.a_transposed ? k * a_row + i : i * a_row + k); }
  double of_b(int64_t k, int64_t j) const { return b.get(c.b_transposed ? j * b_row + k : k * b_row + j); }
  double argument(int64_t i, int64_t j) const {
    double sum = (c.added ? added.get(i * row + j) : 0) + (c.bias ? bias.get(j) : 0);
    for (int64_t k = 0; k < c.inner; ++k) sum += of_a(i, k) * of_b(k, j);
    return sum;
  }
  static double gelu(double x) {
    return x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))) / 2;
  }
  double want(int64_t i, int64_t j) const {
    if (!c.gradient) return c.gelu ? gelu(argument(i, j)) : argument(i, j);
    const double at = before.get(i * c.columns + j), step = 1e-5;
    return argument(i, j) * (gelu(at + step) - gelu(at - step)) / (2 * step);
  }
  void expect(const std::string& name) const {
    for (int64_t i = 0; i < c.rows; ++i) {
      for (int64_t j = 0; j < c.columns; ++j) {
        const double exact = want(i, j);
        ASSERT_NEAR(y.get(i * row + j), exact, 1e-6 + rounding(c.result) * std::abs(exact))
            << name << ": " << i << ", " << j;
        if (!c.stored) continue;
        const double input = argument(i, j);
        ASSERT_NEAR(before.get(i * c.columns + j), input, 1e-6 + rounding(c.result) * std::abs(input))
            << name;
      }
      for (int64_t j = c.columns; j < row; ++j) ASSERT_TRUE(std::isnan(y.get(i * row + j))) << name;
      double sum = 0;
      for (int64_t k = 0; k < c.inner; ++k) sum += of_a(i, k);
      if (!c.sums) continue;
      ASSERT_NEAR(sums.get(i), sum, 1e-6 + rounding(c.result) * std::abs(sum)) << name;
    }
  }
  Case c;
  int64_t a_row, b_row, row;
  DeviceArray a, b, added, bias, sums, before, y;
  gpu::Product call;
};

TEST(Products, AreTheSumsOfTheirDefinition) {
  const StandIn library;
  EXPECT_TRUE(gpu::products_in_use());
  EXPECT_EQ(gpu::products_version(), "13.0.2");
  for (const int round : {1, 2})  // the second time by the algorithms of the first
    for (const Case& c : kCases) {
      Problem p(c);
      ASSERT_TRUE(gpu::run_product(0, p.call, nullptr));
      p.expect(text("case ", &c - kCases, ", round ", round));
    }
}

TEST(Products, AnAlgorithmIsForItsShapeAndAlignment) {
  const StandIn library;
  const Case c{8, 16, 8, false, true, Element::f32, true, true};
  for (const int64_t rows : {8, 4, 8})
    for (const bool biased : {true, false}) {
      Problem p(c);
      p.c.rows = p.call.rows = rows;
      p.c.bias = biased;
      if (!biased) p.call.bias = nullptr;
      ASSERT_TRUE(gpu::run_product(0, p.call, nullptr));
      p.expect(text(rows, " rows"));
    }
  Problem p(c);  // two rows later in memory
  p.call.a.data = p.a.as<uint16_t>() + 2 * p.a_row, p.call.rows = 4;
  ASSERT_TRUE(gpu::run_product(0, p.call, nullptr));
  EXPECT_NEAR(p.y.get(0), p.want(2, 0) - p.added.get(2 * p.row) + p.added.get(0), 1e-5);
}

TEST(Products, WhatTheLibraryRefusesIsNotComputed) {
  const StandIn library;
  Problem p(kCases[7]);
  library.refuse(512);
  EXPECT_FALSE(gpu::run_product(0, p.call, nullptr));
  EXPECT_FALSE(gpu::run_product(0, p.call, nullptr));
  library.refuse(512, false);
  p.call.sums_of_a = nullptr, p.c.sums = false;
  EXPECT_TRUE(gpu::run_product(0, p.call, nullptr));
  p.expect("without sums");
  p.call.a.data = p.a.as<char>() + 2;  // off any boundary
  EXPECT_FALSE(gpu::run_product(0, p.call, nullptr));
}

TEST(Products, AFailureIsOneLine) {
  const StandIn library;
  Problem p(kCases[0]);
  p.call.a.row = 8;  // fewer than its columns
  try {
    gpu::run_product(0, p.call, nullptr);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "cuBLASLt: choose an algorithm: CUBLAS_STATUS_INVALID_VALUE; without TESSERA_GPU=cublaslt "
                 "LibTorch computes products");
  }
}

TEST(Products, OtherLibrariesAreRefused) {
  EXPECT_NE(gpu::load_products({TESSERA_GPU_STRANGER}).find("has no cublasLtGetVersion"), std::string::npos);
  EXPECT_NE(gpu::load_products({"libnone.so.13", "libnone.so.12"}).find("libnone.so.12"), std::string::npos);
  EXPECT_EQ(gpu::products_version(), "");
  EXPECT_FALSE(gpu::products_in_use());
}

// NVIDIA's own library has the functions; without a driver it does not start.
TEST(Products, TheSystemsLibraryLoads) {
  if (!gpu::load_products().empty()) GTEST_SKIP() << "no cuBLASLt here";
  EXPECT_GT(gpu::products_version().size(), 4u);
  EXPECT_FALSE(gpu::products_in_use());  // off without TESSERA_GPU=cublaslt
#ifndef __SANITIZE_ADDRESS__             // the library loses 192 bytes of its own if it does not start
  if (dlopen("libcuda.so.1", RTLD_LAZY) == nullptr) {
    Problem p(kCases[0]);
    EXPECT_THROW(gpu::run_product(0, p.call, nullptr), Error);
  }
#endif
  gpu::forget_products();
}

}  // namespace
}  // namespace tessera::kernels
