// Maps of several sizes from one grid.
#include "models/heads/feature_pyramid.h"

#include <gtest/gtest.h>

namespace tessera::models {
namespace {

// A one-pixel image has a grid of one cell, a thin image a row of cells.
TEST(Feature2Pyramid, GridsOfOneCellArePooledToOne) {
  Feature2Pyramid pyramid(4, {1, 0.5, 0.25});
  const torch::NoGradGuard no_grad;
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {1, 60}, {3, 2}}) {
    const torch::Tensor grid = torch::randn({1, 4, rows, columns});
    const auto maps = pyramid.forward({grid, grid, grid}, {});
    EXPECT_EQ(maps[1].sizes().vec(), (std::vector<int64_t>{1, 4, std::max<int64_t>(1, rows / 2),
                                                           std::max<int64_t>(1, columns / 2)}));
    EXPECT_EQ(maps[2].size(2), std::max<int64_t>(1, rows / 4));
    EXPECT_TRUE(torch::equal(maps[0], grid));
  }
}

}  // namespace
}  // namespace tessera::models
