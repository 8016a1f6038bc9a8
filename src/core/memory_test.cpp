#include "core/memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <system_error>

#include "core/text.h"

namespace tessera {
namespace {

long page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// Returns the page faults of allocating 40 MiB, touching all of it, and freeing it.
long faults_of_one_round() {
  const long before = page_faults();
  const size_t size = size_t{40} << 20;
  auto* block =
      static_cast<volatile char*>(std::malloc(size));  // a compiler removes writes that nothing can read
  for (size_t at = 0; at < size; at += 4096) block[at] = 1;
  std::free(const_cast<char*>(block));
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

TEST(Memory, FreedBlocksMayGoBackToTheSystem) {
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)
  keep_freed_memory();
  faults_of_one_round();  // its block stays with the process
  const uint64_t kept = resident_bytes();
  return_freed_memory();
  EXPECT_LT(resident_bytes() + (uint64_t{30} << 20), kept);
  faults_of_one_round();
  EXPECT_LT(resident_bytes() + (uint64_t{30} << 20), kept);
  keep_freed_memory();
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

// Messages as LibTorch writes them, on the CPU and on a GPU.
TEST(OutOfMemory, FailedAllocationsAreToldFromOtherErrors) {
  const auto failed = [](const std::exception& error) { return failed_allocation(error); };
  const auto wanted = [](const std::exception& error) { return failed_allocation(error).value().wanted; };
  EXPECT_EQ(wanted(std::bad_alloc()), 0u);
  EXPECT_EQ(wanted(std::system_error(std::make_error_code(std::errc::not_enough_memory))), 0u);
  EXPECT_EQ(
      wanted(std::runtime_error("[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't "
                                "allocate memory: you tried to allocate 38654705664 bytes. Error code 12 "
                                "(Cannot allocate memory)\nException raised from")),
      38654705664u);
  const auto on_gpu = failed(std::runtime_error(
      "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 79.25 GiB of which 1.00 "
      "GiB "
      "is free. Process 7 has 78.25 GiB memory in use. Of the allocated memory 70.00 GiB is allocated"));
  EXPECT_EQ(on_gpu->wanted, uint64_t{3} << 29);
  EXPECT_EQ(on_gpu->free, uint64_t{1} << 30);
  EXPECT_EQ(wanted(std::runtime_error("CUDA out of memory. Tried to allocate some")), 0u);
  EXPECT_FALSE(failed(std::runtime_error("mat1 and mat2 shapes cannot be multiplied")));
  EXPECT_FALSE(failed(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again))));
  EXPECT_EQ(out_of_memory_line({}, "take less"), "out of memory: take less");
  const std::string size = human_bytes(uint64_t{3} << 29);
  EXPECT_EQ(out_of_memory_line({uint64_t{3} << 29, 0}, "take less"),
            "out of memory: " + size + " more needed; take less");
  EXPECT_EQ(out_of_memory_line(*on_gpu, "take less"), "out of memory: " + size + " more needed, " +
                                                          human_bytes(uint64_t{1} << 30) +
                                                          " free on the GPU; take less");
}

}  // namespace
}  // namespace tessera
