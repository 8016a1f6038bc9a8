#include "data/base/geometry.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/text.h"

namespace tessera::data {

int round_half_even(double value) { return static_cast<int>(std::nearbyint(value)); }

namespace {

// Converts a side to whole pixels. Throws if the long side of a strip grows beyond the limit.
int side_of(double pixels, Extent picture) {
  constexpr double kLongest = 1e9;
  if (pixels > kLongest)
    fail(picture.width, "x", picture.height, " pixels are too long a strip to be resized");
  return static_cast<int>(pixels);
}

}  // namespace

Extent resize_short_side(Extent picture, int side) {
  const bool upright = picture.width <= picture.height;
  const double shorter = upright ? picture.width : picture.height,
               longer = upright ? picture.height : picture.width;
  const int other = side_of(side * longer / shorter, picture);
  return upright ? Extent{other, side} : Extent{side, other};
}

Extent resize_keep_ratio(Extent picture, Extent target, bool longest) {
  const double down = static_cast<double>(picture.height) / target.height;
  const double across = static_cast<double>(picture.width) / target.width;
  const double ratio = longest ? std::max(down, across) : std::min(down, across);
  return {std::max(1, side_of(std::nearbyint(picture.height / ratio), picture)),
          std::max(1, side_of(std::nearbyint(picture.width / ratio), picture))};
}

Placement centre(Extent picture, Extent output) {
  Placement place;
  auto along = [](int have, int want, int& from, int& length, int& to) {
    from = have > want ? round_half_even((have - want) / 2.0) : 0;
    to = have < want ? (want - have) / 2 : 0;
    length = std::min(have, want);
  };
  along(picture.width, output.width, place.window.left, place.window.width, place.left);
  along(picture.height, output.height, place.window.top, place.window.height, place.top);
  return place;
}

CropMode parse_crop_mode(const std::string& name) {
  if (name == "center") return CropMode::center;
  if (name == "squash") return CropMode::squash;
  if (name == "border" || name == "longest") return CropMode::border;
  fail_usage("unknown crop mode '", name, "', must be center, center_floor, squash, border, longest or pad");
}

Extent test_size(Extent picture, Extent output, double crop, CropMode mode) {
  const Extent scaled = {static_cast<int>(std::floor(output.height / crop)),
                         static_cast<int>(std::floor(output.width / crop))};
  if (mode == CropMode::squash) return scaled;
  if (mode == CropMode::border) return resize_keep_ratio(picture, scaled, true);
  if (scaled.height == scaled.width) return resize_short_side(picture, scaled.width);
  return resize_keep_ratio(picture, scaled, false);
}

Box random_resized_crop(Extent picture, const std::vector<double>& scale, const std::vector<double>& ratio,
                        Draws& draws) {
  const double area = static_cast<double>(picture.height) * picture.width;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = draws.uniform(scale[0], scale[1]) * area;
    const double aspect = std::exp(draws.uniform(std::log(ratio[0]), std::log(ratio[1])));
    const int width = round_half_even(std::sqrt(target * aspect)),
              height = round_half_even(std::sqrt(target / aspect));
    if (width > picture.width || height > picture.height || width < 1 || height < 1) continue;
    const int top = static_cast<int>(draws.integer(0, picture.height - height));
    const int left = static_cast<int>(draws.integer(0, picture.width - width));
    return {left, top, width, height};
  }
  const double shape = static_cast<double>(picture.width) / picture.height;
  int width = picture.width, height = picture.height;
  if (shape < ratio[0]) height = std::min(height, round_half_even(width / ratio[0]));
  if (shape > ratio[1]) width = std::min(width, round_half_even(height * ratio[1]));
  width = std::max(width, 1), height = std::max(height, 1);
  return {(picture.width - width) / 2, (picture.height - height) / 2, width, height};
}

int reflect(int position, int size) {
  if (size == 1) return 0;
  const int period = 2 * (size - 1);
  int at = position % period;
  if (at < 0) at += period;
  return at < size ? at : period - at;
}

}  // namespace tessera::data
