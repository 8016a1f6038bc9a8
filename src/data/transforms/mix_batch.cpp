#include "data/transforms/mix_batch.h"

#include <algorithm>

namespace tessera::data {
namespace {

// Returns samples 0, 2, 4 … 5, 3, 1. Mirrors in this order are neighbours in the batch, so that a process
// with both of a pair mixes them alone.
std::vector<size_t> mix_order(int64_t count) {
  std::vector<size_t> order;
  for (int64_t i = 0; i < count; i += 2) order.push_back(static_cast<size_t>(i));
  for (int64_t i = count / 2 * 2 - 1; i > 0; i -= 2) order.push_back(static_cast<size_t>(i));
  return order;
}

// Selects this process' draws from those for the batch of all processes (in mix order).
std::vector<MixDraw> own_draws(MixMode mode, const std::vector<MixDraw>& draws, const Batch& batch) {
  if (mode == MixMode::batch) return draws;
  std::vector<MixDraw> own;
  const int64_t count = mode == MixMode::pair ? (batch.size + 1) / 2 : batch.size;
  const auto order = mix_order(batch.size);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t place = batch.first + static_cast<int64_t>(order[static_cast<size_t>(i)]);
    own.push_back(draws.at(static_cast<size_t>(place % 2 == 0 ? place / 2 : batch.whole - 1 - place / 2)));
  }
  return own;
}

// Returns one-hot or multi-label targets, each mixed with its partner's, in mix order.
std::vector<float> mixed_targets(const Batch& batch, int64_t classes, const std::vector<size_t>& order,
                                 const std::vector<double>& lambda) {
  const Column* several = batch.find("targets");
  if (!several) {
    std::vector<int64_t> labels;
    for (const size_t sample : order) labels.push_back(batch.values<int64_t>("label")[sample]);
    return mix_targets(labels, classes, /*smoothing=*/0, lambda);
  }
  const auto targets = several->values<float>();
  const auto width = static_cast<size_t>(classes);
  std::vector<float> rows;
  for (size_t i = 0; i < order.size(); ++i)
    for (size_t c = 0; c < width; ++c)
      rows.push_back(static_cast<float>(lambda[i] * targets[order[i] * width + c] +
                                        (1 - lambda[i]) * targets[order[order.size() - 1 - i] * width + c]));
  return rows;
}

}  // namespace

void mix_batch(const MixupConfig& config, int64_t classes, RandomStream& random, Batch& batch) {
  const Field image = batch.at("image").field;
  const int64_t channels = image.shape.at(0), height = image.shape.at(1), width = image.shape.at(2);
  const auto draws = draw_mix(config, batch.whole, height, width, random);
  const auto order = mix_order(batch.size);
  std::vector<float*> images;
  for (const size_t sample : order)
    images.push_back(batch.values<float>("image").data() + sample * static_cast<size_t>(image.numel()));
  const auto lambda =
      mix_pictures(config.mode, own_draws(config.mode, draws, batch), images, channels, height, width);
  const std::vector<float> mixed = mixed_targets(batch, classes, order, lambda);
  const auto targets = batch.add({"targets", DType::f32, {classes}}).values<float>();
  for (size_t i = 0; i < order.size(); ++i)
    std::copy_n(mixed.begin() + static_cast<std::ptrdiff_t>(i) * classes, classes,
                targets.begin() + static_cast<std::ptrdiff_t>(order[i]) * classes);
}

}  // namespace tessera::data
