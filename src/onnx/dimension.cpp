#include "onnx/dimension.h"

#include <numeric>

namespace tessera::onnx {
namespace {

int64_t factor_of(const Dimension::Factor& factor, std::span<const int64_t> sizes) {
  return (sizes[factor.axis] + factor.plus) / factor.divisor;
}

int64_t product_of(const std::vector<Dimension::Factor>& factors, std::span<const int64_t> sizes) {
  int64_t product = 1;
  for (const Dimension::Factor& factor : factors) product *= factor_of(factor, sizes);
  return product;
}

// Solves values = offset + ratio * product with two traces that differ, and checks it on all traces.
std::optional<Dimension> solve(std::span<const int64_t> values,
                               const std::vector<std::vector<int64_t>>& sizes,
                               const std::vector<Dimension::Factor>& factors) {
  const int64_t first = product_of(factors, sizes[0]);
  for (size_t other = 1; other < values.size(); ++other) {
    const int64_t run = product_of(factors, sizes[other]) - first, rise = values[other] - values[0];
    if (run == 0 || rise == 0) continue;
    const int64_t common = std::gcd(run, rise);
    Dimension found{.numerator = rise / common, .denominator = run / common, .factors = factors};
    if (found.denominator < 0) found.numerator = -found.numerator, found.denominator = -found.denominator;
    if (found.numerator * first % found.denominator != 0) return std::nullopt;
    found.offset = values[0] - found.numerator * first / found.denominator;
    for (size_t trace = 0; trace < values.size(); ++trace)
      if (found.numerator * product_of(factors, sizes[trace]) % found.denominator != 0 ||
          found.of(sizes[trace]) != values[trace])
        return std::nullopt;
    return found;
  }
  return std::nullopt;
}

// Returns the axes that change the value while all others have their size of the first trace.
std::vector<size_t> axes_of(std::span<const int64_t> values, const std::vector<std::vector<int64_t>>& sizes) {
  std::vector<size_t> axes;
  for (size_t axis = 0; axis < sizes[0].size(); ++axis) {
    bool matters = false;
    for (size_t trace = 1; trace < values.size(); ++trace)
      matters |= sizes[trace][axis] != sizes[0][axis] && values[trace] != values[0];
    if (matters) axes.push_back(axis);
  }
  return axes;
}

// Tries roundings of the axes from index `at` on: first exact sizes, then whole steps, then steps rounded up.
std::optional<Dimension> search(std::span<const int64_t> values,
                                const std::vector<std::vector<int64_t>>& sizes,
                                const std::vector<size_t>& axes, std::vector<Dimension::Factor>& factors,
                                bool round) {
  if (factors.size() == axes.size()) return solve(values, sizes, factors);
  constexpr int64_t kLargestStep = 64;
  const size_t axis = axes[factors.size()];
  for (int64_t divisor = 1; divisor <= (round ? kLargestStep : 1); ++divisor)
    for (const int64_t plus : {int64_t{0}, divisor - 1}) {
      factors.push_back({axis, plus, divisor});
      if (auto found = search(values, sizes, axes, factors, round)) return found;
      factors.pop_back();
    }
  return std::nullopt;
}

}  // namespace

int64_t Dimension::of(std::span<const int64_t> sizes) const {
  return offset + numerator * product_of(factors, sizes) / denominator;
}

std::optional<Dimension> fit_dimension(std::span<const int64_t> values,
                                       const std::vector<std::vector<int64_t>>& sizes) {
  const std::vector<size_t> axes = axes_of(values, sizes);
  if (axes.empty()) return std::nullopt;
  for (const bool round : {false, true}) {
    std::vector<Dimension::Factor> factors;
    if (auto found = search(values, sizes, axes, factors, round)) return found;
  }
  return std::nullopt;
}

}  // namespace tessera::onnx
