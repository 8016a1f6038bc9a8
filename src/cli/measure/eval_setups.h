// The weights, settings and sizes of `tessera eval`'s rows, checked before anything is measured or
// printed.
#pragma once

#include <string>
#include <vector>

#include "cli/base/measure_options.h"
#include "cli/measure/eval_rows.h"
#include "core/value.h"

namespace tessera::cli {

// The values of --set, --vary and --size.
struct SetupRequest {
  std::vector<std::string> settings, varied;
  std::string sizes;
};

// A row, at each of its sizes.
struct EvalSetup {
  size_t weights = 0;  // which of the described ones
  VariedSettings settings;
  std::string precision;
  Value model_settings;  // these override the file's settings
  std::vector<int64_t> sizes;
};

// If a model lacks a varied setting, its weights get a single row. Throws a usage error for a setting that no
// model has, and for invalid values and sizes.
std::vector<EvalSetup> setups_of(const SetupRequest& request, const std::string& precision,
                                 const std::vector<DescribedWeights>& weights);

RowColumns columns_of(const std::vector<EvalSetup>& setups, const std::vector<DescribedWeights>& weights);

}  // namespace tessera::cli
