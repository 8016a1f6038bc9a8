// Standard input and other streams of unknown length, read with a limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <string>
#include <vector>

namespace tessera {

// Returns the rest of the stream. Throws Error that names `name` if it has more than `max_bytes`.
std::vector<std::byte> read_stream(std::istream& in, const std::string& name, uint64_t max_bytes);

// Reads a line without its end, which is "\n" or "\r\n". Returns false at the end of the stream. For a line of
// more than `max_bytes` it skips the whole line and throws Error that names `name`.
bool read_line(std::istream& in, std::string& line, const std::string& name, uint64_t max_bytes);

}  // namespace tessera
