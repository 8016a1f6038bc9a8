// The findings of `tessera plan` and `tessera laws fit`: tables, drawings and JSON.
#pragma once

#include <string>
#include <vector>

#include "cli/base/analysis_output.h"
#include "laws/points.h"
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

// All laws that points determine.
struct LawsFindings {
  AnalysisFindings out{};
  std::vector<std::string> warnings{};  // parameters that the points do not determine
};

// Fits everything. `held_out`: points that the law predicts instead. `budgets`: FLOP; empty: the points' largest
// and ten times that.
LawsFindings find_laws(const laws::Points& points, const std::vector<laws::Point>& held_out,
                       std::vector<double> budgets, int resamples);

// Kaplan et al.'s remaining questions, as sections of the report: shape at equal size, curves from their
// first part, other data, samples for a loss, where to stop, critical batch.
void add_kaplan_sections(const laws::Points& points, AnalysisFindings& out);

}  // namespace tessera::cli
