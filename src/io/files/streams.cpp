// Standard input and other streams of unknown length, read with a limit.
#include <algorithm>
#include <istream>
#include <limits>

#include "core/error.h"
#include "io/files/file.h"

namespace tessera {

std::vector<std::byte> read_stream(std::istream& in, const std::string& name, uint64_t max_bytes) {
  constexpr uint64_t kPiece = 1 << 20;
  std::vector<std::byte> out;
  for (size_t used = 0; in; used += static_cast<size_t>(in.gcount())) {
    if (used > max_bytes) fail(name, " has more than ", max_bytes, " bytes, at most that many are read");
    out.resize(used + std::min(kPiece, max_bytes + 1 - used));
    in.read(reinterpret_cast<char*>(out.data()) + used, static_cast<std::streamsize>(out.size() - used));
    out.resize(used + static_cast<size_t>(in.gcount()));
  }
  if (out.size() > max_bytes) fail(name, " has more than ", max_bytes, " bytes, at most that many are read");
  return out;
}

bool read_line(std::istream& in, std::string& line, const std::string& name, uint64_t max_bytes) {
  line.clear();
  auto* const buffer = in.rdbuf();
  if (!in) return false;
  while (true) {
    const int c = buffer->sbumpc();
    if (c == std::char_traits<char>::eof()) {
      in.setstate(std::ios::eofbit);
      if (line.empty()) return false;
      break;
    }
    if (c == '\n') break;
    if (line.size() == max_bytes) {
      in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
      fail(name, " has more than ", max_bytes, " bytes, at most that many are read");
    }
    line += static_cast<char>(c);
  }
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

}  // namespace tessera
