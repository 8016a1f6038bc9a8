#include "parallel/exchange_log.h"

#include <gtest/gtest.h>

#include <thread>

namespace tessera::parallel {
namespace {

TEST(ExchangeLog, AddsUpByAxisAndKindFromAnyThread) {
  ExchangeLog log;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < 100; ++n)
        log.add({n % 2 == 0 ? "shard" : "replicate", n % 4 == 0 ? kSum : kGradients, 8, 0, 0.25, n});
    });
  for (std::thread& thread : threads) thread.join();
  const auto kinds = log.traffic();
  ASSERT_EQ(kinds.size(), 3u);
  EXPECT_EQ(kinds[0].axis, "replicate");
  EXPECT_EQ(kinds[0].kind, "gradients");
  EXPECT_EQ(kinds[0].calls, 200);
  EXPECT_EQ(kinds[1].axis, "shard");
  EXPECT_EQ(kinds[1].bytes, 800);
  EXPECT_EQ(kinds[2].kind, "sum");
  EXPECT_EQ(kinds[2].seconds, 25);
  const auto all = by_kind(kinds);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].kind, "gradients");
  EXPECT_EQ(all[0].calls, 300);
  EXPECT_EQ(all[0].bytes, 2400);
  EXPECT_EQ(all[0].seconds, 75);
}

TEST(ExchangeLog, KeepsWhatComesWhileItRecords) {
  ExchangeLog log;
  log.add({"all", kSum, 1, 0, 0, 1});
  log.start_recording();
  log.add({"all", kGather, 2, 3, 4, 2});
  const auto kept = log.stop_recording();
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].bytes, 2);
  log.add({"all", kSum, 5, 6, 7, 3});
  EXPECT_TRUE(log.stop_recording().empty());
}

}  // namespace
}  // namespace tessera::parallel
