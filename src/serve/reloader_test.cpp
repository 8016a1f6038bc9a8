#include "serve/reloader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <thread>
#include <vector>

#include "core/error.h"

namespace tessera::serve {
namespace {

using namespace std::chrono_literals;

// The call comes after the thread looked for one, and before it marks its end.
TEST(Reloader, ACallAtTheEndOfAnOpeningIsNotLost) {
  std::atomic<int> opened = 0;
  std::atomic<bool> met = false;
  std::promise<void> returned, ended;
  std::thread caller;
  {
    Reloader reloader([&] { ++opened; }, [](const std::string&) {},
                      [&] {
                        if (met.exchange(true)) return;
                        caller = std::thread([&] { reloader.reload(), returned.set_value(); });
                        returned.get_future().wait_for(200ms);  // in vain: the call waits for the mark
                        ended.set_value();
                      });
    reloader.reload();
    ended.get_future().wait();
    caller.join();
  }
  EXPECT_EQ(opened, 2);
}

TEST(Reloader, EveryCallIsFollowedByAnOpening) {
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<int> state = 0;
  int opened = 0;
  Reloader reloader(
      [&] {
        const int seen = state;
        const std::lock_guard lock(mutex);
        opened = seen;
        changed.notify_all();
      },
      [](const std::string&) {});
  for (int round = 1; round <= 200; ++round) {
    state = 2 * round;
    reloader.reload();
    state = 2 * round + 1;
    reloader.reload();
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, 10s, [&] { return opened == 2 * round + 1; })) << "round " << round;
  }
}

TEST(Reloader, ErrorsGoToTheFirstCallerAndAreThenPrinted) {
  std::vector<std::string> lines;
  std::exception_ptr error;
  {
    Reloader reloader([] { fail("no weights"); }, [&](const std::string& line) { lines.push_back(line); });
    reloader.begin([&](std::exception_ptr found) { error = found; });
    reloader.reload();
  }
  EXPECT_THROW(std::rethrow_exception(error), Error);
  EXPECT_EQ(lines, std::vector<std::string>{"tessera: the models of before stay: no weights"});
}

}  // namespace
}  // namespace tessera::serve
