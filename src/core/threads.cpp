#include "core/threads.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <exception>

namespace tessera {

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

std::string core_mask() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  return {reinterpret_cast<const char*>(&set), sizeof set};
}

void set_num_threads(int count) { omp_set_num_threads(count > 0 ? count : available_cores()); }

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
