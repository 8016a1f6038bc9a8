// The shards of a set, and files in them by paths through the shard: "images/train-000.tar/a.jpg". Internal to this folder.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/base/source_kinds.h"
#include "io/files/tar.h"

namespace tessera::data {

bool is_shard_name(std::string_view path);
// Returns the shards in a folder, sorted by name.
std::vector<std::string> shards_in(const std::string& folder);
// Returns the shards in a folder, or else those in folders of splits without images: train/000.tar, val/000.tar.
std::vector<std::string> shards_of_set(const std::string& path);

// The shards of a split.
struct ShardList {
  std::vector<std::string> paths;
  bool by_share = false;
  bool beside = false;  // true if held-out shards are in the folder of the training shards
  size_t left_out = 0;  // test shards next to shards for validation
};
// Returns the shards of a split. In a folder, train… is for training and val… is held out, or else test…. If no shard
// has such a name, all are split by share.
ShardList find_shards(const SourceConfig& config, Split split);

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
