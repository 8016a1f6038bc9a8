// Planes of numbers, and the filters that corruptions of images are made of.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "io/images/image.h"

namespace tessera::data {

// [height, width] in float64.
struct Plane {
  int height = 0, width = 0;
  std::vector<double> values;

  Plane() = default;
  Plane(int h, int w, double value = 0)
      : height(h), width(w), values(static_cast<size_t>(h) * static_cast<size_t>(w), value) {}
  double* row(int y) { return values.data() + static_cast<size_t>(y) * static_cast<size_t>(width); }
  const double* row(int y) const {
    return values.data() + static_cast<size_t>(y) * static_cast<size_t>(width);
  }
};
using Planes = std::array<Plane, 3>;

Planes planes_of(const Image& image);   // bytes / 255
Image truncated(const Planes& planes);  // numbers * 255, cut to 0 … 255 and truncated

// What lies beyond the edge of a line: its last cell (a a | a b c), the line mirrored (b a | a b c), or mirrored about its last
// cell (c b | a b c).
enum class Edge { repeat, mirror, mirror_101 };
int inside(int index, int length, Edge edge);

// exp(-i^2 / (2 sigma^2)) for |i| <= radius, of sum 1; radius 0 or sigma 0: a single 1.
std::vector<double> gaussian_weights(double sigma, int radius);
// Rows and columns filtered by symmetric weights of odd number.
Plane filter_lines(const Plane& plane, const std::vector<double>& weights, Edge edge);
// As scipy's and scikit-image's filters: cut off at `truncate` deviations.
Plane gaussian(const Plane& plane, double sigma, double truncate, Edge edge);

// The sum of the plane's shifts weighed by a kernel [side, side] of odd side (correlation).
Plane filter_square(const Plane& plane, const std::vector<double>& kernel, int side, Edge edge);
// With what is `border` cells beyond each edge.
Plane padded(const Plane& plane, int border, Edge edge);
// Values between the cells around (y, x), linearly, for planes of one size.
class Interpolator {
 public:
  struct Place {
    std::array<int32_t, 4> cells;  // above left, above right, below left, below right
    double down, right;            // of the way to the next cell
    double of(const Plane& plane) const {
      const double* v = plane.values.data();
      return (1 - down) * ((1 - right) * v[cells[0]] + right * v[cells[1]]) +
             down * ((1 - right) * v[cells[2]] + right * v[cells[3]]);
    }
  };
  Interpolator(int height, int width, Edge edge);
  Place at(double y, double x) const {
    const auto floored = [](double v) {
      const auto whole = static_cast<int>(v);
      return whole - (v < whole ? 1 : 0);
    };
    const int row = floored(y), column = floored(x);
    if (row < 0 || column < 0 || row + 1 >= height_ || column + 1 >= width_)
      return at_edge(row, column, y - row, x - column);
    const int32_t first = row * width_ + column;
    return {{first, first + 1, first + width_, first + width_ + 1}, y - row, x - column};
  }

 private:
  Place at_edge(int row, int column, double down, double right) const;
  int height_, width_;
  Edge edge_;
};
// The middle of the plane enlarged `zoom` times, linearly from corner to corner, in the plane's own size.
Plane zoomed(const Plane& plane, double zoom);
// Blurred along a line of that angle: the plane and its copies, shifted step by step, by half a Gaussian.
Plane motion_blurred(const Plane& plane, int radius, double sigma, double degrees);

}  // namespace tessera::data
