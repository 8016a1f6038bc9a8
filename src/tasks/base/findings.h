// What an evaluation found: figures with their unit, and what there is to show.
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

  // Whether `value` beats `best`; a value that is no number never does.
  bool better(double value, double best) const { return larger_is_better ? value > best : value < best; }
};

struct Metric {
  MetricInfo info;
  double value = 0;
};

struct Findings {
  int64_t samples = 0;
  double seconds = 0;
  std::vector<Metric> metrics = {};  // in the order to show
  std::vector<report::Block> blocks = {};
  data::BadImages broken = {};  // that were left out, in this process
  // The metric of that name; an error if there is none.
  double metric(const std::string& name) const;
};

// Adds what a further evaluator found; its samples and time do not count.
void append(Findings& findings, Findings more);

}  // namespace tessera::tasks
