// Private to this folder: `tessera doctor --cluster`.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

struct ClusterOptions {
  std::vector<std::string> settings{};  // "parallel.shard=2"
  std::string device{}, output{}, chip{};
  bool json = false;
};

// Measures the processes that a launcher started, prints a table or JSON, and writes `output`.
void examine_cluster(const ClusterOptions& options);

}  // namespace tessera::cli
