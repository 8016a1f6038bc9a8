// Measures the time of each exchange on each axis, and finds slow processes.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/world.h"

namespace tessera::parallel {

struct MeasuredExchange {
  std::string axis, kind;
  int64_t processes = 1;
  int64_t bytes = 0;   // of the larger tensor of a process
  double seconds = 0;  // the mean over processes of each one's median
  bool right = true;   // true if the result was right in every process
  double bytes_per_second() const { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }
};

struct MeasuredProcess {
  int rank = 0;
  std::string machine;
  double still = 0;         // share of the time during which the process was stopped
  double work_seconds = 0;  // processor time of a fixed piece of arithmetic
  bool slow = false;        // true if one of the two is far above the median of all processes
};

struct MeasuredCluster {
  std::vector<MeasuredExchange> exchanges;
  std::vector<MeasuredProcess> processes;  // by rank
};

struct MeasureOptions {
  torch::Device device = torch::kCPU;
  std::vector<int64_t> sizes = {int64_t{1} << 10, int64_t{1} << 16, int64_t{1} << 20, int64_t{1} << 23,
                                int64_t{1} << 26};
  double seconds = 0.15;  // approximate time for each size and kind
};

// Measures every kind of exchange on every axis of `world` with more than one process. Collective: all
// processes get the same result.
MeasuredCluster measure_cluster(World& world, const MeasureOptions& options);

}  // namespace tessera::parallel
