#include "kernels/paste_mask/paste_mask.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "core/random.h"

namespace tessera::kernels {
namespace {

// The definition, one pixel at a time.
double pasted_value(const double* mask, int64_t side, const double* box, PasteRule rule, int64_t y,
                    int64_t x) {
  const auto cell = [&](int64_t r, int64_t c) {
    return r < 0 || c < 0 || r >= side || c >= side ? 0 : mask[r * side + c];
  };
  double v = 0, u = 0;
  if (rule == PasteRule::grid) {
    if (!(box[2] > box[0]) || !(box[3] > box[1])) return 0;
    u = (static_cast<double>(x) + 0.5 - box[0]) / (box[2] - box[0]) * static_cast<double>(side) - 0.5;
    v = (static_cast<double>(y) + 0.5 - box[1]) / (box[3] - box[1]) * static_cast<double>(side) - 0.5;
  } else {
    const auto place = [&](double low, double high, int64_t pixel, double& at) {
      const double half = (high - low) / 2 * static_cast<double>(side + 2) / static_cast<double>(side);
      const auto begin = static_cast<int64_t>((high + low) / 2 - half),
                 end = static_cast<int64_t>((high + low) / 2 + half) + 1;
      if (pixel < begin || pixel >= end) return false;
      const double length = static_cast<double>(std::max<int64_t>(end - begin, 1));
      at = (static_cast<double>(pixel - begin) + 0.5) * static_cast<double>(side + 2) / length - 0.5;
      at = std::clamp(at, 0.0, static_cast<double>(side + 1)) - 1;  // cells of the mask without its border
      return true;
    };
    if (!place(box[0], box[2], x, u) || !place(box[1], box[3], y, v)) return 0;
  }
  const auto row = static_cast<int64_t>(std::floor(v)), column = static_cast<int64_t>(std::floor(u));
  const double down = v - std::floor(v), right = u - std::floor(u);
  return (1 - down) * ((1 - right) * cell(row, column) + right * cell(row, column + 1)) +
         down * ((1 - right) * cell(row + 1, column) + right * cell(row + 1, column + 1));
}

TEST(PasteMask, IsTheDefinition) {
  RandomStream stream(1, "paste test");
  for (const int64_t side : {1, 2, 7, 28})
    for (const PasteRule rule : {PasteRule::grid, PasteRule::resized})
      for (int round = 0; round < 12; ++round) {
        std::vector<double> mask(static_cast<size_t>(side * side));
        for (double& value : mask) value = stream.uniform();
        const int64_t height = stream.integer(1, 40), width = stream.integer(1, 40);
        const double x = stream.uniform(-20, 40), y = stream.uniform(-20, 40),
                     size = round % 3 == 0 ? 0.8 : 50;
        const double box[] = {x, y, x + stream.uniform(0.01, size), y + stream.uniform(0.01, size)};
        std::vector<double> out(static_cast<size_t>(height * width), 9);
        paste_mask(mask.data(), side, box, rule, height, width, out.data());
        std::vector<uint8_t> binary(out.size(), 9);
        paste_mask_binary(mask.data(), side, box, rule, 0.5, height, width, binary.data());
        for (int64_t i = 0; i < height * width; ++i) {
          const double want = pasted_value(mask.data(), side, box, rule, i / width, i % width);
          ASSERT_NEAR(out[static_cast<size_t>(i)], want, 1e-12)
              << "side " << side << " rule " << static_cast<int>(rule) << " pixel " << i;
          if (std::abs(want - 0.5) > 1e-9) {
            EXPECT_EQ(binary[static_cast<size_t>(i)], want > 0.5);
          }
        }
      }
}

TEST(PasteMask, FullMasksCoverTheirBoxes) {
  const std::vector<float> mask(28 * 28, 1.0f);
  const float box[] = {2, 3, 7, 9};
  std::vector<uint8_t> out(12 * 10);
  paste_mask_binary(mask.data(), 28, box, PasteRule::grid, 0.5, 12, 10, out.data());
  for (int64_t i = 0; i < 120; ++i)
    EXPECT_EQ(out[static_cast<size_t>(i)], i / 10 >= 3 && i / 10 < 9 && i % 10 >= 2 && i % 10 < 7) << i;
}

TEST(PasteMask, RefusesWhatIsNotANumber) {
  const float mask[] = {1}, box[] = {0, 0, NAN, 1};
  float out[4];
  EXPECT_THROW(paste_mask(mask, 1, box, PasteRule::grid, 2, 2, out), Error);
}

}  // namespace
}  // namespace tessera::kernels
