#include "serve/reloader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>

#include "core/error.h"

namespace tessera::serve {
namespace {

using namespace std::chrono_literals;

// A state that a reload() follows is always opened, also if the call meets the end of an opening.
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
  for (int round = 1; round <= 1500; ++round) {
    state = 2 * round;
    reloader.reload();
    for (int spin = 0; spin < 30 * round; ++spin)
      state.load();  // meets the opening at another place each time
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
