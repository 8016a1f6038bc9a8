// Rows that the tests of evaluation share.
#pragma once

#include <cstdint>
#include <vector>

#include "core/random.h"

namespace tessera::eval {

// Returns rows of normal numbers, moved by `shift`.
inline std::vector<float> normal_rows(int64_t rows, int64_t width, uint64_t seed, double shift = 0) {
  RandomStream random(seed, "rows");
  std::vector<float> out;
  for (int64_t i = 0; i < rows * width; ++i) out.push_back(static_cast<float>(random.normal() + shift));
  return out;
}

}  // namespace tessera::eval
