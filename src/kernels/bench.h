// Timing of kernels: candidates take turns in one process, and the median time counts.
//
// With one thread, it is the CPU time of that thread, which a busy machine does not disturb. With more, it is
// wall-clock time.
#pragma once

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "core/threads.h"

namespace tessera::kernels::bench {

struct Candidate {
  std::string name;
  std::function<void()> run;
};

struct Timing {
  double median, fastest;  // seconds
};

// Runs each candidate once to warm up, then rounds of all until `seconds` have passed, at least 5 rounds.
inline std::vector<Timing> measure(const std::vector<Candidate>& candidates, double seconds = 1.0) {
  const auto now = [](clockid_t clock) {
    timespec time;
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const clockid_t clock = num_threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  std::vector<std::vector<double>> times(candidates.size());
  for (const Candidate& candidate : candidates) candidate.run();
  const double start = now(CLOCK_MONOTONIC);
  for (int round = 0; round < 5 || now(CLOCK_MONOTONIC) - start < seconds; ++round)
    for (size_t i = 0; i < candidates.size(); ++i) {
      const double begin = now(clock);
      candidates[i].run();
      times[i].push_back(now(clock) - begin);
    }
  std::vector<Timing> timings;
  for (std::vector<double>& list : times) {
    std::sort(list.begin(), list.end());
    timings.push_back({list[list.size() / 2], list[0]});
  }
  return timings;
}

}  // namespace tessera::kernels::bench
