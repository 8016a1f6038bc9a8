#include "core/memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>

namespace tessera {
namespace {

long page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// Page faults of asking for 40 MiB, touching all of it, and giving it back.
long faults_of_one_round() {
  const long before = page_faults();
  const size_t size = size_t{40} << 20;
  void* volatile block = std::malloc(size);
  std::memset(block, 1, size);
  std::free(block);
  return page_faults() - before;
}

TEST(Memory, FreedBlocksAreUsedAgain) {
  keep_freed_memory();
  faults_of_one_round();
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer has an allocator of its own";
#elif defined(__GLIBC__)
  EXPECT_LT(faults_of_one_round(), 100);  // 10240 pages
#endif
}

TEST(Memory, WhatIsTouchedIsCounted) {
#ifdef __linux__
  const uint64_t before = resident_bytes();
  const size_t size = size_t{40} << 20;
  void* volatile block = std::malloc(size);
  std::memset(block, 1, size);
  EXPECT_GT(resident_bytes(), before);
  EXPECT_GT(before, uint64_t{1} << 20);
  std::free(block);
#endif
}

}  // namespace
}  // namespace tessera
