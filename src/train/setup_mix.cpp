// Mixup and CutMix of a training batch, the same however many processes share it.
#include <algorithm>

#include "core/random.h"
#include "data/mixup.h"
#include "train/setup.h"

namespace tessera::train {
namespace {

// Samples 0, 2, 4 … 5, 3, 1: mirrors in this order are neighbours in the batch, so that a process which holds
// both of a pair mixes them without the others.
std::vector<size_t> mix_order(int64_t count) {
  std::vector<size_t> order;
  for (int64_t i = 0; i < count; i += 2) order.push_back(static_cast<size_t>(i));
  for (int64_t i = count / 2 * 2 - 1; i > 0; i -= 2) order.push_back(static_cast<size_t>(i));
  return order;
}

// Of the draws for the batch of all processes (in mix order) those for this one's samples.
std::vector<data::MixDraw> own_draws(const std::string& mode, const std::vector<data::MixDraw>& draws,
                                     const data::Batch& batch) {
  if (mode == "batch") return draws;
  std::vector<data::MixDraw> own;
  const int64_t count = mode == "pair" ? (batch.size + 1) / 2 : batch.size;
  const auto order = mix_order(batch.size);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t place = batch.first + static_cast<int64_t>(order[static_cast<size_t>(i)]);
    own.push_back(draws.at(static_cast<size_t>(place % 2 == 0 ? place / 2 : batch.whole - 1 - place / 2)));
  }
  return own;
}

// One-hot targets, or those of several classes, each picture's mixed with its partner's.
std::vector<float> mixed_targets(const data::Batch& batch, int64_t classes, const std::vector<size_t>& order,
                                 const std::vector<double>& lambda) {
  const auto width = static_cast<size_t>(classes);
  std::vector<float> rows, out(order.size() * width);  // rows: in mix order
  if (batch.targets.empty()) {
    std::vector<int64_t> labels;
    for (const size_t sample : order) labels.push_back(batch.labels[sample]);
    rows = data::mix_targets(labels, classes, /*smoothing=*/0, lambda);
  } else {
    for (size_t i = 0; i < order.size(); ++i)
      for (size_t c = 0; c < width; ++c)
        rows.push_back(
            static_cast<float>(lambda[i] * batch.targets[order[i] * width + c] +
                               (1 - lambda[i]) * batch.targets[order[order.size() - 1 - i] * width + c]));
  }
  for (size_t i = 0; i < order.size(); ++i)
    std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(i * width), width,
                out.begin() + static_cast<std::ptrdiff_t>(order[i] * width));
  return out;
}

}  // namespace

void Setup::mix(data::Batch& batch, int64_t step) const {
  const data::MixupConfig& config = recipe.mixup;
  if (!config.enabled()) return;
  RandomStream random(seed(), "mixup", static_cast<uint64_t>(step));
  const auto draws = data::draw_mix(config, batch.whole, batch.height, batch.width, random);
  const auto order = mix_order(batch.size);
  std::vector<float*> pictures;
  for (const size_t sample : order)
    pictures.push_back(batch.images.data() +
                       sample * static_cast<size_t>(batch.channels * batch.height * batch.width));
  const auto lambda = data::mix_pictures(config.mode, own_draws(config.mode, draws, batch), pictures,
                                         batch.channels, batch.height, batch.width);
  batch.targets = mixed_targets(batch, plan.classes, order, lambda);
}

}  // namespace tessera::train
