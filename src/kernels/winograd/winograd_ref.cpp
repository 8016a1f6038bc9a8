// The transforms as products with their matrices, in double.
#include <cmath>
#include <vector>

#include "kernels/reference.h"
#include "kernels/winograd/winograd.h"

namespace tessera::kernels::reference {
namespace {

const double kNear = std::sqrt(0.5), kFar = std::sqrt(2.0);

struct Side {
  int64_t to, from;
  std::vector<double> numbers;  // (to, from)
  double at(int64_t i, int64_t j) const { return numbers[static_cast<size_t>(i * from + j)]; }
};

Side transposed(const Side& side) {
  Side result{side.from, side.to, {}};
  for (int64_t i = 0; i < side.from; ++i)
    for (int64_t j = 0; j < side.to; ++j) result.numbers.push_back(side.at(j, i));
  return result;
}

// Rows of the first are the products of (x - p) over all points p except one. Columns of the second are the
// powers of each point. Rows of the third are powers too, divided by the products of its differences.
const Side& input_side() {
  static const Side side{6, 6, {1, 0,          -2.5, 0,      1, 0,  //
                                0, -2 * kNear, -2,   kNear,  1, 0,  //
                                0, 2 * kNear,  -2,   -kNear, 1, 0,  //
                                0, -kFar / 2,  -0.5, kFar,   1, 0,  //
                                0, kFar / 2,   -0.5, -kFar,  1, 0,  //
                                0, 1,          0,    -2.5,   0, 1}};
  return side;
}
const Side& output_side() {
  static const Side side{4, 6, {1, 1,         1,          1,        1,         0,  //
                                0, kNear,     -kNear,     kFar,     -kFar,     0,  //
                                0, 0.5,       0.5,        2,        2,         0,  //
                                0, kNear / 2, -kNear / 2, 2 * kFar, -2 * kFar, 1}};
  return side;
}
const Side& weight_side() {
  static const Side side{6,
                         3,
                         {1, 0, 0,                             //
                          -2.0 / 3, -2 * kNear / 3, -1.0 / 3,  //
                          -2.0 / 3, 2 * kNear / 3, -1.0 / 3,   //
                          1.0 / 6, kFar / 6, 1.0 / 3,          //
                          1.0 / 6, -kFar / 6, 1.0 / 3,         //
                          0, 0, 1}};
  return side;
}

// side * square * side^T
std::vector<double> both_sides(const Side& side, const std::vector<double>& square) {
  std::vector<double> result;
  for (int64_t i = 0; i < side.to; ++i)
    for (int64_t j = 0; j < side.to; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < side.from; ++k)
        for (int64_t l = 0; l < side.from; ++l)
          sum += side.at(i, k) * square[static_cast<size_t>(k * side.from + l)] * side.at(j, l);
      result.push_back(sum);
    }
  return result;
}

struct TilePlace {
  int64_t sample, row, column;
};
TilePlace place_of(int64_t tile, int64_t rows, int64_t columns) {
  const int64_t across = (columns + kWinogradTile - 1) / kWinogradTile,
                down = (rows + kWinogradTile - 1) / kWinogradTile;
  return {tile / (across * down), tile / across % down * kWinogradTile, tile % across * kWinogradTile};
}

void transform(const WinogradTransform& t, int64_t begin, int64_t end, const Side& side) {
  const int64_t before = (side.from - kWinogradTile) / 2;
  for (int64_t tile = begin; tile < end; ++tile) {
    const TilePlace place = place_of(tile, t.rows, t.columns);
    for (int64_t c = 0; c < t.count; ++c) {
      std::vector<double> square;
      for (int64_t r = place.row - before; r < place.row - before + side.from; ++r)
        for (int64_t k = place.column - before; k < place.column - before + side.from; ++k) {
          const bool inside = r >= 0 && r < t.rows && k >= 0 && k < t.columns;
          const int64_t cell = (place.sample * t.rows + r) * t.columns + k;
          square.push_back(inside ? read_element(t.cells, t.element, cell * t.channels + t.channel + c) : 0);
        }
      const std::vector<double> numbers = both_sides(side, square);
      for (int64_t m = 0; m < kWinogradMatrices; ++m)
        t.to.data[m * t.to.matrix_stride + (tile - t.to.first) * t.to.row + c] =
            static_cast<float>(numbers[static_cast<size_t>(m)]);
    }
  }
}
void input(const WinogradTransform& t, int64_t begin, int64_t end) { transform(t, begin, end, input_side()); }
void gradient(const WinogradTransform& t, int64_t begin, int64_t end) {
  transform(t, begin, end, transposed(output_side()));
}

void output(const WinogradOutput& o, int64_t begin, int64_t end) {
  const WinogradForward& call = *o.call;
  const WinogradGrid& grid = call.grid;
  for (int64_t tile = begin; tile < end; ++tile) {
    const TilePlace place = place_of(tile, grid.rows, grid.columns);
    for (int64_t c = 0; c < grid.out; ++c) {
      std::vector<double> square;
      for (int64_t m = 0; m < kWinogradMatrices; ++m)
        square.push_back(o.from.data[m * o.from.matrix_stride + (tile - o.from.first) * o.from.row + c]);
      const std::vector<double> cells = both_sides(output_side(), square);
      for (int64_t i = 0; i < kWinogradTile && place.row + i < grid.rows; ++i)
        for (int64_t j = 0; j < kWinogradTile && place.column + j < grid.columns; ++j) {
          const int64_t cell = (place.sample * grid.rows + place.row + i) * grid.columns + place.column + j;
          const int64_t at = cell * grid.out + c;
          double value = cells[static_cast<size_t>(i * kWinogradTile + j)] + (call.bias ? call.bias[c] : 0);
          if (call.residual) value += read_element(call.residual, call.residual_element, at);
          write_element(call.y, call.y_element, at, call.relu && value < 0 ? 0 : value);
        }
    }
  }
}

void product(const WinogradProduct& p) {
  for (int64_t m = 0; m < p.rows; ++m)
    for (int64_t n = 0; n < p.columns; ++n) {
      double sum = p.add ? p.out[m * p.out_row + n] : 0;
      for (int64_t k = 0; k < p.k; ++k)
        sum += static_cast<double>(p.a[m * p.a_row + k * p.a_k]) * p.b[k * p.b_k + n];
      p.out[m * p.out_row + n] = static_cast<float>(sum);
    }
}

// Multiplies `count` numbers of each of kWinogradPanel channels by `side`.
void panel(const Side& side, const float* from, int64_t from_stride, float* to, int64_t to_stride) {
  for (int64_t c = 0; c < kWinogradPanel; ++c) {
    std::vector<double> square;
    for (int64_t i = 0; i < side.from * side.from; ++i) square.push_back(from[i * from_stride + c]);
    const std::vector<double> numbers = both_sides(side, square);
    for (size_t i = 0; i < numbers.size(); ++i)
      to[static_cast<int64_t>(i) * to_stride + c] = static_cast<float>(numbers[i]);
  }
}
void weights(const float* w, float* matrices, int64_t matrix_stride) {
  panel(weight_side(), w, kWinogradPanel, matrices, matrix_stride);
}
void weight_gradients(const float* matrices, int64_t matrix_stride, float* w) {
  panel(transposed(weight_side()), matrices, matrix_stride, w, kWinogradPanel);
}

}  // namespace

extern const WinogradFunctions winograd_functions;
const WinogradFunctions winograd_functions = {input, gradient, output, product, weights, weight_gradients};

}  // namespace tessera::kernels::reference
