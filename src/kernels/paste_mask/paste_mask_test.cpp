#include "kernels/paste_mask/paste_mask.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/error.h"
#include "core/random.h"

namespace tessera::kernels {
namespace {

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
          const double want = reference::pasted_value(mask.data(), side, box, rule, i / width, i % width);
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
