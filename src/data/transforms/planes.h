// Planes of numbers, and filters for the corruption of images.
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
Image truncated(const Planes& planes);  // values * 255, clipped to 0 … 255 and truncated

// The values beyond the edge of a line: its last cell (a a | a b c), the mirrored line (b a | a b c), or the
// line mirrored about its last cell (c b | a b c).
enum class Edge { repeat, mirror, mirror_101 };
int inside(int index, int length, Edge edge);

// Returns exp(-i^2 / (2 sigma^2)) for |i| <= radius, normalised to sum 1; a single 1 if radius or sigma is 0.
std::vector<double> gaussian_weights(double sigma, int radius);
// Filters rows and columns by an odd number of symmetric weights.
Plane filter_lines(const Plane& plane, const std::vector<double>& weights, Edge edge);
// Filters as in SciPy and scikit-image: the kernel is truncated at `truncate` standard deviations.
Plane gaussian(const Plane& plane, double sigma, double truncate, Edge edge);

// Correlates the plane with a kernel [side, side] of odd side.
Plane filter_square(const Plane& plane, const std::vector<double>& kernel, int side, Edge edge);
// Adds `border` cells beyond each edge.
Plane padded(const Plane& plane, int border, Edge edge);
// Bilinear interpolation of the four cells around (y, x), for planes of one size.
class Interpolator {
 public:
  struct Place {
    std::array<int32_t, 4> cells;  // above left, above right, below left, below right
    double down, right;            // fraction of the way to the next cell
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
// Enlarges the plane `zoom` times, linearly from corner to corner, and returns its centre in the original
// size.
Plane zoomed(const Plane& plane, double zoom);
// Blurs along a line at that angle: a sum of shifted copies, weighted by half a Gaussian.
Plane motion_blurred(const Plane& plane, int radius, double sigma, double degrees);

}  // namespace tessera::data

namespace tessera::data::loops {

// The inner loops of filters, compiled for each instruction set.

// Computes to[x] = weights[0] from[0][x] + weights[1] from[1][x] + …, in that order; `count` rows.
void weighted_sum(double* to, const double* const* from, const double* weights, size_t count, size_t length);
// Computes to[x] = middle[x] middle_weight + (first[0][x] + second[0][x]) weights[0] + …, in that order.
struct SymmetricRows {
  const double* middle;
  double middle_weight;
  const double* const* first;
  const double* const* second;
  const double* weights;
  size_t count;
};
void symmetric_sum(double* to, const SymmetricRows& rows, size_t length);

// Splits `pixels` into three channels in [0, 1]: table[byte].
void split_channels(const uint8_t* pixels, const double* table, double* r, double* g, double* b,
                    size_t count);
// Joins channels: numbers * 255, clipped to 0 … 255 and truncated.
void joined_channels(const double* r, const double* g, const double* b, uint8_t* pixels, size_t count);
double sum_of(const double* numbers, size_t count);  // computes eight partial sums, then adds them

}  // namespace tessera::data::loops
