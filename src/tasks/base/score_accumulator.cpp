#include "tasks/base/score_accumulator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/error.h"
#include "core/threads.h"
#include "eval/ranking.h"
#include "tasks/base/sample_rows.h"

namespace tessera::tasks {
namespace {

constexpr size_t kWorthAThread = 4096;      // scores
constexpr size_t kBlock = size_t{1} << 20;  // number of scores, over all processes, in memory at a time

static_assert(std::is_trivially_copyable_v<EvaluatedSample>);

std::vector<std::string> everyone(const EvaluateOptions& options, std::string bytes) {
  if (options.gather) return options.gather(bytes);
  return {std::move(bytes)};
}

eval::SampleScore score_labels(std::span<const float> scores, std::span<const float> targets) {
  eval::SampleScore score;
  score.label = -1;
  score.best = eval::best_class(scores);
  score.confidence = 1 / (1 + std::exp(-static_cast<double>(scores[static_cast<size_t>(score.best)])));
  score.right = true;
  for (size_t c = 0; c < scores.size(); ++c) score.right &= (scores[c] > 0) == (targets[c] > 0.5f);
  return score;
}

ScoredLabel scored_label(const eval::LabelScores& of, std::span<const float> scores,
                         std::span<const float> targets) {
  ScoredLabel label{.samples = of.wanted};
  if (std::ranges::any_of(scores, [](float s) { return std::isnan(s); })) return label;
  label.average_precision = of.average_precision;
  label.best = eval::best_threshold(scores, targets);
  label.best.threshold = 1 / (1 + std::exp(-label.best.threshold));
  return label;
}

}  // namespace

ScoreAccumulator::ScoreAccumulator(int64_t classes, bool multi_label, int64_t samples, bool keep_scores)
    : classes_(static_cast<size_t>(classes)),
      samples_(samples),
      multi_label_(multi_label),
      keep_scores_(keep_scores && !multi_label) {}

void ScoreAccumulator::add(const data::Batch& batch, const torch::Tensor& scores) {
  const float* data = scores.const_data_ptr<float>();
  const size_t first = rows_.size();
  if (rows_.empty()) {  // reserve once: a growing vector would take up to twice the memory
    const auto rows = static_cast<size_t>((samples_ + batch.whole - 1) / batch.whole * batch.size);
    rows_.reserve(rows);
    if (multi_label_ || keep_scores_) scores_.reserve(rows * classes_);
    if (multi_label_) targets_.reserve(rows * classes_);
  }
  const auto labels = multi_label_ ? std::span<int64_t>() : batch.values<int64_t>("label");
  const auto targets = multi_label_ ? batch.values<float>("targets") : std::span<float>();
  std::vector<size_t> kept;  // indices in the batch
  for (int64_t i = 0; i < batch.size; ++i) {
    const auto at = static_cast<size_t>(i);
    if (batch.indices[at] != batch.first + i) continue;
    kept.push_back(at);
    rows_.push_back({batch.indices[at], {}});
    if (multi_label_ || keep_scores_)
      scores_.insert(scores_.end(), data + at * classes_, data + (at + 1) * classes_);
    if (!multi_label_) {
      check(labels[at] >= 0 && labels[at] < static_cast<int64_t>(classes_), "sample ", batch.indices[at],
            " has label ", labels[at], ", must be 0 to ", classes_ - 1);
      continue;
    }
    for (size_t c = 0; c < classes_; ++c) targets_.push_back(targets[at * classes_ + c] > 0.5f);
  }
  const auto grain = static_cast<int64_t>(kWorthAThread / classes_) + 1;
  parallel_for(static_cast<int64_t>(kept.size()), grain, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const std::span row(data + kept[i] * classes_, classes_);
      rows_[first + i].score = multi_label_ ? score_labels(row, targets.subspan(kept[i] * classes_, classes_))
                                            : eval::score_sample(row, labels[kept[i]]);
    }
  });
}

void ScoreAccumulator::finish(const EvaluateOptions& options, ScoredSamples& out) {
  out.classes = static_cast<int64_t>(classes_);
  check(!keep_scores_ || !options.gather, "scores are kept of one process alone");
  gather_rows(options, out);
  if (keep_scores_) out.scores = std::move(scores_);  // one process adds its samples in source order
  check(out.samples > 0, "there is no image to evaluate on");
  if (multi_label_)
    measure_labels(options, out);
  else
    measure_classes(out);
}

void ScoreAccumulator::gather_rows(const EvaluateOptions& options, ScoredSamples& out) {
  const std::string mine(reinterpret_cast<const char*>(rows_.data()), rows_.size() * sizeof(EvaluatedSample));
  out.rows.clear();
  for (const std::string& part : everyone(options, mine)) append_bytes(out.rows, part);
  std::sort(out.rows.begin(), out.rows.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
  out.samples = static_cast<int64_t>(out.rows.size());
}

void ScoreAccumulator::measure_classes(ScoredSamples& out) const {
  eval::ClassificationMeter meter(out.classes);
  for (const EvaluatedSample& row : out.rows) meter.add(row.score);
  out.metrics = {{{"top1", Unit::share}, meter.top(1)}};
  if (classes_ > 5) out.metrics.push_back({{"top5", Unit::share}, meter.top(5)});
  out.metrics.push_back({{"loss", Unit::number, false}, meter.nll()});
}

// Scores of `width` classes, class by class, followed by their targets.
std::string ScoreAccumulator::block_of(size_t first, size_t width) const {
  std::vector<float> block(2 * width * rows_.size());
  for (size_t c = 0; c < width; ++c)
    for (size_t i = 0; i < rows_.size(); ++i) {
      const size_t from = i * classes_ + first + c, to = c * rows_.size() + i;
      block[to] = scores_[from], block[width * rows_.size() + to] = targets_[from] ? 1 : 0;
    }
  return {reinterpret_cast<const char*>(block.data()), block.size() * sizeof(float)};
}

// Gathers a few classes at a time from all processes.
void ScoreAccumulator::measure_labels(const EvaluateOptions& options, ScoredSamples& out) const {
  const size_t at_once = std::clamp<size_t>(kBlock / out.rows.size(), 1, classes_);
  std::vector<eval::LabelScores> by_class;
  const bool table = options.wants("classes") || options.wants("confusion");
  bool numbers = true;  // with a NaN score the average precision is undefined
  for (size_t first = 0; first < classes_; first += at_once) {
    const size_t width = std::min(at_once, classes_ - first);
    const std::vector<std::string> parts = everyone(options, block_of(first, width));
    for (size_t c = 0; c < width; ++c) {
      std::vector<float> scores, targets;
      for (const std::string_view part : parts) {
        const size_t column = part.size() / (2 * width);
        append_bytes(scores, part.substr(c * column, column));
        append_bytes(targets, part.substr((width + c) * column, column));
      }
      numbers = numbers && std::none_of(scores.begin(), scores.end(), [](float s) { return std::isnan(s); });
      by_class.push_back(eval::label_scores(scores, targets));
      if (table) out.labels.push_back(scored_label(by_class.back(), scores, targets));
    }
  }
  const auto right = std::count_if(out.rows.begin(), out.rows.end(),
                                   [](const EvaluatedSample& row) { return row.score.right; });
  const auto all = eval::multilabel_scores(by_class, right, out.samples);
  const auto any = [&](auto counted) { return std::ranges::any_of(by_class, counted); };
  const bool positives = any([](const eval::LabelScores& one) { return one.wanted > 0; });
  const bool named = positives || any([](const eval::LabelScores& one) { return one.said > 0; });
  out.metrics = {
      {{"map", Unit::share},
       numbers && positives ? all.map : std::numeric_limits<double>::quiet_NaN(),
       positives || !numbers},
      named ? Metric{{"micro_f1", Unit::share}, all.micro_f1} : unmeasured({"micro_f1", Unit::share}),
      positives ? Metric{{"macro_f1", Unit::share}, all.macro_f1} : unmeasured({"macro_f1", Unit::share}),
      {{"exact_match", Unit::share}, all.exact_match}};
}

}  // namespace tessera::tasks
