#include "core/threads.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <exception>

#include "core/memory.h"
#include "core/text.h"

namespace tessera {

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  const int cores = std::max(1, CPU_COUNT(&set));
  static const std::optional<double> share = container_limits().cores;
  return share && *share < cores ? std::max(1, static_cast<int>(std::ceil(*share))) : cores;
}

std::string core_mask() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  return {reinterpret_cast<const char*>(&set), sizeof set};
}

std::optional<int> environment_threads() {
  const char* words = std::getenv("OMP_NUM_THREADS");  // "4", or "4,2" with a number for inner loops
  if (!words) return std::nullopt;
  const std::optional<int64_t> count = parse_int(trim(split(words, ',').front()));
  if (!count || *count < 1 || *count > 1024) return std::nullopt;
  return static_cast<int>(*count);
}

void set_num_threads(int count) {
  omp_set_num_threads(count > 0 ? count : environment_threads().value_or(available_cores()));
}

int num_threads() { return omp_get_max_threads(); }

void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  const int64_t most = (count + std::max<int64_t>(grain, 1) - 1) / std::max<int64_t>(grain, 1);
  const auto pieces = static_cast<int>(std::min<int64_t>(num_threads(), most));
  if (pieces <= 1 || omp_in_parallel()) {
    body(0, count);
    return;
  }
  std::exception_ptr error;
#pragma omp parallel for num_threads(pieces) schedule(static, 1)
  for (int piece = 0; piece < pieces; ++piece) {
    try {
      body(count * piece / pieces, count * (piece + 1) / pieces);
    } catch (...) {
#pragma omp critical
      error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace tessera
