// The directory of a zip archive. Entries are not unpacked: PyTorch stores them uncompressed, and readers of
// other archives unpack them (io/files/npz.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera {

struct ZipEntry {
  std::string name;
  std::span<const std::byte> bytes;  // as in the archive
  bool stored = true;                // false: compressed
  int method = 0;                    // 8: deflated
  uint64_t unpacked = 0;             // bytes, from the directory
  uint32_t sum = 0;                  // CRC-32 of the unpacked bytes, from the directory
};

// Returns the entries of an archive in directory order (zip64 too). Throws an error with the file and the
// entry: truncated, no directory, encrypted entries, several volumes, entries that are out of range or
// overlap, a repeated name, or a name that differs from the entry's own header.
std::vector<ZipEntry> index_zip(std::span<const std::byte> archive, const std::string& path);

}  // namespace tessera
