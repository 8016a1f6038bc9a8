#include "data/transforms/planes.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>

namespace tessera::data {
namespace {

Plane transposed(const Plane& plane) {
  constexpr int kBlock = 16;  // block side in cells; both blocks fit into the L1 cache
  Plane out(plane.width, plane.height);
  for (int top = 0; top < plane.height; top += kBlock)
    for (int left = 0; left < plane.width; left += kBlock)
      for (int x = left; x < std::min(left + kBlock, plane.width); ++x)
        for (int y = top; y < std::min(top + kBlock, plane.height); ++y) out.row(x)[y] = plane.row(y)[x];
  return out;
}

// For each position of a line, the weights of its cells; weights of cells beyond the edges are added to those
// inside.
struct FoldedLine {
  int first = 0;
  std::vector<double> weights;
};

std::vector<FoldedLine> folded(const std::vector<double>& weights, int length, Edge edge) {
  const int radius = static_cast<int>(weights.size() / 2);
  std::vector<FoldedLine> lines;
  std::vector<double> whole(static_cast<size_t>(length));
  for (int at = 0; at < length; ++at) {
    std::fill(whole.begin(), whole.end(), 0);
    int first = length, last = 0;
    for (int k = -radius; k <= radius; ++k) {
      const int from = inside(at + k, length, edge);
      whole[static_cast<size_t>(from)] += weights[static_cast<size_t>(k + radius)];
      first = std::min(first, from), last = std::max(last, from);
    }
    lines.push_back({first, {whole.begin() + first, whole.begin() + last + 1}});
  }
  return lines;
}

// Filters for weights that are longer than the lines.
Plane filter_columns_folded(const Plane& plane, const std::vector<double>& weights, Edge edge) {
  Plane out(plane.height, plane.width);
  const std::vector<FoldedLine> lines = folded(weights, plane.height, edge);
  for (int y = 0; y < plane.height; ++y) {
    const FoldedLine& line = lines[static_cast<size_t>(y)];
    std::vector<const double*> rows;
    for (size_t k = 0; k < line.weights.size(); ++k)
      rows.push_back(plane.row(line.first + static_cast<int>(k)));
    loops::weighted_sum(out.row(y), rows.data(), line.weights.data(), rows.size(),
                        static_cast<size_t>(plane.width));
  }
  return out;
}

// Filters by symmetric weights. The order of the sum is SciPy's, the middle first and then pairs from the
// outside in. Otherwise a later truncation would make blurred areas of constant colour one level too dark.
Plane filter_columns(const Plane& plane, const std::vector<double>& weights, Edge edge) {
  const int radius = static_cast<int>(weights.size() / 2);
  if (radius >= plane.height) return filter_columns_folded(plane, weights, edge);
  Plane out(plane.height, plane.width);
  std::vector<const double*> above(static_cast<size_t>(radius)), below(static_cast<size_t>(radius));
  for (int y = 0; y < plane.height; ++y) {
    for (int k = radius; k > 0; --k) {
      const auto pair = static_cast<size_t>(radius - k);
      above[pair] = plane.row(inside(y - k, plane.height, edge));
      below[pair] = plane.row(inside(y + k, plane.height, edge));
    }
    loops::symmetric_sum(out.row(y),
                         {.middle = plane.row(y),
                          .middle_weight = weights[static_cast<size_t>(radius)],
                          .first = above.data(),
                          .second = below.data(),
                          .weights = weights.data(),
                          .count = above.size()},
                         static_cast<size_t>(plane.width));
  }
  return out;
}

// Sums up to 128 numbers as NumPy does, with eight partial sums.
double sum_in_eights(const std::vector<double>& numbers) {
  double sum = 0;
  size_t next = 0;
  if (numbers.size() >= 8) {
    std::array<double, 8> lanes{};
    for (; next + 8 <= numbers.size(); next += 8)
      for (size_t i = 0; i < 8; ++i) lanes[i] += numbers[next + i];
    sum = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  }
  for (; next < numbers.size(); ++next) sum += numbers[next];
  return sum;
}

// The source positions for the middle part of an enlarged line.
struct Between {
  int cell = 0;
  double part = 0;  // weight of the next cell
};

std::vector<Between> zoom_places(int length, double zoom) {
  const int crop = static_cast<int>(std::ceil(length / zoom)), start = (length - crop) / 2;
  const auto enlarged = static_cast<int>(std::nearbyint(crop * zoom));  // halves to even
  const int trim = (enlarged - length) / 2;
  const double step = enlarged > 1 ? static_cast<double>(crop - 1) / (enlarged - 1) : 0;
  std::vector<Between> places;
  for (int i = 0; i < length; ++i) {
    const double at = std::min(static_cast<double>(crop - 1), (i + trim) * step);
    const int cell = std::min(static_cast<int>(at), std::max(0, crop - 2));
    places.push_back({start + cell, crop > 1 ? at - cell : 0});
  }
  return places;
}

}  // namespace

Planes planes_of(const Image& image) {
  static const std::array<double, 256> shares = [] {
    std::array<double, 256> all{};
    for (size_t byte = 0; byte < all.size(); ++byte) all[byte] = static_cast<double>(byte) / 255.0;
    return all;
  }();
  const Plane empty(image.height, image.width);
  Planes planes = {empty, empty, empty};
  loops::split_channels(image.pixels.data(), shares.data(), planes[0].values.data(), planes[1].values.data(),
                        planes[2].values.data(), empty.values.size());
  return planes;
}

Image truncated(const Planes& planes) {
  Image image(planes[0].width, planes[0].height, 3);
  loops::joined_channels(planes[0].values.data(), planes[1].values.data(), planes[2].values.data(),
                         image.pixels.data(), planes[0].values.size());
  return image;
}

int inside(int index, int length, Edge edge) {
  if (edge == Edge::repeat) return std::clamp(index, 0, length - 1);
  if (length == 1) return 0;
  const int period = edge == Edge::mirror ? 2 * length : 2 * length - 2;
  const int at = ((index % period) + period) % period;
  if (at < length) return at;
  return edge == Edge::mirror ? period - 1 - at : period - at;
}

std::vector<double> gaussian_weights(double sigma, int radius) {
  if (!(sigma > 0) || radius < 1) return {1};
  std::vector<double> weights;
  for (int i = -radius; i <= radius; ++i) weights.push_back(std::exp(-0.5 / (sigma * sigma) * (i * i)));
  const double sum = sum_in_eights(weights);
  for (double& weight : weights) weight /= sum;
  return weights;
}

Plane filter_lines(const Plane& plane, const std::vector<double>& weights, Edge edge) {
  const Plane columns = filter_columns(plane, weights, edge);
  return transposed(filter_columns(transposed(columns), weights, edge));
}

Plane gaussian(const Plane& plane, double sigma, double truncate, Edge edge) {
  return filter_lines(plane, gaussian_weights(sigma, static_cast<int>(truncate * sigma + 0.5)), edge);
}

Plane padded(const Plane& plane, int border, Edge edge) {
  Plane out(plane.height + 2 * border, plane.width + 2 * border);
  for (int y = 0; y < out.height; ++y) {
    const double* from = plane.row(inside(y - border, plane.height, edge));
    double* to = out.row(y);
    for (int x = 0; x < border; ++x) {
      to[x] = from[inside(x - border, plane.width, edge)];
      to[border + plane.width + x] = from[inside(plane.width + x, plane.width, edge)];
    }
    std::copy_n(from, plane.width, to + border);
  }
  return out;
}

Plane filter_square(const Plane& plane, const std::vector<double>& kernel, int side, Edge edge) {
  const Plane wide = padded(plane, side / 2, edge);
  Plane out(plane.height, plane.width);
  std::vector<double> weights;
  std::copy_if(kernel.begin(), kernel.end(), std::back_inserter(weights), [](double w) { return w != 0; });
  std::vector<const double*> rows;
  for (int y = 0; y < plane.height; ++y) {
    rows.clear();
    for (int ky = 0; ky < side; ++ky)
      for (int kx = 0; kx < side; ++kx)
        if (kernel[static_cast<size_t>(ky * side + kx)] != 0) rows.push_back(wide.row(y + ky) + kx);
    loops::weighted_sum(out.row(y), rows.data(), weights.data(), rows.size(),
                        static_cast<size_t>(plane.width));
  }
  return out;
}

Interpolator::Interpolator(int height, int width, Edge edge) : height_(height), width_(width), edge_(edge) {}

Interpolator::Place Interpolator::at_edge(int row, int column, double down, double right) const {
  const int32_t above = inside(row, height_, edge_) * width_,
                below = inside(row + 1, height_, edge_) * width_, before = inside(column, width_, edge_),
                after = inside(column + 1, width_, edge_);
  return {{above + before, above + after, below + before, below + after}, down, right};
}

Plane zoomed(const Plane& plane, double zoom) {
  const std::vector<Between> rows = zoom_places(plane.height, zoom), columns = zoom_places(plane.width, zoom);
  Plane out(plane.height, plane.width);
  for (int y = 0; y < plane.height; ++y) {
    const Between& row = rows[static_cast<size_t>(y)];
    const double* above = plane.row(row.cell);
    const double* below = plane.row(std::min(row.cell + 1, plane.height - 1));
    for (int x = 0; x < plane.width; ++x) {
      const Between& column = columns[static_cast<size_t>(x)];
      const int next = std::min(column.cell + 1, plane.width - 1);
      out.row(y)[x] = (1 - row.part) * ((1 - column.part) * above[column.cell] + column.part * above[next]) +
                      row.part * ((1 - column.part) * below[column.cell] + column.part * below[next]);
    }
  }
  return out;
}

Plane motion_blurred(const Plane& plane, int radius, double sigma, double degrees) {
  const int copies = 2 * radius + 1;
  const double radians = degrees * M_PI / 180, down = std::sin(radians), right = std::cos(radians);
  std::vector<double> weights;
  double sum = 0;
  for (int i = 0; i < copies; ++i) {
    weights.push_back(std::exp(-0.5 * i * i / (sigma * sigma)));
    sum += weights.back();
  }
  const Plane wide = padded(plane, copies, Edge::repeat);
  std::vector<ptrdiff_t> shifts;  // shifts of the copies, in cells of `wide`
  for (int i = 0; i < copies; ++i) {
    const int dy = -static_cast<int>(std::ceil(i * down - 0.5)),
              dx = -static_cast<int>(std::ceil(i * right - 0.5));
    if (std::abs(dy) >= plane.height || std::abs(dx) >= plane.width) break;
    weights[static_cast<size_t>(i)] /= sum;
    shifts.push_back(static_cast<ptrdiff_t>(copies - dy) * wide.width + copies - dx);
  }
  Plane out(plane.height, plane.width);
  std::vector<const double*> rows(shifts.size());
  for (int y = 0; y < plane.height; ++y) {
    for (size_t i = 0; i < shifts.size(); ++i) rows[i] = wide.row(y) + shifts[i];
    loops::weighted_sum(out.row(y), rows.data(), weights.data(), rows.size(),
                        static_cast<size_t>(plane.width));
  }
  return out;
}

}  // namespace tessera::data
