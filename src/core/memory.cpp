#include "core/memory.h"

#include <malloc.h>

#include <climits>

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

}  // namespace tessera
