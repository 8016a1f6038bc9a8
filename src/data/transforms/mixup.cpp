#include "data/transforms/mixup.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace tessera::data {
namespace {

struct PictureShape {
  int64_t channels, height, width;
  int64_t numel() const { return channels * height * width; }
};

// Mixes `other` into `into`; they must differ.
void mix_one(const MixDraw& draw, float* into, const float* other, const PictureShape& shape) {
  if (draw.lambda == 1 && !draw.cutmix) return;
  if (!draw.cutmix) {
    const auto here = static_cast<float>(draw.lambda), there = static_cast<float>(1 - draw.lambda);
    for (int64_t i = 0; i < shape.numel(); ++i) into[i] = into[i] * here + other[i] * there;
    return;
  }
  for (int64_t c = 0; c < shape.channels; ++c)
    for (int64_t y = draw.box.top; y < draw.box.bottom; ++y) {
      const int64_t row = (c * shape.height + y) * shape.width;
      std::copy(other + row + draw.box.left, other + row + draw.box.right, into + row + draw.box.left);
    }
}

const MixDraw& draw_of(MixMode mode, const std::vector<MixDraw>& draws, int64_t picture, int64_t batch) {
  if (mode == MixMode::batch) return draws.at(0);
  if (mode == MixMode::elem) return draws.at(static_cast<size_t>(picture));
  return draws.at(static_cast<size_t>(std::min(picture, batch - 1 - picture)));
}

}  // namespace

MixBox cutmix_box(int64_t height, int64_t width, double& lambda, int64_t centre_y, int64_t centre_x) {
  const double share = std::sqrt(1 - lambda);
  const auto cut_height = static_cast<int64_t>(static_cast<double>(height) * share);
  const auto cut_width = static_cast<int64_t>(static_cast<double>(width) * share);
  const MixBox box{.top = std::clamp<int64_t>(centre_y - cut_height / 2, 0, height),
                   .bottom = std::clamp<int64_t>(centre_y + (cut_height + 1) / 2, 0, height),
                   .left = std::clamp<int64_t>(centre_x - cut_width / 2, 0, width),
                   .right = std::clamp<int64_t>(centre_x + (cut_width + 1) / 2, 0, width)};
  const int64_t area = (box.bottom - box.top) * (box.right - box.left);
  lambda = 1 - static_cast<double>(area) / static_cast<double>(height * width);
  return box;
}

std::vector<MixDraw> draw_mix(const MixupConfig& config, int64_t batch, int64_t height, int64_t width,
                              RandomStream& random) {
  size_t count = 1;
  if (config.mode == MixMode::pair) count = static_cast<size_t>((batch + 1) / 2);
  if (config.mode == MixMode::elem) count = static_cast<size_t>(batch);
  std::vector<MixDraw> draws(count);
  for (MixDraw& draw : draws) {
    if (!random.chance(config.prob)) continue;
    draw.cutmix = config.cutmix > 0 && (config.mixup <= 0 || random.chance(config.switch_prob));
    const double alpha = draw.cutmix ? config.cutmix : config.mixup;
    draw.lambda = random.beta(alpha, alpha);
    if (!draw.cutmix) continue;
    const int64_t y = random.integer(0, height - 1), x = random.integer(0, width - 1);
    draw.box = cutmix_box(height, width, draw.lambda, y, x);
  }
  return draws;
}

std::vector<double> mix_pictures(MixMode mode, const std::vector<MixDraw>& draws,
                                 const std::vector<float*>& pictures, int64_t channels, int64_t height,
                                 int64_t width) {
  const PictureShape shape{channels, height, width};
  const auto batch = static_cast<int64_t>(pictures.size());
  std::vector<double> lambda(static_cast<size_t>(batch));
  std::vector<float> original(static_cast<size_t>(shape.numel()));
  for (int64_t i = 0; i < batch; ++i) lambda[static_cast<size_t>(i)] = draw_of(mode, draws, i, batch).lambda;
  // A copy of the first of a pair is kept for the second.
  for (int64_t i = 0; i <= batch - 1 - i; ++i) {
    float* first = pictures[static_cast<size_t>(i)];
    float* second = pictures[static_cast<size_t>(batch - 1 - i)];
    if (first == second) continue;  // the middle of an odd batch is its own partner
    std::copy(first, first + shape.numel(), original.data());
    mix_one(draw_of(mode, draws, i, batch), first, second, shape);
    mix_one(draw_of(mode, draws, batch - 1 - i, batch), second, original.data(), shape);
  }
  return lambda;
}

std::vector<float> mix_targets(const std::vector<int64_t>& labels, int64_t classes, double smoothing,
                               const std::vector<double>& lambda) {
  const auto batch = labels.size();
  check(lambda.size() == batch, "mix_targets: ", lambda.size(), " lambdas for ", batch, " labels");
  const double off = smoothing / static_cast<double>(classes), on = 1 - smoothing + off;
  std::vector<float> targets(batch * static_cast<size_t>(classes));
  for (size_t i = 0; i < batch; ++i)
    for (int64_t c = 0; c < classes; ++c) {
      const double here = labels[i] == c ? on : off, there = labels[batch - 1 - i] == c ? on : off;
      targets[i * static_cast<size_t>(classes) + static_cast<size_t>(c)] =
          static_cast<float>(here * lambda[i] + there * (1 - lambda[i]));
    }
  return targets;
}

namespace {

// Returns samples 0, 2, 4 … 5, 3, 1. Mirrored positions in this order are neighbours in the batch, so a
// process that has both of a pair can mix them by itself.
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
