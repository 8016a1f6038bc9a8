#include "onnx/dimension.h"

#include <gtest/gtest.h>

namespace tessera::onnx {
namespace {

const std::vector<std::vector<int64_t>> kSizes = {{2, 64, 64},  {3, 64, 64}, {2, 96, 64},
                                                  {2, 160, 64}, {2, 64, 96}, {2, 64, 160}};

template <class F>
std::vector<int64_t> values_of(F&& rule) {
  std::vector<int64_t> out;
  for (const std::vector<int64_t>& sizes : kSizes) out.push_back(rule(sizes[0], sizes[1], sizes[2]));
  return out;
}

TEST(Dimension, RulesAreFoundAndHoldForOtherSizes) {
  const auto expect = [](auto rule) {
    const auto found = fit_dimension(values_of(rule), kSizes);
    ASSERT_TRUE(found.has_value());
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{5, 224, 224}, {1, 128, 320}, {7, 192, 64}})
      EXPECT_EQ(found->of(sizes), rule(sizes[0], sizes[1], sizes[2]));
  };
  expect([](int64_t batch, int64_t, int64_t) { return batch; });
  expect([](int64_t batch, int64_t, int64_t) { return 49 * batch; });
  expect([](int64_t, int64_t height, int64_t) { return height / 16; });
  expect([](int64_t, int64_t height, int64_t width) { return height / 16 * (width / 16) + 1; });
  expect([](int64_t batch, int64_t height, int64_t width) { return batch * (height / 32) * (width / 32); });
  expect([](int64_t, int64_t height, int64_t) { return (height + 27) / 28; });
}

TEST(Dimension, NumbersWithoutARuleAreRefused) {
  EXPECT_FALSE(fit_dimension(values_of([](int64_t, int64_t height, int64_t) { return height * height % 37; }),
                             kSizes));
  EXPECT_FALSE(fit_dimension(values_of([](int64_t, int64_t, int64_t) { return 7; }), kSizes));
}

}  // namespace
}  // namespace tessera::onnx
