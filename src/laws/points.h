// The results of trainings as points for scaling laws, from a CSV or from run directories.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace tessera::laws {

// The result of one training. `flop` counts two for a multiply-add, forward and backward.
struct Point {
  std::string name{};
  double parameters = 0, samples = 0, flop = 0, loss = 0;
  double unique_samples = std::numeric_limits<double>::quiet_NaN();  // samples in the set, if known
  double other_loss = std::numeric_limits<double>::quiet_NaN();      // on other data, if measured
  double accuracy = std::numeric_limits<double>::quiet_NaN();
  double noise_scale = std::numeric_limits<double>::quiet_NaN();  // in samples (train.noise_scale)

  // True if training saw samples more than once.
  bool repeats() const { return samples > 1.001 * unique_samples; }
};

// The loss of one training over its samples.
struct Curve {
  std::string name{};
  double parameters = 0, flop_per_sample = 0;
  std::vector<double> samples{}, losses{};  // ascending samples
};

struct Points {
  std::vector<Point> points{};
  std::vector<Curve> curves{};          // only of runs
  std::vector<std::string> left_out{};  // "runs/a: diverged"
};

// Reads a CSV with a header. Columns: `parameters` and `loss`; one or both of `samples` (or `tokens`) and
// `training_flop` (or `flop`). A missing one follows from flop = 6 parameters samples. Optional are
// `name`, `unique_samples`, `other_loss`, `accuracy`, `noise_scale`. Other columns are ignored. Throws with
// the line for text instead of a number, and for a number that is not positive.
Points read_points(const std::string& path);

// Throws a usage error if the points cannot determine a law in parameters and samples: fewer than 6, too
// little variation in one of the two, or losses that rise with compute. `where`: the file.
void check_points(const std::vector<Point>& points, const std::string& where);

// Returns the number of values that differ from each other by more than 1 %.
size_t distinct(std::vector<double> values);

// Returns Spearman's rank correlation.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

// Returns one member of each point.
std::vector<double> column(const std::vector<Point>& points, double Point::*member);

struct RunOptions {
  std::string loss = "loss";        // the metric of an evaluation
  bool without_embeddings = false;  // excludes embeddings from the parameters (Kaplan et al. 2020)
};

// Reads every run below the directories: those with a metrics.jsonl and a recipe.toml. In a run's directory,
// other.json (`tessera eval --json` on other data) and probe.json (`tessera probe --json`) are optional. Runs that did not
// finish, and runs without a finite loss, are left out and listed. Throws a usage error if there is no run,
// or, with the known names, if no evaluation has the loss.
Points read_runs(const std::vector<std::string>& directories, const RunOptions& options = {});

}  // namespace tessera::laws
