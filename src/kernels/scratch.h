// Working memory of kernels: blocks per thread, grown on demand and kept, so that the steady state allocates
// nothing.
#pragma once

#include <cstddef>

namespace tessera::kernels {

// The user of a block; each purpose has its own, so that a kernel may call another.
enum class ScratchFor { kernel, composition, shared };

// Returns at least `bytes` bytes on a 64-byte boundary, valid until this thread's next call for the same
// purpose. The contents are undefined.
void* thread_scratch(ScratchFor purpose, size_t bytes);

}  // namespace tessera::kernels
