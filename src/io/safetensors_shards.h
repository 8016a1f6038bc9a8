// Weights in several safetensors files, with an index that says which tensor lies in which:
//
//   {"metadata": {"total_size": 12345, …},
//    "weight_map": {"head.bias": "model-00002-of-00002.safetensors", …}}
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/safetensors.h"

namespace tessera {

inline constexpr const char* kShardIndexEnding = ".safetensors.index.json";

class ShardedSafetensors {
 public:
  // Opens the index and every file that it names, which must stand in the index's folder. Refused, each with
  // a line that names the file: an index over 64 MiB or of another form, names with a path in them, files
  // that are missing or broken, tensors that the index names and its file lacks, and the other way round.
  explicit ShardedSafetensors(const std::string& index_path);

  size_t files() const { return files_.size(); }
  // The texts of the index's metadata, and what the first file says besides.
  const Metadata& metadata() const { return metadata_; }
  // File by file; the views live as long as this object.
  const std::vector<TensorView>& tensors() const { return tensors_; }

 private:
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  Metadata metadata_;
  std::vector<TensorView> tensors_;
};

// Writes NAME-00001-of-0000N.safetensors … beside `index_path` (NAME.safetensors.index.json), each with at
// most `most_bytes` of tensors unless a single one is larger, and the index last. The metadata stand in the
// index. `before_each` as in write_safetensors.
void write_sharded_safetensors(const std::string& index_path, const std::vector<TensorView>& tensors,
                               const Metadata& metadata, uint64_t most_bytes,
                               const std::function<void()>& before_each = {});

}  // namespace tessera
