#include "tasks/generate/generator_fid.h"

#include <algorithm>

#include "core/error.h"
#include "tasks/generate/feature_moments.h"

namespace tessera::tasks {
namespace {

constexpr int64_t kBatch = 64;

// Preprocesses images for the extractor, [images, 3, height, width].
torch::Tensor prepared(const data::Transform& transform, const std::vector<Image>& images) {
  std::vector<int64_t> shape = transform.fields().at(0).shape;
  const int64_t numbers = transform.fields().at(0).numel();
  shape.insert(shape.begin(), std::ssize(images));
  torch::Tensor out = torch::empty(shape);
  for (size_t i = 0; i < images.size(); ++i) {
    RandomStream unused(0, "test");  // a test transform draws nothing
    auto* row = out.data_ptr<float>() + static_cast<int64_t>(i) * numbers;
    const data::Slot slot{reinterpret_cast<std::byte*>(row), nullptr};
    transform.apply({.name = "a generated image", .picture = images[i]}, unused, {&slot, 1});
  }
  return out;
}

}  // namespace

GeneratorFid::GeneratorFid(OpenExtractor open, const GeneratorFidConfig& config,
                           std::shared_ptr<const data::Source> reference)
    : open_(std::move(open)),
      config_(config),
      reference_(std::move(reference)),
      extractor_(open_(config.classifier, {})) {}

eval::Gaussian GeneratorFid::gaussian_of(int64_t count, const Draw& images,
                                         const std::function<bool()>& alive) {
  const auto transform = extractor_->transform();
  FeatureMoments moments(extractor_->width());
  for (int64_t first = 0; first < count; first += kBatch) {
    if (alive && !alive()) throw Error(ErrorKind::interrupted, "interrupted while FID was measured");
    const std::vector<Image> batch = images(first, std::min(kBatch, count - first));
    moments.add(extractor_->extract(prepared(*transform, batch)).pooled);
  }
  return moments.gaussian();
}

double GeneratorFid::measure(const Draw& draw, torch::Device device, const std::function<bool()>& alive) {
  if (device != device_) extractor_ = open_(config_.classifier, {.device = device});
  device_ = device;
  if (real_.samples == 0) {
    const int64_t count = std::min(config_.reference, reference_->size());
    real_ = gaussian_of(
        count,
        [&](int64_t first, int64_t images) {
          std::vector<Image> batch;
          for (int64_t i = first; i < first + images; ++i)
            batch.push_back(data::decode_sample(reference_->read(i * reference_->size() / count)));
          return batch;
        },
        alive);
  }
  return eval::frechet_distance(real_, gaussian_of(config_.samples, draw, alive));
}

}  // namespace tessera::tasks
