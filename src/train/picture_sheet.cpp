#include "train/trainer_run.h"

#include <algorithm>
#include <cmath>

namespace tessera::train {

Image picture_sheet(const data::Batch& batch, const data::Preprocess& preprocess, int64_t count) {
  constexpr int64_t kInARow = 8;
  const data::Column& images = batch.at("image");
  const int64_t channels = images.field.shape.at(0), height = images.field.shape.at(1),
                width = images.field.shape.at(2);
  const int64_t shown = std::min(count, batch.size), columns = std::min(shown, kInARow),
                rows = (shown + kInARow - 1) / kInARow, plane = height * width;
  Image sheet(static_cast<int>(columns * width), static_cast<int>(rows * height));
  for (int64_t i = 0; i < shown; ++i)
    for (int64_t c = 0; c < 3; ++c) {
      const int64_t shown_channel = std::min(c, channels - 1);
      const double mean = preprocess.mean[static_cast<size_t>(shown_channel)],
                   std = preprocess.std[static_cast<size_t>(shown_channel)];
      const float* from = images.values<float>().data() + (channels * i + shown_channel) * plane;
      for (int64_t y = 0; y < height; ++y)
        for (int64_t x = 0; x < width; ++x) {
          const double value = 255 * (static_cast<double>(from[y * width + x]) * std + mean);
          const int64_t row = i / kInARow * height + y, column = i % kInARow * width + x;
          sheet.pixels[static_cast<size_t>(3 * (row * sheet.width + column) + c)] =
              static_cast<uint8_t>(std::lround(std::clamp(value, 0.0, 255.0)));
        }
    }
  return sheet;
}

}  // namespace tessera::train
