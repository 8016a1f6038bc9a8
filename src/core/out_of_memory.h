// Memory that could not be had, whoever asked for it: the C++ library, LibTorch on the CPU or on a GPU.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

namespace tessera {

// The bytes that a failed allocation asked for, 0 where the exception does not say; none for other exceptions.
std::optional<uint64_t> failed_allocation(const std::exception& error);

// "out of memory: 1.5 GB more were wanted; ADVICE".
std::string out_of_memory_line(uint64_t wanted, const std::string& advice);

}  // namespace tessera
