// Working memory of kernels: one block a thread, grown when needed and kept, so that the steady state
// allocates nothing.
#pragma once

#include <cstddef>

namespace tessera::kernels {

// At least `bytes` bytes on a 64-byte boundary, valid until this thread's next call. Contents are undefined.
void* thread_scratch(size_t bytes);

}  // namespace tessera::kernels
