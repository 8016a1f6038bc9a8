// Private to this folder: work that all processes of a launcher do together, and `tessera doctor --cluster`.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/world.h"

namespace tessera::cli {

// Runs `body` in each process and then leaves. If several processes take part and one fails, each prints a line
// with its rank and ends at once: with 75 if another process was lost, otherwise with the error's own code.
void run_together(std::unique_ptr<parallel::World> world, const std::function<void(parallel::World&)>& body);

struct ClusterOptions {
  std::vector<std::string> settings{};  // "parallel.shard=2"
  std::string device{}, output{}, chip{};
  bool json = false;
};

// Measures the processes that a launcher started, prints a table or JSON, and writes `output`.
void examine_cluster(const ClusterOptions& options);

}  // namespace tessera::cli
