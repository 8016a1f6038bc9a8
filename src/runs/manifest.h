// The manifest of a checkpoint, manifest.json: its step, the files that belong to it with their sizes and
// checksums, and the run's state. The text ends with a checksum of all that stands in front of it:
//
//   {"format": 2, "step": 123, "files": [{"name", "xxh3", "bytes"}, …], "state": {…}, "xxh3": "16 digits"}
//
// Format 1, of earlier versions, had no such checksum and is still read. Free of LibTorch: it is fuzzed.
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
  std::string xxh3;  // of its content, 16 hexadecimal digits
  bool operator==(const ManifestFile& other) const = default;
};

struct Manifest {
  int64_t step = 0;
  std::vector<ManifestFile> files;
  Value state;
  bool operator==(const Manifest& other) const = default;
};

std::string write_manifest(const Manifest& manifest);

// `where` names the file in errors: damage, a key that is missing or unknown, a name that leads out of the
// directory, a file that stands twice, a negative number.
Manifest parse_manifest(std::string_view json, const std::string& where);

}  // namespace tessera::train
