// The result of an evaluation: metrics with their unit, and report blocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/loading/loader.h"
#include "report/block.h"

namespace tessera::tasks {

enum class Unit { share, number };  // a share in [0, 1] is shown as a percentage

struct MetricInfo {
  std::string name = {};
  Unit unit = Unit::number;
  bool larger_is_better = true;

  // True if `value` beats `best`; NaN never does.
  bool better(double value, double best) const { return larger_is_better ? value > best : value < best; }
};

struct Metric {
  MetricInfo info;
  double value = 0;
  bool measured = true;  // false if the samples have no weight: the value is NaN, "-" in text, null in JSON
};

// Returns sum / weight, or a metric that is not measured if the weight is 0.
Metric mean_metric(MetricInfo info, double sum, double weight);
// Returns a metric that is not measured.
Metric unmeasured(MetricInfo info);

struct Findings {
  int64_t samples = 0;
  double seconds = 0;
  std::vector<Metric> metrics = {};  // in display order
  std::vector<report::Block> blocks = {};
  std::vector<std::string> notes = {};  // notes on samples, classes or metrics that do not count
  data::BadImages broken = {};          // left out, in this process
  // Returns the metric of that name; throws if there is none.
  double metric(const std::string& name) const;
};

// Adds a note that names the metrics without a value.
void note_unmeasured(Findings& findings, const std::string& set);

// Adds the metrics, blocks and notes of another evaluator; ignores its samples and time.
void append(Findings& findings, Findings more);

}  // namespace tessera::tasks
