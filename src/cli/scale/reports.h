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

// Constants with units, predicted and published values of every point, and cross-validation errors.
AnalysisFindings findings_of_fit(const std::vector<plan::Published>& points);

// All laws that points determine.
struct LawsFindings {
  AnalysisFindings out{};
  std::vector<std::string> warnings{};  // parameters of the law that the points do not determine
};

// Fits everything. `held_out`: points to predict instead of fitting. `budgets`: in FLOP; empty: the largest
// of the points and ten times that.
LawsFindings find_laws(const laws::Points& points, const std::vector<laws::Point>& held_out,
                       std::vector<double> budgets, int resamples);

// The other questions of Kaplan et al., as sections of the report: shape at equal size, extrapolated curves,
// other data, samples for a loss, when to stop, critical batch.
void add_kaplan_sections(const laws::Points& points, AnalysisFindings& out);

}  // namespace tessera::cli
