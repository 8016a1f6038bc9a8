// Files inside of tar shards, by paths that go through the shard: "images/train-000.tar/a.jpg". Internal to this folder.
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
// Shards in a folder, sorted by name.
std::vector<std::string> shards_in(const std::string& folder);
// An archive that both splits read is mapped, and where it is gzipped unpacked, once: while one of them has it open, and
// as long as the file is the same.
std::shared_ptr<const TarArchive> open_archive(const std::string& path);

// Reads files, also those inside of shards, which are opened once each. Called from many threads at once.
class ShardFiles {
 public:
  // The bytes of a file; fails where it has more than `most`, or where its shard has no such member.
  std::vector<std::byte> read(const std::string& path, uint64_t most) const;
  // Whether the path goes through a shard.
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
