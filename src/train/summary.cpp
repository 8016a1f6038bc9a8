#include "train/summary.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "core/random.h"
#include "data/resize.h"
#include "io/image.h"
#include "tasks/classify.h"

namespace tessera::train {
namespace {

constexpr int kLongestSide = 160;
constexpr size_t kMostClasses = 5;

Image thumbnail(const data::RawSample& sample) {
  Image picture = std::holds_alternative<Image>(sample.picture)
                      ? std::get<Image>(sample.picture)
                      : decode_image(std::get<std::vector<std::byte>>(sample.picture), sample.name);
  const int longest = std::max(picture.width, picture.height);
  if (longest <= kLongestSide) return picture;
  const auto scaled = [&](int side) { return std::max(1, side * kLongestSide / longest); };
  return data::resize(picture, scaled(picture.width), scaled(picture.height), data::Interpolation::bicubic);
}

std::vector<std::pair<int64_t, double>> best_classes(const torch::Tensor& shares) {
  const auto best = shares.topk(std::min<int64_t>(static_cast<int64_t>(kMostClasses), shares.size(0)));
  std::vector<std::pair<int64_t, double>> top;
  for (int64_t i = 0; i < std::get<0>(best).size(0); ++i)
    top.emplace_back(std::get<1>(best)[i].item<int64_t>(), std::get<0>(best)[i].item<double>());
  return top;
}

}  // namespace

std::vector<std::vector<int64_t>> confusion_of(const tasks::Evaluation& evaluation) {
  constexpr int64_t kMostTabled = 4096;
  if (!evaluation.targets.empty() || evaluation.classes > kMostTabled) return {};
  const auto classes = static_cast<size_t>(evaluation.classes);
  std::vector<std::vector<int64_t>> counts(classes, std::vector<int64_t>(classes));
  for (size_t i = 0; i < evaluation.labels.size(); ++i) {
    const auto row = evaluation.scores.begin() + static_cast<std::ptrdiff_t>(i * classes);
    const auto best = std::max_element(row, row + evaluation.classes) - row;
    ++counts[static_cast<size_t>(evaluation.labels[i])][static_cast<size_t>(best)];
  }
  return counts;
}

std::vector<PredictedPicture> predicted_pictures(const Setup& setup, const tasks::Evaluation& evaluation,
                                                 int64_t count) {
  std::vector<PredictedPicture> pictures;
  RandomStream random(static_cast<uint64_t>(setup.recipe.train.seed), "report");
  for (const int64_t row : random.permutation(evaluation.samples)) {
    if (static_cast<int64_t>(pictures.size()) == count) break;
    const int64_t index = evaluation.indices[static_cast<size_t>(row)];
    PredictedPicture shown;
    try {
      const data::RawSample sample = setup.validation_source->read(index);
      shown.picture = thumbnail(sample);
      shown.name = sample.name;
    } catch (const Error&) {
      continue;
    }
    shown.labels = setup.validation_source->labels(index);
    const torch::Tensor scores =
        torch::from_blob(const_cast<float*>(evaluation.scores.data()) + row * evaluation.classes,
                         {evaluation.classes}, torch::TensorOptions(torch::kFloat32));
    shown.top = best_classes(tasks::probabilities(scores, setup.info.multi_label));
    pictures.push_back(std::move(shown));
  }
  return pictures;
}

}  // namespace tessera::train
