// Working memory of kernels: blocks of each thread, grown when needed and kept, so that the steady state
// allocates nothing.
#pragma once

#include <cstddef>

namespace tessera::kernels {

// Who a block is for; each purpose has its own, so that a kernel may call another.
enum class ScratchFor { kernel, composition, shared };

// At least `bytes` bytes on a 64-byte boundary, valid until this thread's next call for the same purpose.
// Contents are undefined.
void* thread_scratch(ScratchFor purpose, size_t bytes);

}  // namespace tessera::kernels
