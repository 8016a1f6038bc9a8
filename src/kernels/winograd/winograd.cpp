// Winograd's transforms and products for one instruction set, a vector of channels at a time. Per-ISA.
#include "kernels/winograd/winograd.h"

#include "kernels/rows.h"
#include "kernels/tiles.h"

namespace tessera::kernels::TESSERA_ISA {
namespace {

constexpr int kTile = kWinogradTile, kSide = kWinogradSide;
constexpr float kNear = 0.70710678f, kFar = 1.41421356f;  // the points: sqrt(1/2) and sqrt(2)

// Each struct multiplies a column by one of the matrices.
struct InputSide {  // B^T
  static constexpr int kFrom = kSide, kTo = kSide;
  TESSERA_INLINE void apply(const vf (&d)[kFrom], vf (&out)[kTo]) {
    const vf even = d[4] - 2.0f * d[2], odd = kNear * (d[3] - 2.0f * d[1]);
    const vf far_even = d[4] - 0.5f * d[2], far_odd = kFar * (d[3] - 0.5f * d[1]);
    out[0] = d[0] + (d[4] - 2.5f * d[2]);
    out[1] = even + odd;
    out[2] = even - odd;
    out[3] = far_even + far_odd;
    out[4] = far_even - far_odd;
    out[5] = d[1] + (d[5] - 2.5f * d[3]);
  }
};
struct OutputSide {  // A^T
  static constexpr int kFrom = kSide, kTo = kTile;
  TESSERA_INLINE void apply(const vf (&m)[kFrom], vf (&out)[kTo]) {
    const vf even = m[1] + m[2], odd = kNear * (m[1] - m[2]);
    const vf far_even = m[3] + m[4], far_odd = kFar * (m[3] - m[4]);
    out[0] = m[0] + even + far_even;
    out[1] = odd + far_odd;
    out[2] = 0.5f * even + 2.0f * far_even;
    out[3] = 0.5f * odd + 2.0f * far_odd + m[5];
  }
};
struct GradientSide {  // A
  static constexpr int kFrom = kTile, kTo = kSide;
  TESSERA_INLINE void apply(const vf (&g)[kFrom], vf (&out)[kTo]) {
    const vf even = g[0] + 0.5f * g[2], odd = kNear * (g[1] + 0.5f * g[3]);
    const vf far_even = g[0] + 2.0f * g[2], far_odd = kFar * (g[1] + 2.0f * g[3]);
    out[0] = g[0];
    out[1] = even + odd;
    out[2] = even - odd;
    out[3] = far_even + far_odd;
    out[4] = far_even - far_odd;
    out[5] = g[3];
  }
};
struct WeightSide {  // G
  static constexpr int kFrom = 3, kTo = kSide;
  TESSERA_INLINE void apply(const vf (&w)[kFrom], vf (&out)[kTo]) {
    const vf even = (-2.0f / 3) * w[0] - (1.0f / 3) * w[2], odd = (-2.0f / 3 * kNear) * w[1];
    const vf far_even = (1.0f / 6) * w[0] + (1.0f / 3) * w[2], far_odd = (kFar / 6) * w[1];
    out[0] = w[0];
    out[1] = even + odd;
    out[2] = even - odd;
    out[3] = far_even + far_odd;
    out[4] = far_even - far_odd;
    out[5] = w[2];
  }
};
struct WeightGradientSide {  // G^T
  static constexpr int kFrom = kSide, kTo = 3;
  TESSERA_INLINE void apply(const vf (&u)[kFrom], vf (&out)[kTo]) {
    const vf even = u[1] + u[2], odd = u[1] - u[2], far_even = u[3] + u[4], far_odd = u[3] - u[4];
    out[0] = u[0] - (2.0f / 3) * even + (1.0f / 6) * far_even;
    out[1] = (-2.0f / 3 * kNear) * odd + (kFar / 6) * far_odd;
    out[2] = (1.0f / 3) * (far_even - even) + u[5];
  }
};

// Side * square * Side^T; get(row, column) reads the square, put(row, column, value) writes the result.
template <class Side, class Get, class Put>
TESSERA_INLINE void both_sides(const Get& get_number, const Put& put_number) {
  vf half[Side::kTo][Side::kFrom];
#pragma GCC unroll 6
  for (int c = 0; c < Side::kFrom; ++c) {
    vf column[Side::kFrom], out[Side::kTo];
#pragma GCC unroll 6
    for (int r = 0; r < Side::kFrom; ++r) column[r] = get_number(r, c);
    Side::apply(column, out);
#pragma GCC unroll 6
    for (int r = 0; r < Side::kTo; ++r) half[r][c] = out[r];
  }
#pragma GCC unroll 6
  for (int r = 0; r < Side::kTo; ++r) {
    vf out[Side::kTo];
    Side::apply(half[r], out);
#pragma GCC unroll 6
    for (int c = 0; c < Side::kTo; ++c) put_number(r, c, out[c]);
  }
}

struct TilePlace {
  int64_t sample, row, column;  // the first cell of the tile
};
TilePlace place_of(int64_t tile, int64_t rows, int64_t columns) {
  const int64_t across = (columns + kTile - 1) / kTile, down = (rows + kTile - 1) / kTile;
  return {tile / (across * down), tile / across % down * kTile, tile % across * kTile};
}

template <class Side, class Number>
TESSERA_INLINE void transform_tile(const WinogradTransform& t, int64_t tile) {
  constexpr int64_t before = (Side::kFrom - kTile) / 2;
  const TilePlace place = place_of(tile, t.rows, t.columns);
  const int64_t row = place.row - before, column = place.column - before;
  const Number* cells = static_cast<const Number*>(t.cells) +
                        ((place.sample * t.rows + row) * t.columns + column) * t.channels + t.channel;
  const bool inside =
      row >= 0 && column >= 0 && row + Side::kFrom <= t.rows && column + Side::kFrom <= t.columns;
  for (int64_t c = 0; c < t.count; c += W) {
    const int64_t left = t.count - c;
    float* to = t.to.data + (tile - t.to.first) * t.to.row + c;
    const auto put_matrix = [&](int i, int j, vf value) __attribute__((always_inline)) {
      store(to + (i * kSide + j) * t.to.matrix_stride, value);
    };
    const Number* from = cells + c;
    if (inside && left >= W)
      both_sides<Side>(
          [&](int i, int j)
              __attribute__((always_inline)) { return load(from + (i * t.columns + j) * t.channels); },
          put_matrix);
    else
      both_sides<Side>(
          [&](int i, int j) __attribute__((always_inline)) {
            const bool there = row + i >= 0 && row + i < t.rows && column + j >= 0 && column + j < t.columns;
            return there ? get(from + (i * t.columns + j) * t.channels, left) : vf{};
          },
          put_matrix);
  }
}
template <class Side>
void transform(const WinogradTransform& t, int64_t begin, int64_t end) {
  for (int64_t tile = begin; tile < end; ++tile)
    if (t.element == Element::f32)
      transform_tile<Side, float>(t, tile);
    else
      transform_tile<Side, bf16>(t, tile);
}

TESSERA_INLINE vf read(const void* data, Element element, int64_t at, int64_t left) {
  return element == Element::f32 ? get(static_cast<const float*>(data) + at, left)
                                 : get(static_cast<const bf16*>(data) + at, left);
}

template <class Number>
TESSERA_INLINE void put_tile(const WinogradForward& call, const vf (&cells)[kTile][kTile],
                             const TilePlace& place, int64_t channel) {
  const WinogradGrid& grid = call.grid;
  const int64_t left = grid.out - channel;
  for (int i = 0; i < kTile && place.row + i < grid.rows; ++i)
    for (int j = 0; j < kTile && place.column + j < grid.columns; ++j) {
      const int64_t cell = (place.sample * grid.rows + place.row + i) * grid.columns + place.column + j;
      const int64_t at = cell * grid.out + channel;
      vf value = cells[i][j];
      if (call.residual) value += read(call.residual, call.residual_element, at, left);
      if (call.relu) value = max(vf{}, value);
      put(static_cast<Number*>(call.y) + at, value, left);
    }
}

void output(const WinogradOutput& o, int64_t begin, int64_t end) {
  const WinogradForward& call = *o.call;
  for (int64_t tile = begin; tile < end; ++tile) {
    const TilePlace place = place_of(tile, call.grid.rows, call.grid.columns);
    for (int64_t c = 0; c < call.grid.out; c += W) {
      const float* from = o.from.data + (tile - o.from.first) * o.from.row + c;
      const vf bias = call.bias ? get(call.bias + c, call.grid.out - c) : vf{};
      vf cells[kTile][kTile];
      both_sides<OutputSide>(
          [&](int i, int j)
              __attribute__((always_inline)) { return load(from + (i * kSide + j) * o.from.matrix_stride); },
          [&](int i, int j, vf value) __attribute__((always_inline)) { cells[i][j] = value + bias; });
      if (call.y_element == Element::f32)
        put_tile<float>(call, cells, place, c);
      else
        put_tile<bf16>(call, cells, place, c);
    }
  }
}

void product(const WinogradProduct& p) {
  Mix call;
  call.first = {p.a, p.a_row, p.a_k, p.b, p.b_k, p.k};
  call.keep = p.add ? 1.0f : 0.0f;
  call.out = p.out;
  call.out_row = p.out_row;
  call.width = p.columns;
  mix(call, 0, p.rows);
}

void weights(const float* w, float* matrices, int64_t matrix_stride) {
  for (int64_t c = 0; c < kWinogradPanel; c += W)
    both_sides<WeightSide>(
        [&](int i, int j)
            __attribute__((always_inline)) { return load(w + (i * 3 + j) * kWinogradPanel + c); },
        [&](int i, int j, vf value)
            __attribute__((always_inline)) { store(matrices + (i * kSide + j) * matrix_stride + c, value); });
}
void weight_gradients(const float* matrices, int64_t matrix_stride, float* w) {
  for (int64_t c = 0; c < kWinogradPanel; c += W)
    both_sides<WeightGradientSide>(
        [&](int i, int j)
            __attribute__((always_inline)) { return load(matrices + (i * kSide + j) * matrix_stride + c); },
        [&](int i, int j, vf value)
            __attribute__((always_inline)) { store(w + (i * 3 + j) * kWinogradPanel + c, value); });
}

}  // namespace

extern const WinogradFunctions winograd_functions;
const WinogradFunctions winograd_functions = {
    transform<InputSide>, transform<GradientSide>, output, product, weights, weight_gradients};

}  // namespace tessera::kernels::TESSERA_ISA
