#include "tasks/pretrain/patch_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace tessera::tasks {
namespace {

using Orders = std::vector<std::vector<int64_t>>;

// Orders of samples `first` to `first + size - 1` of a step.
Orders drawn(int64_t first, int64_t size, const StepKey& key, const char* purpose = "order") {
  constexpr int64_t patches = 9;
  data::Batch batch;
  batch.size = size, batch.first = first, batch.whole = 12;
  draw_orders(batch, patches, purpose, key);
  const auto values = batch.values<int64_t>("order");
  EXPECT_EQ(values.size(), static_cast<size_t>(size * patches));
  Orders orders;
  for (int64_t i = 0; i < size; ++i)
    orders.emplace_back(values.begin() + i * patches, values.begin() + (i + 1) * patches);
  return orders;
}

TEST(PatchOrders, ArePermutationsOfTheirOwn) {
  const Orders orders = drawn(0, 12, {.seed = 3, .step = 5});
  for (const auto& order : orders) {
    std::vector<int64_t> sorted = order, places(order.size());
    std::sort(sorted.begin(), sorted.end());
    std::iota(places.begin(), places.end(), 0);
    EXPECT_EQ(sorted, places);
    EXPECT_EQ(std::count(orders.begin(), orders.end(), order), 1);
  }
}

TEST(PatchOrders, DependOnSeedStepSampleAndPurposeAlone) {
  const StepKey key{.seed = 3, .step = 5};
  const Orders whole = drawn(0, 12, key);
  EXPECT_EQ(drawn(4, 5, key), Orders(whole.begin() + 4, whole.begin() + 9));  // the share of another process
  EXPECT_NE(drawn(0, 12, {.seed = 4, .step = 5}), whole);
  EXPECT_NE(drawn(0, 12, {.seed = 3, .step = 6}), whole);
  EXPECT_NE(drawn(0, 12, key, "mask"), whole);
}

}  // namespace
}  // namespace tessera::tasks
