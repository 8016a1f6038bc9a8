#include "data/transforms/segmentation_crop.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.h"

namespace tessera::data {
namespace {

constexpr int kMostTries = 10;  // attempted crops

// True if a crop of the resized mask contains several classes, each with a share below `most`.
bool is_mixed(const Image& mask, const Box& window, uint8_t ignored, double most) {
  std::array<int64_t, 256> counts{};
  for (int y = 0; y < window.height; ++y) {
    const uint8_t* row = mask.row(window.top + y) + window.left;
    for (int x = 0; x < window.width; ++x) ++counts[row[x]];
  }
  counts[ignored] = 0;
  int64_t classes = 0, sum = 0, largest = 0;
  for (const int64_t count : counts) {
    classes += count > 0;
    sum += count;
    largest = std::max(largest, count);
  }
  return classes > 1 && static_cast<double>(largest) / static_cast<double>(sum) < most;
}

}  // namespace

Extent fit_into(Extent picture, const std::vector<int64_t>& scale) {
  check(scale.size() == 2 && scale[0] > 0 && scale[1] > 0 && picture.width > 0 && picture.height > 0,
        "an image of ", picture.width, "x", picture.height, " cannot be resized to the scale given");
  const auto [width, height] =
      std::pair(static_cast<double>(picture.width), static_cast<double>(picture.height));
  const double factor = std::min(static_cast<double>(std::max(scale[0], scale[1])) / std::max(width, height),
                                 static_cast<double>(std::min(scale[0], scale[1])) / std::min(width, height));
  const auto side = [&](double length) { return std::max(1, static_cast<int>(length * factor + 0.5)); };
  check(std::max(width, height) * factor < kLongestSide, "an image of ", picture.width, "x", picture.height,
        " would become longer than ", kLongestSide, " pixels");
  return {side(height), side(width)};
}

CropPlan plan_crop(const Image& mask, const SegmentationCrop& config, Extent crop, uint8_t ignored,
                   Draws& draws) {
  CropPlan plan;
  const double ratio = draws.uniform(config.ratio.at(0), config.ratio.at(1));
  std::vector<int64_t> scale;
  for (const int64_t side : config.scale)
    scale.push_back(std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(side) * ratio)));
  plan.resized = fit_into({mask.height, mask.width}, scale);
  const int below = std::max(plan.resized.height - crop.height, 0),
            right = std::max(plan.resized.width - crop.width, 0);
  const auto draw = [&] {
    plan.window.top = static_cast<int>(draws.integer(0, below));
    plan.window.left = static_cast<int>(draws.integer(0, right));
  };
  plan.window.height = std::min(plan.resized.height, crop.height);
  plan.window.width = std::min(plan.resized.width, crop.width);
  draw();
  if (config.most_of_one_class < 1) {
    const Image resized = resize(mask, plan.resized.width, plan.resized.height, Interpolation::nearest);
    for (int tries = 0; tries < kMostTries; ++tries) {
      if (is_mixed(resized, plan.window, ignored, config.most_of_one_class)) break;
      draw();
    }
  }
  plan.mirrored = draws.uniform(0, 1) < config.flip;
  return plan;
}

Image crop_mask(const Image& mask, const CropPlan& plan) {
  const Image resized = resize(mask, plan.resized.width, plan.resized.height, Interpolation::nearest);
  const Image part = cut(resized, plan.window);
  return plan.mirrored ? orient(part, 2) : part;
}

Image crop_picture(const Image& picture, const CropPlan& plan, Interpolation interpolation) {
  const FloatBox whole{0, 0, static_cast<double>(picture.width), static_cast<double>(picture.height)};
  return resize(picture,
                {whole, plan.resized.width, plan.resized.height, interpolation, plan.window, plan.mirrored});
}

Image padded_to(const Image& image, Extent size, uint8_t fill) {
  check(image.width <= size.width && image.height <= size.height, "an image of ", image.width, "x",
        image.height, " cannot be padded to ", size.width, "x", size.height);
  Image out(size.width, size.height, image.channels);
  std::fill(out.pixels.begin(), out.pixels.end(), fill);
  for (int y = 0; y < image.height; ++y)
    std::memcpy(out.row(y), image.row(y),
                static_cast<size_t>(image.width) * static_cast<size_t>(image.channels));
  return out;
}

}  // namespace tessera::data
