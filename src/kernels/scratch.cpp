#include "kernels/memory.h"

#include <cstdlib>
#include <memory>
#include <new>

namespace tessera::kernels {
namespace {

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

struct Block {
  std::unique_ptr<void, Free> memory;
  size_t size = 0;
};

thread_local Block blocks[3];

}  // namespace

void* thread_scratch(ScratchFor purpose, size_t bytes) {
  Block& block = blocks[static_cast<size_t>(purpose)];
  if (bytes > block.size) {
    const size_t rounded = (bytes + 4095) / 4096 * 4096;
    block.memory.reset();
    block.size = 0;
    block.memory.reset(std::aligned_alloc(4096, rounded));
    if (!block.memory) throw std::bad_alloc();
    block.size = rounded;
  }
  return block.memory.get();
}

}  // namespace tessera::kernels
