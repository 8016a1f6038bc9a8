#include "tasks/base/sample_rows.h"

#include <algorithm>

#include "core/text.h"
#include "tasks/base/representation.h"

namespace tessera::tasks {
namespace {

constexpr int64_t kNeighbours = 20;
constexpr double kFewDirections = 2, kSmallDeviation = 0.01;

std::vector<int64_t> labels_of(const data::ClassLabels& labels, const std::vector<int64_t>& indices,
                               int64_t count) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(labels.label(indices[static_cast<size_t>(i)]));
  return out;
}

}  // namespace

void FeatureHealth::add(const data::Batch& batch, const torch::Tensor& features) {
  if (wants(batch)) rows_.add(batch, features);
}

void FeatureHealth::finish(const EvaluateOptions& options, const data::Source* source, Findings& findings) {
  rows_.collect(options);
  const int64_t count = std::min(rows_.size(), kSamples);
  if (count < 2) return;
  const torch::Tensor features = rows_.rows().slice(0, 0, count);
  const data::ClassLabels* labels = source ? source->class_labels() : nullptr;
  if (labels && !labels->multi_label()) {
    const std::vector<int64_t> classes = labels_of(*labels, rows_.indices(), count);
    const double share =
        neighbour_accuracy(features, torch::tensor(classes), std::min(kNeighbours, count - 1));
    findings.metrics.push_back({{"knn", Unit::share}, share});
  }
  const double rank = rankme(features), deviation = feature_deviation(features);
  findings.metrics.push_back({{"rankme"}, rank});
  findings.metrics.push_back({{"feature_std"}, deviation});
  if ((rank < kFewDirections || deviation < kSmallDeviation) && options.wants("pictures"))
    findings.blocks.emplace_back(report::TextBlock{
        "Collapse", text("The features of ", count, " validation images are almost equal: RankMe ",
                         fixed(rank, 2), " of ", features.size(1), ", deviation ", fixed(deviation, 4),
                         ". They cannot distinguish images.")});
}

}  // namespace tessera::tasks
