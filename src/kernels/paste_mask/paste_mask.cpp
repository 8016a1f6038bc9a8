#include "kernels/paste_mask/paste_mask.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/error.h"

namespace tessera::kernels {
namespace {

// The mask cells that a pixel reads along an axis: two with their weights.
struct Tap {
  int64_t low = 0, high = 0;
  double low_weight = 0, high_weight = 0;
};

// The pixels [from, from + taps) of an axis that the mask covers. Always in double: in a box smaller than a
// pixel, small differences matter.
struct Axis {
  int64_t from = 0;
  std::vector<Tap> taps;
};

Tap grid_tap(int64_t pixel, double low, double high, int64_t side) {
  // Converts as published: first to [-1, 1], then to cells.
  const double place = (static_cast<double>(pixel) + 0.5 - low) / (high - low) * 2 - 1;
  const double at = ((place + 1) * static_cast<double>(side) - 1) / 2;
  if (!(at > -1 && at < static_cast<double>(side))) return {};
  const double whole = std::floor(at), share = at - whole;
  Tap tap{static_cast<int64_t>(whole), static_cast<int64_t>(whole) + 1, 1 - share, share};
  if (tap.low < 0) tap.low = 0, tap.low_weight = 0;
  if (tap.high >= side) tap.high = side - 1, tap.high_weight = 0;
  return tap;
}

Axis grid_axis(double low, double high, int64_t side, int64_t size) {
  Axis axis;
  if (!(high > low)) return axis;
  // One more cell of the mask on both sides, where values fall to zero.
  const double cell = (high - low) / static_cast<double>(side);
  const auto bound = [&](double value) {
    return static_cast<int64_t>(std::clamp(value, 0.0, static_cast<double>(size)));
  };
  axis.from = bound(std::floor(low - cell) - 1);
  const int64_t to = bound(std::ceil(high + cell) + 1);
  for (int64_t pixel = axis.from; pixel < to; ++pixel) axis.taps.push_back(grid_tap(pixel, low, high, side));
  return axis;
}

// Cells -1 and `side` are the mask's border of zeros.
Tap resized_tap(int64_t i, int64_t length, int64_t side) {
  const int64_t padded = side + 2;
  const double scale = static_cast<double>(padded) / static_cast<double>(length);
  const double at = std::max((static_cast<double>(i) + 0.5) * scale - 0.5, 0.0);
  const auto low = static_cast<int64_t>(at);
  const double share = at - static_cast<double>(low);
  Tap tap{low - 1, std::min(low + 1, padded - 1) - 1, 1 - share, share};
  if (tap.low < 0 || tap.low >= side) tap.low = 0, tap.low_weight = 0;
  if (tap.high < 0 || tap.high >= side) tap.high = 0, tap.high_weight = 0;
  return tap;
}

// Number: the type in which the published code rounds the enlarged box to pixels.
template <class Number>
Axis resized_axis(Number low, Number high, int64_t side, int64_t size) {
  const Number scale = static_cast<Number>(side + 2) / static_cast<Number>(side);
  const Number middle = (high + low) * Number(0.5), half = (high - low) * Number(0.5) * scale;
  const Number first = middle - half, last = middle + half;
  constexpr Number kFarthest = 1e9;
  check(std::abs(first) < kFarthest && std::abs(last) < kFarthest, "paste_mask: a box has the side ", low,
        " … ", high);
  const auto begin = static_cast<int64_t>(first), end = static_cast<int64_t>(last) + 1;
  const int64_t length = std::max<int64_t>(end - begin, 1);
  Axis axis;
  axis.from = std::clamp<int64_t>(begin, 0, size);
  for (int64_t pixel = axis.from; pixel < std::min(end, size); ++pixel)
    axis.taps.push_back(resized_tap(pixel - begin, length, side));
  return axis;
}

template <class Number>
Axis axis_of(PasteRule rule, Number low, Number high, int64_t side, int64_t size) {
  return rule == PasteRule::grid ? grid_axis(static_cast<double>(low), static_cast<double>(high), side, size)
                                 : resized_axis(low, high, side, size);
}

// Calls put(y, x, values) for each row that the mask reaches, with its first column and values.
template <class Number, class Put>
void each_row(const Number* mask, int64_t side, const Number* box, PasteRule rule, int64_t height,
              int64_t width, const Put& put) {
  check(side >= 1 && height >= 0 && width >= 0, "paste_mask: a mask of ", side, " cells onto ", height, " x ",
        width);
  for (int i = 0; i < 4; ++i) check(std::isfinite(box[i]), "paste_mask: a box has the coordinate ", box[i]);
  const Axis rows = axis_of(rule, box[1], box[3], side, height),
             columns = axis_of(rule, box[0], box[2], side, width);
  std::vector<double> line(static_cast<size_t>(side)), values(columns.taps.size());
  for (size_t y = 0; y < rows.taps.size(); ++y) {
    const Tap& row = rows.taps[y];
    for (int64_t c = 0; c < side; ++c)
      line[static_cast<size_t>(c)] = row.low_weight * static_cast<double>(mask[row.low * side + c]) +
                                     row.high_weight * static_cast<double>(mask[row.high * side + c]);
    for (size_t x = 0; x < values.size(); ++x) {
      const Tap& column = columns.taps[x];
      values[x] = column.low_weight * line[static_cast<size_t>(column.low)] +
                  column.high_weight * line[static_cast<size_t>(column.high)];
    }
    put(rows.from + static_cast<int64_t>(y), columns.from, values);
  }
}

template <class Number>
void paste(const Number* mask, int64_t side, const Number* box, PasteRule rule, int64_t height, int64_t width,
           Number* out) {
  std::fill_n(out, height * width, Number{0});
  each_row(mask, side, box, rule, height, width,
           [&](int64_t y, int64_t x, const std::vector<double>& values) {
             std::transform(values.begin(), values.end(), out + y * width + x,
                            [](double value) { return static_cast<Number>(value); });
           });
}

template <class Number>
void paste_binary(const Number* mask, int64_t side, const Number* box, PasteRule rule, double threshold,
                  int64_t height, int64_t width, uint8_t* out) {
  std::memset(out, 0, static_cast<size_t>(height * width));
  each_row(mask, side, box, rule, height, width,
           [&](int64_t y, int64_t x, const std::vector<double>& values) {
             for (const double value : values)
               out[y * width + x++] = rule == PasteRule::grid ? value >= threshold : value > threshold;
           });
}

}  // namespace

void paste_mask(const float* mask, int64_t side, const float* box, PasteRule rule, int64_t height,
                int64_t width, float* out) {
  paste(mask, side, box, rule, height, width, out);
}
void paste_mask(const double* mask, int64_t side, const double* box, PasteRule rule, int64_t height,
                int64_t width, double* out) {
  paste(mask, side, box, rule, height, width, out);
}
void paste_mask_binary(const float* mask, int64_t side, const float* box, PasteRule rule, double threshold,
                       int64_t height, int64_t width, uint8_t* out) {
  paste_binary(mask, side, box, rule, threshold, height, width, out);
}
void paste_mask_binary(const double* mask, int64_t side, const double* box, PasteRule rule, double threshold,
                       int64_t height, int64_t width, uint8_t* out) {
  paste_binary(mask, side, box, rule, threshold, height, width, out);
}

}  // namespace tessera::kernels
