// A checkpoint's manifest, manifest.json: its step, its files with sizes and checksums, and the run's state.
// The text ends with a checksum of everything before it:
//
//   {"format": 2, "step": 123, "files": [{"name", "xxh3", "bytes"}, …], "state": {…}, "xxh3": "16 digits"}
//
// Format 1, of earlier versions, lacks that checksum and can still be read. Free of LibTorch, for fuzzing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/value.h"

namespace tessera::train {

struct ManifestFile {
  std::string name;  // in the checkpoint's directory
  int64_t bytes = 0;
  std::string xxh3;  // checksum, 16 hexadecimal digits
  bool operator==(const ManifestFile& other) const = default;
};

struct Manifest {
  int64_t step = 0;
  std::vector<ManifestFile> files;
  Value state;
  bool operator==(const Manifest& other) const = default;
};

std::string write_manifest(const Manifest& manifest);

// Throws Error with the file `where`: damage, a missing or unknown key, a name outside the directory, a file
// listed twice, a negative number.
Manifest parse_manifest(std::string_view json, const std::string& where);

}  // namespace tessera::train
