// Whole numbers of a traced computation that depend on free dimensions of its inputs: batch or image side.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tessera::onnx {

// offset + numerator * product over factors of floor((size + plus) / divisor) / denominator. The last division has no rest.
struct Dimension {
  struct Factor {
    size_t axis = 0;  // index of a free dimension
    int64_t plus = 0, divisor = 1;
    auto operator<=>(const Factor&) const = default;
  };
  int64_t offset = 0, numerator = 1, denominator = 1;
  std::vector<Factor> factors;
  auto operator<=>(const Dimension&) const = default;

  int64_t of(std::span<const int64_t> sizes) const;
};

// Finds the simplest such rule for `values`, one for each trace. `sizes` [trace][axis] are the free dimensions in those traces.
// None if no rule gives all values.
std::optional<Dimension> fit_dimension(std::span<const int64_t> values,
                                       const std::vector<std::vector<int64_t>>& sizes);

}  // namespace tessera::onnx
