#include "parallel/group.h"

#include <gtest/gtest.h>

#include <thread>

namespace tessera::parallel {
namespace {

TEST(CollectiveLog, AddsUpByKindFromAnyThread) {
  CollectiveLog log;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < 100; ++n) log.add({n % 4 == 0 ? kSum : kGradients, 8, 0, 0.25});
    });
  for (std::thread& thread : threads) thread.join();
  const auto kinds = log.traffic();
  ASSERT_EQ(kinds.size(), 2u);
  EXPECT_EQ(kinds[0].kind, "gradients");
  EXPECT_EQ(kinds[0].calls, 300);
  EXPECT_EQ(kinds[0].bytes, 2400);
  EXPECT_EQ(kinds[0].seconds, 75);
  EXPECT_EQ(kinds[1].kind, "sum");
  EXPECT_EQ(kinds[1].calls, 100);
}

TEST(CollectiveLog, KeepsWhatComesWhileItRecords) {
  CollectiveLog log;
  log.add({kSum, 1, 0, 0});
  log.start_recording();
  log.add({kGather, 2, 3, 4});
  const auto kept = log.stop_recording();
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].bytes, 2);
  log.add({kSum, 5, 6, 7});
  EXPECT_TRUE(log.stop_recording().empty());
}

}  // namespace
}  // namespace tessera::parallel
