// The directory of a zip archive. Entries are not unpacked: what PyTorch writes is stored as it is, and who reads
// other archives unpacks them (io/files/npz.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera {

struct ZipEntry {
  std::string name;
  std::span<const std::byte> bytes;  // as they lie in the archive
  bool stored = true;                // false: compressed
  int method = 0;                    // 8: deflated
  uint64_t unpacked = 0;             // bytes, as the directory says
  uint32_t sum = 0;                  // CRC-32 of the unpacked bytes, as the directory says
};

// The entries of an archive in the order of its directory (zip64 too). Refused, each with a line that names
// the file and the entry: truncated, no directory, encrypted entries, several volumes, entries out of range,
// that overlap, with the same or another name than in their own header.
std::vector<ZipEntry> index_zip(std::span<const std::byte> archive, const std::string& path);

}  // namespace tessera
