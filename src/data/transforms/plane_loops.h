// The inner loops of filters, compiled for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::data::loops {

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
double sum_of(const double* numbers, size_t count);  // eight partial sums, then their sum

}  // namespace tessera::data::loops
