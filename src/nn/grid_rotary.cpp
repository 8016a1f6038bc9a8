#include "nn/rope.h"

#include <cmath>
#include <numbers>
#include <utility>

#include "core/error.h"

namespace tessera::nn {
namespace {

// float32, rounded after each step as in timm.
torch::Tensor grid_frequencies(int64_t count, const GridRotary& options) {
  switch (options.frequencies) {
    case GridFrequencies::pixels:
      return torch::pow(2, torch::linspace(0, std::log2(options.resolution) - 1, count, torch::kFloat32)) *
             std::numbers::pi;
    case GridFrequencies::pixels_evenly:
      return torch::linspace(1, options.resolution / 2, count, torch::kFloat32) * std::numbers::pi;
    case GridFrequencies::cells:
      break;
  }
  return 1 / torch::pow(options.theta, torch::arange(count, torch::kFloat32) / count);
}

torch::Tensor grid_places(int64_t count, int64_t trained, const GridRotary& options) {
  if (options.frequencies != GridFrequencies::cells) return torch::linspace(-1, 1, count, torch::kFloat32);
  const torch::Tensor cells = torch::arange(count, torch::kFloat32);
  return trained > 0 ? cells / count * trained : cells;
}

}  // namespace

Rotation rotation_over_grid(int64_t rows, int64_t columns, int64_t channels, const GridRotary& options) {
  check(channels >= 4 && channels % 4 == 0,
        "rotary positions over a grid need a multiple of 4 channels, not ", channels);
  check(rows > 0 && columns > 0 && options.resolution >= 2 && options.theta > 0,
        "rotary positions over a grid: sides ", rows, " x ", columns, ", resolution ", options.resolution,
        " and theta ", options.theta, " must be positive, the resolution at least 2");
  const torch::Tensor frequencies = grid_frequencies(channels / 4, options);
  const auto angles = [&](const torch::Tensor& places) {  // positions on the grid, row by row
    return torch::outer(places.expand({rows, columns}).flatten(), frequencies);
  };
  const torch::Tensor row = angles(grid_places(rows, options.trained_rows, options).unsqueeze(1)),
                      column = angles(grid_places(columns, options.trained_columns, options).unsqueeze(0));
  const auto order = options.columns_first ? std::pair(column, row) : std::pair(row, column);
  return {torch::cat({order.first, order.second}, 1).to(torch::kFloat64)};
}

}  // namespace tessera::nn
