// The implementations; cuts a call into blocks with matrices that stay in the cache, and divides each step of
// a block among threads.
#include <algorithm>
#include <iterator>
#include <vector>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/memory.h"
#include "kernels/table.h"
#include "kernels/winograd/winograd.h"

namespace tessera::kernels {

TESSERA_IMPLEMENTATIONS(WinogradFunctions, winograd_functions);

namespace {

constexpr Table<WinogradFunctions> kTable{kImplementations, std::size(kImplementations)};

// Channels transformed and multiplied at a time: a panel with this many rows fits into the second-level
// cache.
constexpr int64_t kChannels = 256;
constexpr int64_t kBlockBytes = 12 << 20;  // matrices of a block, to fit a part of the third-level cache
constexpr int64_t kPanel = kWinogradPanel, kMatrices = kWinogradMatrices;

int64_t panels_of(int64_t channels) { return (channels + kPanel - 1) / kPanel; }

// Returns the offset in packed weights of the rows of input channel `first` of one matrix and panel. Order:
// parts of kChannels channels, then matrices, then panels, then a row for every channel.
int64_t packed_at(int64_t in, int64_t out, int64_t first, int64_t matrix, int64_t panel) {
  const int64_t height = std::min(kChannels, in - first);
  return (first * kMatrices * panels_of(out) + (matrix * panels_of(out) + panel) * height) * kPanel;
}

int64_t tiles_of(const WinogradGrid& grid) {
  const auto tiles = [](int64_t cells) { return (cells + kWinogradTile - 1) / kWinogradTile; };
  return grid.batch * tiles(grid.rows) * tiles(grid.columns);
}

// Returns the tiles per block if a matrix row has `numbers` numbers, for all matrices of a call.
int64_t block_tiles(int64_t tiles, int64_t numbers) {
  constexpr int64_t together = 8;  // rows of a product
  const int64_t most = kBlockBytes / (kMatrices * static_cast<int64_t>(sizeof(float)) * numbers);
  const int64_t block = std::max<int64_t>(most / together, 1) * together;
  return std::min(block, (tiles + together - 1) / together * together);
}

// A row of floats for each tile; not at power-of-two distances, which would cause cache conflicts.
int64_t row_of(int64_t channels) { return round_up16(channels) + 16; }

template <class Pointer>
WinogradMatrices<Pointer> matrices_at(Pointer data, int64_t row, int64_t tiles, int64_t first) {
  return {data, tiles * row, row, first};
}

void check_grid(const WinogradGrid& grid, bool complete) {
  check(grid.batch >= 0 && grid.rows >= 1 && grid.columns >= 1 && grid.in >= 1 && grid.out >= 1,
        "winograd: ", grid.batch, " samples of ", grid.rows, " x ", grid.columns, " cells of ", grid.in,
        " to ", grid.out, " channels");
  check(grid.batch == 0 || complete, "winograd: a tensor is missing");
}

}  // namespace

int64_t winograd_packed_count(int64_t in, int64_t out) { return kMatrices * in * panels_of(out) * kPanel; }

void winograd_pack(const WinogradWeights& call) {
  check(call.in >= 1 && call.out >= 1 && call.weight && call.packed, "winograd: weights of ", call.in, " to ",
        call.out, " channels");
  const WinogradFunctions& functions = choose(kTable);
  const int64_t panels = panels_of(call.out);
  parallel_for(call.in, 8, [&](int64_t begin, int64_t end) {
    alignas(64) float kernels[9 * kPanel] = {};
    for (int64_t panel = 0; panel < panels; ++panel) {
      const int64_t columns = std::min(kPanel, call.out - panel * kPanel);
      std::fill(std::begin(kernels), std::end(kernels), 0.0f);
      for (int64_t k = begin; k < end; ++k) {
        for (int64_t o = 0; o < columns; ++o) {
          const float* from = call.weight + (panel * kPanel + o) * call.out_stride + k * call.in_stride;
          for (int64_t i = 0; i < 9; ++i) kernels[i * kPanel + o] = from[call.rotated ? 8 - i : i];
        }
        const int64_t first = k / kChannels * kChannels, height = std::min(kChannels, call.in - first);
        functions.weights(kernels,
                          call.packed + packed_at(call.in, call.out, first, 0, panel) + (k - first) * kPanel,
                          panels * height * kPanel);
      }
    }
  });
}

void winograd_forward(const WinogradForward& call) {
  const WinogradGrid& grid = call.grid;
  check_grid(grid, call.x && call.y && call.packed);
  const WinogradFunctions& functions = choose(kTable);
  const int64_t tiles = tiles_of(grid), panels = panels_of(grid.out);
  const int64_t in_row = row_of(std::min(kChannels, grid.in)), out_row = row_of(grid.out);
  const int64_t block = block_tiles(tiles, in_row + out_row);
  auto* from = static_cast<float*>(thread_scratch(
      ScratchFor::shared, static_cast<size_t>(kMatrices * block * (in_row + out_row)) * sizeof(float)));
  float* sums = from + kMatrices * block * in_row;
  for (int64_t tile = 0; tile < tiles; tile += block) {
    const int64_t count = std::min(block, tiles - tile);
    for (int64_t first = 0; first < grid.in; first += kChannels) {
      const int64_t channels = std::min(kChannels, grid.in - first);
      const WinogradTransform transform{
          call.x,  call.x_element, grid.rows, grid.columns,
          grid.in, first,          channels,  matrices_at(from, in_row, block, tile)};
      parallel_for(count, 1,
                   [&](int64_t begin, int64_t end) { functions.input(transform, tile + begin, tile + end); });
      parallel_for(kMatrices * panels, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t matrix = i / panels, panel = i % panels;
          functions.product({from + matrix * block * in_row, in_row, 1,
                             call.packed + packed_at(grid.in, grid.out, first, matrix, panel), kPanel,
                             channels, count, std::min(kPanel, grid.out - panel * kPanel),
                             sums + matrix * block * out_row + panel * kPanel, out_row, first > 0});
        }
      });
    }
    const WinogradOutput output{matrices_at<const float*>(sums, out_row, block, tile), &call};
    parallel_for(count, 1,
                 [&](int64_t begin, int64_t end) { functions.output(output, tile + begin, tile + end); });
  }
}

namespace {

// The gradient of the weights of up to kChannels inputs and outputs.
struct GradientPart {
  int64_t in, out, in_count, out_count;
};

void sum_over_tiles(const WinogradGradients& call, const WinogradFunctions& functions,
                    const GradientPart& part, float* sums, int64_t sums_row) {
  const WinogradGrid& grid = call.grid;
  const int64_t tiles = tiles_of(grid), panels = panels_of(part.out_count);
  const int64_t in_row = row_of(part.in_count), out_row = row_of(part.out_count);
  const int64_t block = block_tiles(tiles, in_row + out_row);
  auto* inputs = static_cast<float*>(thread_scratch(
      ScratchFor::shared, static_cast<size_t>(kMatrices * block * (in_row + out_row)) * sizeof(float)));
  float* gradients = inputs + kMatrices * block * in_row;
  for (int64_t tile = 0; tile < tiles; tile += block) {
    const int64_t count = std::min(block, tiles - tile);
    const WinogradTransform input{
        call.x,  call.x_element, grid.rows,     grid.columns,
        grid.in, part.in,        part.in_count, matrices_at(inputs, in_row, block, tile)};
    const WinogradTransform gradient{
        call.dy,  call.dy_element, grid.rows,      grid.columns,
        grid.out, part.out,        part.out_count, matrices_at(gradients, out_row, block, tile)};
    parallel_for(count, 1, [&](int64_t begin, int64_t end) {
      functions.input(input, tile + begin, tile + end);
      functions.gradient(gradient, tile + begin, tile + end);
    });
    parallel_for(kMatrices * panels, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t matrix = i / panels, column = i % panels * kPanel;
        functions.product({inputs + matrix * block * in_row, 1, in_row,
                           gradients + matrix * block * out_row + column, out_row, count, part.in_count,
                           std::min(kPanel, part.out_count - column),
                           sums + matrix * part.in_count * sums_row + column, sums_row, tile > 0});
      }
    });
  }
}

}  // namespace

void winograd_gradients(const WinogradGradients& call) {
  const WinogradGrid& grid = call.grid;
  check_grid(grid, call.x && call.dy && call.weight);
  if (grid.batch == 0) return static_cast<void>(std::fill_n(call.weight, 9 * grid.in * grid.out, 0.0f));
  const WinogradFunctions& functions = choose(kTable);
  const int64_t sums_row = panels_of(std::min(kChannels, grid.out)) * kPanel;
  std::vector<float> sums(static_cast<size_t>(kMatrices * std::min(kChannels, grid.in) * sums_row));
  for (int64_t in = 0; in < grid.in; in += kChannels)
    for (int64_t out = 0; out < grid.out; out += kChannels) {
      const GradientPart part{in, out, std::min(kChannels, grid.in - in),
                              std::min(kChannels, grid.out - out)};
      sum_over_tiles(call, functions, part, sums.data(), sums_row);
      parallel_for(part.in_count, 8, [&](int64_t begin, int64_t end) {
        alignas(64) float kernels[9 * kPanel];
        for (int64_t k = begin; k < end; ++k)
          for (int64_t column = 0; column < part.out_count; column += kPanel) {
            functions.weight_gradients(sums.data() + k * sums_row + column, part.in_count * sums_row,
                                       kernels);
            for (int64_t o = 0; o < std::min(kPanel, part.out_count - column); ++o) {
              float* to = call.weight + ((out + column + o) * grid.in + in + k) * 9;
              for (int64_t i = 0; i < 9; ++i) to[i] = kernels[i * kPanel + o];
            }
          }
      });
    }
}

}  // namespace tessera::kernels
