// The findings of `tessera plan`: tables, drawings and JSON.
#pragma once

#include "cli/base/analysis_output.h"
#include "plan/published.h"
#include "plan/search.h"

namespace tessera::cli {

struct PlanInput {
  plan::Shape shape{};
  plan::Cluster cluster{};
  plan::Arithmetic arithmetic{};
  std::string source{};  // origin of the costs
};

AnalysisFindings findings_of(const PlanInput& input, const std::vector<plan::Plan>& plans);

// Constants with their units, every point predicted next to published, and the errors of cross-validation.
AnalysisFindings findings_of_fit(const std::vector<plan::Published>& points);

}  // namespace tessera::cli
