// Loaded in front of the C library: a wall clock that goes back an hour every time somebody looks at it.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

extern "C" int clock_gettime(clockid_t clock, timespec* at) noexcept {
  static std::atomic<long> looks = 0;
  const auto result = static_cast<int>(::syscall(SYS_clock_gettime, clock, at));
  if (result == 0 && clock == CLOCK_REALTIME) at->tv_sec -= 3600 * looks++;
  return result;
}
