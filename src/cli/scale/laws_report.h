// The findings of `tessera laws fit`: tables, drawings and JSON of all laws that points determine.
#pragma once

#include "cli/base/analysis_output.h"
#include "laws/points.h"

namespace tessera::cli {

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
