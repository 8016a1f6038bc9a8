#include "tasks/base/soundness.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace tessera::tasks {

bool gives_numbers(const Findings& findings, const MetricInfo& main) {
  for (const std::string_view name : {std::string_view("loss"), std::string_view(main.name)})
    for (const Metric& metric : findings.metrics)
      if (metric.info.name == name) return !metric.measured || std::isfinite(metric.value);
  return std::isfinite(findings.metric(main.name));
}

bool gives_numbers(const Prediction& prediction) {
  return std::all_of(prediction.begin(), prediction.end(), [](const PredictionLine& line) {
    return std::all_of(line.values.begin(), line.values.end(), [](const auto& value) {
      return !value.second.is_double() || std::isfinite(value.second.as_double());
    });
  });
}

}  // namespace tessera::tasks
