// Runs that differ in some settings: every combination of a grid, or a list of points, each with several
// seeds. At the end the best point runs again with other settings (VTAB-1K: chosen on 800/200, trained on all
// 1000).
//
//   base = "other_sweep.toml"           # this one is laid over it; several as in recipe_files.h
//   recipe = "vil/ablation.toml"        # next to this file; a list: later ones are laid over earlier ones
//   seeds = [0, 1, 2]
//   [set]                               # laid over the recipe in every run
//   train.epochs = 10
//   [grid]                              # a list of values per key: every combination
//   optimiser.lr = [1e-3, 5e-4]
//   [[points]]                          # or instead of [grid]: points by name
//   name = "no positions"
//   set = { model = { positions = "none" } }
//   [final]                             # the point with the best mean, with this laid over it
//   set = { data = { val_path = "test" } }
//   seeds = [0, 1, 2, 3, 4]
//   [sets]                              # data sets by group; the sweep runs once for each (sweep_sets.h)
//   natural = ["caltech101", "cifar"]
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/value.h"
#include "train/trainer.h"

namespace tessera::train {

struct SweepPoint {
  std::string name;  // also its folder: "lr=0.001,depth=6"
  Value settings;    // overrides the recipe and the sweep's [set]
};

struct SetGroup {
  std::string name;
  std::vector<std::string> sets;  // names of folders
};

struct Sweep {
  std::vector<std::string> recipes;  // files; later ones override earlier ones
  Value common;
  std::vector<SweepPoint> points;
  std::vector<int64_t> seeds = {0};
  bool has_final = false;
  Value final_settings;
  std::vector<int64_t> final_seeds;
  std::vector<SetGroup> groups;
};

// Throws usage errors that name the file and the key. `recipes`: files that override the sweep's recipe, but
// not its [set].
Sweep read_sweep(const std::string& path, const std::vector<std::string>& recipes = {});

// Converts a tree of settings to overrides for load_recipe: "section.key=value" each.
std::vector<std::string> overrides_of(const Value& settings);

// A finished or failed run.
struct SweepRun {
  std::string point;
  int64_t seed = 0;
  bool final = false;
  std::string failure;                    // "" = done
  std::string metric;                     // name of the task's main metric
  double value = 0;                       // at the end of the run
  bool larger_is_better = true;           // for `value`
  std::optional<double> train_loss = {};  // mean of the last epoch, or of the last log line if no epoch ended
  std::optional<double> test_loss = {};   // on the validation set at the end of the run
  int64_t parameters = 0;
  double images_per_second = 0, seconds = 0;
};

// Statistics over the runs of a point.
struct SweepRow {
  std::string point;
  bool final = false;
  int64_t done = 0, failed = 0;
  bool larger_is_better = true;
  double mean = 0, deviation = 0;  // of `value`; sample deviation between seeds, 0 for one run
  std::optional<double> train_loss = {}, test_loss = {};  // means over the runs that have them
};
std::vector<SweepRow> tabulate(const std::vector<SweepRun>& runs);
// Returns the row with the best mean, for the final runs. Points with failed seeds are considered only if all
// points have failures; null if every run failed.
const SweepRow* best_of(const std::vector<SweepRow>& rows);

struct SweepOptions {
  std::vector<std::string> settings = {};        // "section.key=value", laid over everything
  std::vector<std::string> origins = {};         // their names in error lines, as in load_recipe
  std::vector<std::string> final_settings = {};  // the same, for the final runs only
  std::vector<Observer*> observers = {};
  // Called before each unfinished run starts; `number` of `count`.
  std::function<void(const std::string& point, int64_t seed, int64_t number, int64_t count)> starting = {};
};

// Resolves every recipe of the sweep, including the final runs of each candidate point, and reads existing
// results under `directory`, so that usage errors come before the first run.
void check_sweep(const Sweep& sweep, const std::string& directory, const SweepOptions& options = {});

// Runs the missing parts under `directory` (POINT/seed-N, final/POINT/seed-N), continues interrupted runs,
// and writes results.csv after each. All recipes are resolved before the first run. A failed run is recorded
// and the sweep goes on. An interrupt ends the sweep; calling it again continues it.
std::vector<SweepRun> run_sweep(const Sweep& sweep, const std::string& directory,
                                const SweepOptions& options = {});

}  // namespace tessera::train
