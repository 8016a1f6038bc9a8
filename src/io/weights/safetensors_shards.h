// Weights in several files, with an index from tensor to file:
//
//   {"metadata": {"total_size": 12345, …},
//    "weight_map": {"head.bias": "model-00002-of-00002.safetensors", …}}
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "io/weights/safetensors.h"

namespace tessera {

inline constexpr const char* kShardIndexEnding = ".safetensors.index.json";

// The files of an index, with their paths and tensor names, and the strings of the index's metadata. Reading
// throws an error with the file: an index over 64 MiB or of another form, names that contain a path.
struct ShardIndex {
  std::map<std::string, std::set<std::string>> files;
  Metadata metadata;
};
ShardIndex read_shard_index(const std::string& index_path);

// Writes NAME-00001-of-0000N.safetensors … next to `index_path` (NAME.safetensors.index.json), and the index
// last. Each file has at most `most_bytes` of tensors unless a single one is larger. The index contains the
// metadata. `before_each` as in write_safetensors.
void write_sharded_safetensors(const std::string& index_path, const std::vector<TensorView>& tensors,
                               const Metadata& metadata, uint64_t most_bytes,
                               const std::function<void()>& before_each = {});
// The same for tensors that exist one at a time, as stream_safetensors.
void stream_sharded_safetensors(const std::string& index_path, const std::vector<TensorView>& tensors,
                                const Metadata& metadata, uint64_t most_bytes, const BytesOf& bytes_of);

}  // namespace tessera
