#include "train/summary.h"

#include <algorithm>

#include "core/error.h"
#include "core/random.h"
#include "data/resize.h"
#include "io/image.h"

namespace tessera::train {
namespace {

constexpr int kLongestSide = 160;

Image thumbnail(const data::RawSample& sample) {
  Image picture = std::holds_alternative<Image>(sample.picture)
                      ? std::get<Image>(sample.picture)
                      : decode_image(std::get<std::vector<std::byte>>(sample.picture), sample.name);
  const int longest = std::max(picture.width, picture.height);
  if (longest <= kLongestSide) return picture;
  const auto scaled = [&](int side) { return std::max(1, side * kLongestSide / longest); };
  return data::resize(picture, scaled(picture.width), scaled(picture.height), data::Interpolation::bicubic);
}

}  // namespace

std::vector<std::vector<int64_t>> confusion_of(const tasks::Evaluation& evaluation) {
  constexpr int64_t kMostTabled = 4096;
  if (evaluation.rows.empty() || evaluation.rows[0].verdict.label < 0 || evaluation.classes > kMostTabled)
    return {};
  const auto classes = static_cast<size_t>(evaluation.classes);
  std::vector<std::vector<int64_t>> counts(classes, std::vector<int64_t>(classes));
  for (const auto& [index, verdict] : evaluation.rows)
    ++counts[static_cast<size_t>(verdict.label)][static_cast<size_t>(verdict.best)];
  return counts;
}

std::vector<PredictedPicture> predicted_pictures(const Setup& setup, const tasks::Evaluation& evaluation,
                                                 int64_t count) {
  std::vector<PredictedPicture> pictures;
  RandomStream random(static_cast<uint64_t>(setup.recipe.train.seed), "report");
  for (const int64_t row : random.permutation(evaluation.samples)) {
    if (static_cast<int64_t>(pictures.size()) == count) break;
    const auto& [index, verdict] = evaluation.rows[static_cast<size_t>(row)];
    PredictedPicture shown;
    try {
      const data::RawSample sample = setup.validation_source->read(index);
      shown.picture = thumbnail(sample);
      shown.name = sample.name;
    } catch (const Error&) {
      continue;
    }
    shown.labels = setup.validation_source->labels(index);
    shown.prediction = verdict.best;
    shown.probability = verdict.confidence;
    pictures.push_back(std::move(shown));
  }
  return pictures;
}

}  // namespace tessera::train
