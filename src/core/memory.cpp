#include "core/memory.h"

#include <malloc.h>
#include <unistd.h>

#include <climits>
#include <fstream>

namespace tessera {

void keep_freed_memory() {
#ifdef __GLIBC__
  // 1 GiB: blocks below it come from the heap, which is never trimmed and grows 64 MiB at a time.
  // NOLINTBEGIN(concurrency-mt-unsafe): called before there are threads
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 64 << 20);
  // NOLINTEND(concurrency-mt-unsafe)
#endif
}

void return_freed_memory(int large) {
#ifdef __GLIBC__
  // NOLINTBEGIN(concurrency-mt-unsafe): these settings are single words that later allocations read
  mallopt(M_MMAP_THRESHOLD, large);
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  mallopt(M_TOP_PAD, 1 << 20);
  malloc_trim(0);
  // NOLINTEND(concurrency-mt-unsafe)
#else
  (void)large;
#endif
}

uint64_t main_memory_bytes() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), size = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(size) : 0;
}

uint64_t resident_bytes() {
  std::ifstream pages("/proc/self/statm");
  uint64_t all = 0, resident = 0;
  if (!(pages >> all >> resident)) return 0;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace tessera
