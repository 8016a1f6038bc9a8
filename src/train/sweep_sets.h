// A sweep made once for each of several data sets, with means by group: VTAB-1k (Zhai et al. 2020), whose 19
// sets are 7 natural, 4 specialised and 8 structured ones.
//
//   [sets]                              # of the sweep's file: folders under the one that --sets names
//   natural = ["caltech101", "cifar"]
//   specialised = ["eurosat"]
//
// A set's folder holds the lists that the benchmark gives, train800.txt and val200.txt for the points, and
// train800val200.txt and test.txt for the last runs; or folders train1000, of which data.val_share is held
// out, and test.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "train/sweep.h"

namespace tessera::train {

// Where the pictures of a set are, as settings of the points' runs and of the last ones.
struct SetData {
  std::vector<std::string> settings, final_settings;
};

// A usage error where the folder does not hold what the sweep needs.
SetData data_of_set(const std::string& folder, bool has_final);

// What the sweep found for one set: the last runs, or without any the best point.
struct SetResult {
  std::string set, group;
  std::string failure;  // "" = done
  SweepRow row = {};
};

struct GroupMean {
  std::string name;  // of the group; "all" for all sets
  int64_t sets = 0;
  double mean = 0;        // of the sets' means
  bool complete = false;  // every set has runs that are done
};
// A mean a group, in the order in which the sets name them, and that of all sets.
std::vector<GroupMean> group_means(const std::vector<SetResult>& results);

using SetStarting = std::function<void(const std::string& set, int64_t number, int64_t count)>;

// check_sweep for each set: `folder` holds the sets, `directory`/SET their runs.
void check_sets(const Sweep& sweep, const std::string& folder, const std::string& directory,
                const SweepOptions& options = {});

// run_sweep for each set under `directory`/SET, after check_sets. Writes `directory`/sets.csv and groups.csv
// after each. A set whose runs all fail is noted and the next one made.
std::vector<SetResult> run_sets(const Sweep& sweep, const std::string& folder, const std::string& directory,
                                const SweepOptions& options = {}, const SetStarting& starting = {});

}  // namespace tessera::train
