// Files in tar shards, by paths through the shard: "images/train-000.tar/a.jpg". Internal to this folder.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/files/tar.h"

namespace tessera::data {

bool is_shard_name(std::string_view path);
// Returns the shards in a folder, sorted by name.
std::vector<std::string> shards_in(const std::string& folder);
// Opens an archive. If both splits use it, it is mapped and decompressed only once, as long as one of them
// keeps it open and the file is unchanged.
std::shared_ptr<const TarArchive> open_archive(const std::string& path);

// Reads files, including those in shards; opens each shard once. Thread-safe.
class ShardFiles {
 public:
  // Returns the bytes of a file. Throws if it has more than `most`, or if its shard has no such member.
  std::vector<std::byte> read(const std::string& path, uint64_t most) const;
  // True if the path leads into a shard.
  static bool inside_shard(std::string_view path);

 private:
  struct Shard {
    std::shared_ptr<const TarArchive> archive;
    std::unordered_map<std::string_view, size_t> members;  // by name
  };
  const Shard& shard(const std::string& path) const;

  mutable std::mutex mutex_;
  mutable std::map<std::string, std::unique_ptr<const Shard>> shards_;
};

}  // namespace tessera::data
