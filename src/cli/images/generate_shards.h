// Images of `tessera generate` as WebDataset shards.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/images/generate_output.h"

namespace tessera::cli {

// A folder of samples-00000.tar, …: KEY.png of each image and, if every image has a class, KEY.cls; class
// names in classes.txt. A shard exists whole or not at all.
std::unique_ptr<GenerateOutput> open_shard_output(const std::string& path,
                                                  const std::vector<AskedImage>& asked,
                                                  const std::string& settings, const ShardLayout& shards,
                                                  bool resume);

}  // namespace tessera::cli
