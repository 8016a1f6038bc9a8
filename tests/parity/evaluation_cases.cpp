// components/metric_*: robustness, shape bias, group means, discrimination, receptive field.

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "eval/discrimination.h"
#include "eval/receptive_field.h"
#include "eval/robustness.h"
#include "tests/parity/case.h"
#include "train/sweep_sets.h"

namespace tessera::parity::evaluation_cases {
namespace {

using Json = nlohmann::json;

// Compares numbers under the tolerance that the case names.
class Numbers {
 public:
  Numbers(const Golden& golden, double relative, double absolute) {
    const Json tolerance = golden.meta.value("tolerance", Json::object());
    relative_ = tolerance.value("rtol", relative), absolute_ = tolerance.value("atol", absolute);
  }
  void close(const std::string& what, double got, const Json& wanted) {
    comparison.close(what, torch::tensor(got, torch::kFloat64),
                     torch::tensor(wanted.get<double>(), torch::kFloat64), relative_, absolute_);
  }
  void close(const std::string& what, const std::vector<double>& got, const Json& wanted) {
    comparison.close(what, torch::tensor(got, torch::kFloat64),
                     torch::tensor(wanted.get<std::vector<double>>(), torch::kFloat64), relative_, absolute_);
  }
  void close(const std::string& what, const std::vector<double>& got, const torch::Tensor& wanted) {
    comparison.close(what, torch::tensor(got, torch::kFloat64).view(wanted.sizes()), wanted, relative_,
                     absolute_);
  }
  Comparison comparison;

 private:
  double relative_, absolute_;
};

std::vector<int64_t> integers(const torch::Tensor& tensor) {
  const torch::Tensor flat = tensor.to(torch::kInt64).contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

std::span<const float> floats(const torch::Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

// Samples of one model: logits, their probabilities, counts[true][predicted] and hits.
struct Judged {
  Judged(const torch::Tensor& logits, const std::vector<int64_t>& labels, int64_t classes)
      : scores(eval::probabilities(floats(logits), classes)), counts(static_cast<size_t>(classes * classes)) {
    const std::vector<int64_t> best = integers(logits.argmax(1));
    for (size_t i = 0; i < labels.size(); ++i) {
      ++counts[static_cast<size_t>(labels[i] * classes + best[i])];
      hits.push_back(best[i] == labels[i]);
    }
  }
  std::vector<double> scores;
  std::vector<int64_t> counts;
  std::vector<bool> hits;
};

void compare_curve(Numbers& numbers, const std::string& key, const std::vector<eval::CurvePoint>& curve,
                   const Json& wanted, const char* x, const char* y) {
  std::vector<double> xs, ys;
  for (const auto& point : curve) xs.push_back(point.x), ys.push_back(point.y);
  numbers.close(key + " " + x, xs, wanted.at(x));
  numbers.close(key + " " + y, ys, wanted.at(y));
}

// The mean over the classes is that of the bins which the other key names.
int64_t classwise_bins(const Golden& golden) {
  for (const auto& [key, ignored] : golden.config().at("results").items())
    if (key.starts_with("classwise_ece_"))
      if (const auto bins = parse_int(key.substr(14))) return *bins;
  return 15;
}

// Of a name that ends in "_class_K".
std::optional<int64_t> class_behind(const std::string& key, const std::string& prefix) {
  return key.starts_with(prefix) ? parse_int(key.substr(prefix.size())) : std::nullopt;
}

CaseResult check_corruption_error(const Golden& golden) {
  const Json& config = golden.config();
  Numbers numbers(golden, 1e-9, 0);
  std::vector<eval::CorruptionError> errors;
  eval::CorruptionBaseline baseline{"AlexNet", {}, config.at("alexnet_clean_error")};
  for (const auto& [corruption, error] : config.at("alexnet_mean_error").items()) {
    baseline.errors.push_back({corruption, error});
    for (const auto& own : eval::alexnet_on_imagenet_c().errors)
      if (own.corruption == corruption) numbers.close("our table's " + corruption, own.error, error);
  }
  const auto names = config.at("corruptions").get<std::vector<std::string>>();
  for (size_t c = 0; c < names.size(); ++c) {
    double sum = 0;
    const Json& severities = config.at("errors_severity1to5").at(c);
    for (const Json& error : severities) sum += error.get<double>();
    errors.push_back({names[c], sum / static_cast<double>(severities.size())});
  }
  const auto got = eval::mean_corruption_error(errors, config.at("clean_error"), baseline);
  const Json& results = config.at("results");
  for (const auto& one : got.corruption_errors)
    numbers.close(one.corruption, 100 * one.error, results.at("ce_percent").at(one.corruption));
  numbers.close("mCE", 100 * got.mce, results.at("mCE_percent"));
  numbers.close("relative mCE", 100 * got.relative_mce, results.at("relative_mCE_percent"));
  numbers.close("mean error", got.mean_error, results.at("unnormalised_mean_error"));
  return numbers.comparison.result();
}

CaseResult check_shape_bias(const Golden& golden) {
  const Json& config = golden.config();
  Numbers numbers(golden, 1e-12, 0);
  std::vector<eval::CueTrial> trials;
  for (const Json& row : config.at("rows")) trials.push_back({row.at(0), row.at(1), row.at(2)});
  const eval::ShapeBias got = eval::shape_bias(trials);
  const Json& results = config.at("results");
  const auto counts = [&](const std::string& what, const eval::CueCounts& own, const Json& wanted,
                          const char* total) {
    numbers.comparison.holds(what,
                             own.shape == wanted.at("shape") && own.texture == wanted.at("texture") &&
                                 own.total == wanted.at(total),
                             "other counts");
    if (!wanted.at("shape_bias").is_null()) numbers.close(what, own.shape_bias(), wanted.at("shape_bias"));
  };
  counts("all", got.all, results, "cue_conflict_trials");
  numbers.close("fraction decided", got.decided(), results.at("fraction_correct"));
  for (const auto& [category, wanted] : results.at("per_category").items())
    counts(category, got.by_category.at(category), wanted, "total");
  return numbers.comparison.result();
}

CaseResult check_group_means(const Golden& golden) {
  const Json& config = golden.config();
  Numbers numbers(golden, 1e-12, 0);
  std::vector<train::SetResult> sets;
  for (const auto& [group, names] : config.at("groups").items())
    for (const Json& name : names) {
      train::SetResult set{.set = name, .group = group, .failure = ""};
      set.row.mean = config.at("accuracy").at(name.get<std::string>());
      set.row.done = 1;
      sets.push_back(set);
    }
  double sum = 0, groups = 0;
  const Json& results = config.at("results");
  for (const train::GroupMean& mean : train::group_means(sets)) {
    if (mean.name == "all") {
      numbers.close("all sets", mean.mean, results.at(text("mean_", mean.sets)));
      continue;
    }
    numbers.close(mean.name, mean.mean, results.at(mean.name));
    sum += mean.mean, groups += 1;
  }
  numbers.close("mean of the groups", sum / groups, results.at("mean_of_group_means"));
  return numbers.comparison.result();
}

CaseResult check_discrimination(const Golden& golden) {
  Numbers numbers(golden, 1e-9, 1e-12);
  const torch::Tensor logits = golden.tensor("input.logits", torch::kFloat32);
  const int64_t classes = logits.size(1);
  const std::vector<int64_t> labels = integers(golden.tensor("input.target"));
  const Judged own(logits, labels, classes);
  const auto rest = [&](int64_t c) { return eval::one_against_rest(own.scores, labels, classes, c); };
  std::vector<double> areas, precisions;
  double macro = 0;
  for (int64_t c = 0; c < classes; ++c) {
    areas.push_back(eval::auroc(rest(c)));
    precisions.push_back(eval::average_precision(rest(c)));
    macro += areas.back() / static_cast<double>(classes);
  }
  const auto n = std::ssize(labels);
  const auto hits = std::count(own.hits.begin(), own.hits.end(), true);
  for (const auto& [key, wanted] : golden.config().at("results").items()) {
    if (key == "auroc") {
      numbers.close(key, areas, wanted);
    } else if (key == "auroc_macro") {
      numbers.close(key, macro, wanted);
    } else if (key == "average_precision") {
      numbers.close(key, precisions, wanted);
    } else if (key == "kappa" || key == "kappa_quadratic") {
      numbers.close(key, eval::kappa(own.counts, classes, key != "kappa"), wanted);
    } else if (key == "mcc") {
      numbers.close(key, eval::matthews(own.counts, classes), wanted);
    } else if (key == "balanced_accuracy") {
      numbers.close(key, eval::balanced_accuracy(own.counts, classes), wanted);
    } else if (key == "accuracy") {
      numbers.close(key, eval::accuracy(own.counts, classes), wanted);
    } else if (key == "wilson_95") {
      const eval::Interval interval = eval::wilson(hits, n);
      numbers.close(key, std::vector<double>{interval.low, interval.high}, wanted);
    } else if (key.starts_with("classwise_ece_")) {
      const auto bins = parse_int(key.substr(14));
      eval::ClasswiseCalibration calibration(classes, bins ? *bins : classwise_bins(golden));
      for (size_t i = 0; i < labels.size(); ++i)
        calibration.add(
            std::span(own.scores).subspan(i * static_cast<size_t>(classes), static_cast<size_t>(classes)),
            labels[i]);
      bins ? numbers.close(key, calibration.by_class(), wanted)
           : numbers.close(key, calibration.mean(), wanted);
    } else if (key == "paired") {
      const Judged other(golden.tensor("input.other_logits", torch::kFloat32), labels, classes);
      const eval::PairedCounts counts = eval::compare_hits(own.hits, other.hits);
      numbers.comparison.holds(key,
                               counts.only_second == wanted.at("only_second_right") &&
                                   counts.only_first == wanted.at("only_first_right"),
                               "other counts");
      const eval::McNemar test = eval::mcnemar(counts);
      numbers.close("McNemar's p", test.exact_p, wanted.at("mcnemar_exact_p"));
      numbers.close("McNemar's chi2", test.chi2, wanted.at("mcnemar_chi2_corrected"));
      numbers.close("p of chi2", test.chi2_p, wanted.at("mcnemar_chi2_p"));
    } else if (const auto c = class_behind(key, "precision_recall_class_")) {
      compare_curve(numbers, key, eval::precision_recall_curve(rest(*c)), wanted, "recall", "precision");
    } else if (const auto d = class_behind(key, "roc_class_")) {
      compare_curve(numbers, key, eval::roc_curve(rest(*d)), wanted, "fpr", "tpr");
    } else {
      numbers.comparison.holds(key, false, "not a metric of ours");
    }
  }
  return numbers.comparison.result();
}

CaseResult check_receptive_field(const Golden& golden) {
  Numbers numbers(golden, 1e-6, 1e-9);
  const torch::Tensor gradients = golden.tensor("input.gradient", torch::kFloat32).contiguous();
  const int64_t height = gradients.size(2), width = gradients.size(3);
  const std::vector<double> sums = eval::contribution(floats(gradients), height, width);
  numbers.close("contribution", sums, golden.tensor("output.contribution"));
  numbers.close("map", eval::contribution_map(sums), golden.tensor("output.map"));
  for (const auto& [share, wanted] : golden.config().at("areas").items()) {
    const auto area = eval::receptive_area(sums, height, width, parse_double(share).value());
    numbers.comparison.holds("box of " + share,
                             area.side == wanted.at("side") && area.box_height == wanted.at("box").at(0) &&
                                 area.box_width == wanted.at("box").at(1),
                             text("is ", area.box_height, "x", area.box_width));
    numbers.close("share of " + share, area.share, wanted.at("share"));
    numbers.close("area of " + share, area.area, wanted.at("area_ratio"));
  }
  return numbers.comparison.result();
}

const Registered registered({
    {"corruption_error", check_corruption_error, {"components/metric_imagenet_c_mce"}},
    {"shape_bias", check_shape_bias, {"components/metric_shape_bias"}},
    {"group_means", check_group_means, {"components/metric_vtab"}},
    {"discrimination", check_discrimination, {"components/metric_discrimination"}},
    {"receptive_field", check_receptive_field, {"components/metric_effective_receptive_field"}},
});

}  // namespace
}  // namespace tessera::parity::evaluation_cases
