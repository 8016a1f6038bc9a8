// components/metric_classification*: metrics of classifiers from stored logits.
#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "eval/classification.h"
#include "tests/parity/case.h"
#include "tests/parity/model_case.h"

namespace tessera::parity::metric_cases {
namespace {

using Json = nlohmann::json;
using eval::Ties;

struct Logits {
  explicit Logits(const Golden& golden)
      : scores(golden.tensor("input.logits", torch::kFloat32)),
        target(golden.tensor("input.target")),
        classes(scores.size(1)) {}
  std::span<const float> rows(int64_t from = 0) const {
    return {scores.const_data_ptr<float>() + from * classes,
            static_cast<size_t>((scores.size(0) - from) * classes)};
  }
  std::span<const int64_t> labels(int64_t from = 0) const {
    return {target.const_data_ptr<int64_t>() + from, static_cast<size_t>(target.size(0) - from)};
  }
  torch::Tensor scores, target;
  int64_t classes;
};

// The number between prefix and suffix: 5 of "top5_ties_optimistic".
std::optional<int64_t> number_in(const std::string& key, const std::string& prefix,
                                 const std::string& suffix = "") {
  if (!key.starts_with(prefix) || !key.ends_with(suffix) || key.size() < prefix.size() + suffix.size())
    return std::nullopt;
  return parse_int(key.substr(prefix.size(), key.size() - prefix.size() - suffix.size()));
}

// The metric of a key whose result is one number; nothing for a key that is not known.
std::optional<double> metric_of(const std::string& key, const Logits& logits,
                                const eval::ClassificationMeter& meter, const Json& results) {
  if (const auto k = number_in(key, "top", "_ties_optimistic")) return meter.top(*k, Ties::optimistic);
  if (const auto k = number_in(key, "top", "_ties_pessimistic")) return meter.top(*k, Ties::pessimistic);
  if (const auto k = number_in(key, "top", "_lowest_index_wins")) return meter.top(*k);
  if (const size_t mark = key.find("_percent_rows");
      mark != std::string::npos) {  // "timm_top5_percent_rows20plus"
    const auto from = number_in(key.substr(mark), "_percent_rows", "plus"),
               k = number_in(key.substr(0, mark), "timm_top");
    if (!from || !k) return std::nullopt;
    eval::ClassificationMeter rest(logits.classes);
    rest.add(logits.rows(*from), logits.labels(*from));
    return 100 * rest.top(*k);
  }
  if (const auto bins = number_in(key, "ece_")) return meter.calibration(*bins).ece;
  if (const auto bins = number_in(key, "torchmetrics_ece_")) return meter.calibration(*bins).ece;
  if (const auto bins = number_in(key, "max_calibration_error_")) return meter.calibration(*bins).max;
  if (const auto bins = number_in(key, "ada_ece_")) return meter.adaptive_ece(*bins);
  if (key == "nll") return meter.nll();
  if (key == "brier_sum") return meter.brier();
  if (key == "brier_mean_over_classes") return meter.brier() / static_cast<double>(logits.classes);
  if (key == "mean_per_class_accuracy") return meter.mean_class_accuracy();
  if (key == "temperature_min_nll")
    return eval::fit_temperature(logits.rows(), logits.labels(), logits.classes);
  if (key == "nll_at_temperature")
    return eval::nll(logits.rows(), logits.labels(), logits.classes,
                     eval::fit_temperature(logits.rows(), logits.labels(), logits.classes));
  if (key == "subset_top1")
    return eval::subset_accuracy(logits.rows(), logits.labels(), logits.classes,
                                 results.at("subset_classes").get<std::vector<int64_t>>());
  return std::nullopt;
}

void compare_bins(Comparison& comparison, const Json& wanted, const eval::Calibration& got, double relative,
                  double absolute) {
  comparison.holds("reliability bins", wanted.size() == got.bins.size(), "another number");
  for (size_t i = 0; i < std::min(wanted.size(), got.bins.size()); ++i) {
    const eval::CalibrationBin& bin = got.bins[i];
    comparison.holds(text("reliability bin ", i), wanted[i].at("count") == bin.count, "another count");
    comparison.close(text("reliability bin ", i),
                     torch::tensor({bin.low, bin.high, bin.accuracy, bin.confidence}, torch::kFloat64),
                     torch::tensor({wanted[i].at("lo").get<double>(), wanted[i].at("hi").get<double>(),
                                    wanted[i].at("acc").get<double>(), wanted[i].at("conf").get<double>()},
                                   torch::kFloat64),
                     relative, absolute);
  }
}

CaseResult check_metric(const Golden& golden) {
  const Json tolerance = golden.meta.value("tolerance", Json::object());
  const double relative = tolerance.value("rtol", 1e-6), absolute = tolerance.value("atol", 1e-7);
  const Logits logits(golden);
  eval::ClassificationMeter meter(logits.classes);
  meter.add(logits.rows(), logits.labels());
  const Json& results = golden.config().at("results");
  Comparison comparison;
  for (const auto& [key, wanted] : results.items()) {
    if (key == "subset_classes") continue;
    if (key == "confusion_rows_true_cols_pred") {
      std::vector<int64_t> cells;
      for (const Json& row : wanted)
        for (const Json& cell : row) cells.push_back(cell.get<int64_t>());
      comparison.holds(key, meter.confusion() == cells, "other counts");
    } else if (const auto bins = number_in(key, "reliability_bins_")) {
      compare_bins(comparison, wanted, meter.calibration(*bins), relative, absolute);
    } else if (const auto got = metric_of(key, logits, meter, results)) {
      const double slack = key == "temperature_min_nll" ? 1e-4 : absolute;  // as the golden was minimised
      comparison.close(key, torch::tensor(*got, torch::kFloat64),
                       torch::tensor(wanted.get<double>(), torch::kFloat64), relative, slack);
    } else {
      comparison.holds(key, false, "not a metric of ours");
    }
  }
  return comparison.result();
}

const Registered registered({
    {"classification_metrics", check_metric, {"components/metric_classification"}},
});

}  // namespace
}  // namespace tessera::parity::metric_cases
