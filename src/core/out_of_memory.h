// Failed allocations, from the C++ library or from LibTorch on the CPU or a GPU.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

namespace tessera {

// Returns the size of a failed allocation, or 0 if the exception does not contain it. Returns none for other
// exceptions.
std::optional<uint64_t> failed_allocation(const std::exception& error);

// "out of memory: 1.5 GB more needed; ADVICE".
std::string out_of_memory_line(uint64_t wanted, const std::string& advice);

}  // namespace tessera
