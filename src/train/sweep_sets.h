// A sweep repeated for several data sets, with means by group: VTAB-1k (Zhai et al. 2020), with 7 natural, 4
// specialised and 8 structured sets.
//
//   [sets]                              # in the sweep's file: folders under the one given with --sets
//   natural = ["caltech101", "cifar"]
//   specialised = ["eurosat"]
//
// A set's folder contains the benchmark's lists: train800.txt and val200.txt for the points,
// train800val200.txt and test.txt for the final runs. Or it contains folders train1000 (data.val_share of it
// is held out) and test.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "train/sweep.h"

namespace tessera::train {

// Paths of a set's images, as settings of the points' runs and of the final runs.
struct SetData {
  std::vector<std::string> settings, final_settings;
};

// Throws a usage error if the folder lacks data that the sweep needs.
SetData data_of_set(const std::string& folder, bool has_final);

// The result for one set: the final runs, or the best point if there are none.
struct SetResult {
  std::string set, group;
  std::string failure;  // "" = done
  SweepRow row = {};
};

struct GroupMean {
  std::string name;  // the group's, or "all" for all sets
  int64_t sets = 0;
  double mean = 0;        // over the sets' means
  bool complete = false;  // every set has a finished run
};
// Returns a mean per group, in the order of first use, then the mean of all sets.
std::vector<GroupMean> group_means(const std::vector<SetResult>& results);

using SetStarting = std::function<void(const std::string& set, int64_t number, int64_t count)>;

// Calls check_sweep for each set: `folder` contains the sets, `directory`/SET their runs.
void check_sets(const Sweep& sweep, const std::string& folder, const std::string& directory,
                const SweepOptions& options = {});

// Calls run_sweep for each set under `directory`/SET, after check_sets. Writes `directory`/sets.csv and
// groups.csv after each. If all runs of a set fail, records it and goes on.
std::vector<SetResult> run_sets(const Sweep& sweep, const std::string& folder, const std::string& directory,
                                const SweepOptions& options = {}, const SetStarting& starting = {});

}  // namespace tessera::train
