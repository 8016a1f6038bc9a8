#include "core/threads.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"

namespace tessera {
namespace {

class ParallelFor : public testing::Test {
 protected:
  void SetUp() override { set_num_threads(2); }
  void TearDown() override { set_num_threads(0); }
};

TEST_F(ParallelFor, TwoThreadsAreReallyUsedAtTheSameTime) {
  if (available_cores() < 2) GTEST_SKIP() << "one core only";
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::atomic<int> inside{0};
  // Each piece waits until the other has begun; one thread alone never gets there.
  parallel_for(2, 1, [&](int64_t, int64_t) {
    ++inside;
    for (int i = 0; i < 50000 && inside < 2; ++i) ::usleep(100);
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(inside, 2);
  EXPECT_EQ(threads.size(), 2u);
}

TEST_F(ParallelFor, EveryIndexIsVisitedOnceInPiecesOfAtLeastAGrain) {
  for (const int64_t count : {0, 1, 2, 3, 7, 64, 1001})
    for (const int64_t grain : {0, 1, 2, 10, 2000}) {
      std::vector<std::atomic<int>> visits(static_cast<size_t>(count));
      std::atomic<int> pieces{0};
      parallel_for(count, grain, [&](int64_t begin, int64_t end) {
        ++pieces;
        for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
      });
      for (const auto& n : visits) ASSERT_EQ(n, 1) << count << " by " << grain;
      EXPECT_EQ(pieces > 1, count >= 2 && grain < count) << count << " by " << grain;
    }
}

TEST_F(ParallelFor, TheSplitIsAlwaysTheSame) {
  const auto split = [] {
    std::mutex mutex;
    std::set<std::pair<int64_t, int64_t>> pieces;
    parallel_for(101, 8, [&](int64_t begin, int64_t end) {
      const std::lock_guard lock(mutex);
      pieces.emplace(begin, end);
    });
    return pieces;
  };
  const std::set<std::pair<int64_t, int64_t>> want = {{0, 50}, {50, 101}};
  for (int i = 0; i < 20; ++i) EXPECT_EQ(split(), want);
}

TEST_F(ParallelFor, AnExceptionOfAPieceComesOut) {
  for (const int64_t bad : {0, 99}) {
    try {
      parallel_for(100, 1, [&](int64_t begin, int64_t end) {
        if (begin <= bad && bad < end) fail("index ", bad);
      });
      ADD_FAILURE() << "nothing came out";
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), text("index ", bad));
    }
  }
  int64_t sum = 0;  // the pool still works
  parallel_for(1, 1, [&](int64_t, int64_t end) { sum += end; });
  EXPECT_EQ(sum, 1);
}

TEST_F(ParallelFor, NestedCallsRunInOnePiece) {
  std::atomic<int> outer{0}, inner{0};
  parallel_for(2, 1, [&](int64_t, int64_t) {
    ++outer;
    parallel_for(100, 1, [&](int64_t, int64_t) { ++inner; });
  });
  EXPECT_EQ(inner, outer);
}

TEST_F(ParallelFor, SeveralThreadsMayCallItAtOnce) {
  std::array<int64_t, 4> sums{};
  std::vector<std::thread> callers;
  for (size_t t = 0; t < sums.size(); ++t)
    callers.emplace_back([&, t] {
      std::atomic<int64_t> sum{0};
      for (int repeat = 0; repeat < 20; ++repeat)
        parallel_for(1000, 10, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) sum += i;
        });
      sums[t] = sum;
    });
  for (auto& caller : callers) caller.join();
  for (const int64_t sum : sums) EXPECT_EQ(sum, 20 * 499500);
}

TEST(Threads, TheNumberIsWhatWasSet) {
  set_num_threads(3);
  EXPECT_EQ(num_threads(), 3);
  set_num_threads(0);
  EXPECT_EQ(num_threads(), available_cores());
  EXPECT_GE(available_cores(), 1);
}

TEST(Threads, TheEnvironmentsNumberIsTheDefault) {
  const char* before = std::getenv("OMP_NUM_THREADS");
  const std::string kept = before ? before : "";
  for (const auto& [words, count] : {std::pair("3", 3), {" 2,4", 2}, {"0", 0}, {"all", 0}, {"", 0}}) {
    ::setenv("OMP_NUM_THREADS", words, 1);
    EXPECT_EQ(environment_threads().value_or(0), count) << words;
    set_num_threads(0);
    EXPECT_EQ(num_threads(), count > 0 ? count : available_cores()) << words;
    set_num_threads(1);
    EXPECT_EQ(num_threads(), 1) << words;
  }
  before ? ::setenv("OMP_NUM_THREADS", kept.c_str(), 1) : ::unsetenv("OMP_NUM_THREADS");
  set_num_threads(0);
}

}  // namespace
}  // namespace tessera
