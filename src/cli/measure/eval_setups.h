// What the rows of `tessera eval` are measured with: weights, settings and sizes. All of it is checked before anything
// is measured or printed.
#pragma once

#include <string>
#include <vector>

#include "cli/base/measure_options.h"
#include "cli/measure/eval_rows.h"
#include "core/value.h"

namespace tessera::cli {

// What --set, --vary and --size say.
struct SetupRequest {
  std::vector<std::string> settings, varied;
  std::string sizes;
};

// A row at each of its sizes.
struct EvalSetup {
  size_t weights = 0;  // which of the described ones
  VariedSettings settings;
  std::string precision;
  Value model_settings;  // laid over those of the file
  std::vector<int64_t> sizes;
};

// Weights whose model lacks a setting that is varied have one row for all of its values. Usage errors: a setting that
// no model has, values and sizes that a model cannot have.
std::vector<EvalSetup> setups_of(const SetupRequest& request, const std::string& precision,
                                 const std::vector<DescribedWeights>& weights);

RowColumns columns_of(const std::vector<EvalSetup>& setups, const std::vector<DescribedWeights>& weights);

}  // namespace tessera::cli
