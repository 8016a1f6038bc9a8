#include "tasks/generate/generative_meter.h"

#include "core/error.h"

namespace tessera::tasks {
namespace {

std::span<const float> values_of(const torch::Tensor& rows) {
  return {rows.const_data_ptr<float>(), static_cast<size_t>(rows.numel())};
}

}  // namespace

GenerativeMeter::GenerativeMeter(const FeatureExtractor& extractor, const MeterOptions& options)
    : origin_(extractor.origin()), options_(options), pooled_(extractor.width()) {
  if (options.spatial && extractor.spatial_width() > 0) spatial_.emplace(extractor.spatial_width());
  if (options.splits > 0 && extractor.classes() > 0)
    score_.emplace(extractor.classes(), options.samples, options.splits, options.shuffle_seed);
  if (options.keep > 0) file_ = std::make_unique<TemporaryFile>("keeping features");
}

void GenerativeMeter::add(const ImageFeatures& features) {
  const int64_t first = pooled_.samples(), count = features.pooled.size(0), width = pooled_.width();
  check(first + count <= options_.samples, "more than ", options_.samples, " samples");
  pooled_.add(features.pooled);
  if (spatial_) spatial_->add(features.spatial);
  if (score_)
    score_->add({features.probabilities.const_data_ptr<double>(),
                 static_cast<size_t>(features.probabilities.numel())});
  if (!file_) return;
  const torch::Tensor here = features.pooled.cpu();
  const std::span<const float> rows = values_of(here);
  // Sample i is the k-th kept one if i = floor(k N / keep).
  const int64_t keep = std::min(options_.keep, options_.samples);
  for (int64_t i = first; i < first + count; ++i) {
    if (kept_count_ >= keep || i != kept_count_ * options_.samples / keep) continue;
    file_->write(
        std::as_bytes(rows.subspan(static_cast<size_t>((i - first) * width), static_cast<size_t>(width))));
    ++kept_count_;
  }
}

eval::FeatureStatistics GenerativeMeter::statistics() const {
  eval::FeatureStatistics out{.origin = origin_, .pooled = pooled_.gaussian(), .spatial = {}};
  if (spatial_) out.spatial = spatial_->gaussian();
  return out;
}

std::optional<eval::InceptionScore> GenerativeMeter::score() const {
  if (!score_) return std::nullopt;
  return score_->score();
}

std::span<const float> GenerativeMeter::kept() {
  if (file_) {
    map_ = file_->map();
    file_.reset();
  }
  const std::span<const std::byte> bytes = map_.bytes();
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

}  // namespace tessera::tasks
