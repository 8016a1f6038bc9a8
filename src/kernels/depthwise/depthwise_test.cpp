// Compares every implementation with the definition, at sizes around its blocks.
#include "kernels/depthwise/depthwise.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/text.h"
#include "core/threads.h"
#include "kernels/isa.h"
#include "kernels/testing.h"

namespace tessera::kernels {
namespace {

using testing::Guarded;
using testing::normal;

struct Problem {
  Problem(int64_t batch, int64_t rows, int64_t columns, int64_t channels, Element in, Element out)
      : x(in, batch * rows * columns * channels, 1),
        y(out, batch * rows * columns * channels, 1),
        weight(normal(49 * channels, 2)),
        bias(normal(channels, 3)),
        call{batch, rows, columns, channels, x.data(), in, weight.data(), bias.data(), y.data(), out} {
    const auto values = normal(x.count(), 1);
    for (int64_t i = 0; i < x.count(); ++i) x.set(i, values[i]);
  }
  std::vector<double> run(Isa isa) {
    force_isa(isa);
    for (int64_t i = 0; i < y.count(); ++i) y.set(i, 1e30);
    depthwise_convolution(call);
    std::vector<double> all;
    for (int64_t i = 0; i < y.count(); ++i) all.push_back(y.get(i));
    return all;
  }
  Guarded x, y;
  std::vector<float> weight, bias;
  DepthwiseConvolution call;
};

std::vector<Isa> instruction_sets() {
  std::vector<Isa> sets;
  for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512})
    if (isa <= machine().best) sets.push_back(isa);
  return sets;
}

TEST(Depthwise, IsTheDefinition) {
  const Isa before = active_isa();
  for (const auto& [in, out] : {std::pair{Element::f32, Element::f32},
                                {Element::f32, Element::bf16},
                                {Element::bf16, Element::bf16},
                                {Element::bf16, Element::f32}})
    for (const int64_t channels : {1, 15, 16, 40})
      for (const auto& [rows, columns] :
           {std::pair{1, 1}, {3, 6}, {7, 7}, {2, 8}, {9, 14}, {1, 15}, {4, 28}, {8, 29}, {3, 57}}) {
        Problem problem(2, rows, columns, channels, in, out);
        if (columns == 6) problem.call.bias = nullptr;
        const std::vector<double> want = problem.run(Isa::reference);
        // Sums of 50 floats; a result in bfloat16 is off by half a unit of 8 bits.
        const double tolerance = (out == Element::f32 ? 1e-5 : 1.0 / 256) * (1 + testing::largest(want));
        for (const Isa isa : instruction_sets())
          testing::expect_within(problem.run(isa), want, tolerance,
                                 text(name_of(isa), " ", rows, " x ", columns, " x ", channels), channels);
      }
  force_isa(before);
}

TEST(Depthwise, ThreadsChangeNothing) {
  Problem problem(3, 20, 30, 40, Element::f32, Element::f32);
  const Isa before = active_isa();
  const std::vector<double> shared = problem.run(before);
  const int threads = num_threads();
  set_num_threads(1);
  EXPECT_EQ(problem.run(before), shared);
  set_num_threads(threads);
}

TEST(Depthwise, RefusesMissingTensors) {
  Problem problem(1, 2, 2, 4, Element::f32, Element::f32);
  DepthwiseConvolution call = problem.call;
  call.weight = nullptr;
  EXPECT_THROW(depthwise_convolution(call), Error);
  call = problem.call;
  call.columns = 0;
  EXPECT_THROW(depthwise_convolution(call), Error);
}

}  // namespace
}  // namespace tessera::kernels
