#include "data/transforms/planes.h"

#include <string.h>

#include "core/threads.h"

namespace tessera::data::loops {
namespace {

constexpr size_t kChunk = 32;  // numbers with sums in registers
// Eight numbers at any address. Variables must name the type: `auto` drops the alignment attribute.
typedef double Eight __attribute__((vector_size(64), aligned(8), may_alias));

}  // namespace

TESSERA_FOR_EACH_ISA
void weighted_sum(double* to, const double* const* from, const double* weights, size_t count, size_t length) {
  size_t x = 0;
  for (; x + kChunk <= length; x += kChunk) {
    Eight a = {}, b = {}, c = {}, d = {};
    for (size_t k = 0; k < count; ++k) {
      const double w = weights[k];
      const Eight* row = reinterpret_cast<const Eight*>(from[k] + x);
      a += w * row[0], b += w * row[1], c += w * row[2], d += w * row[3];
    }
    Eight* out = reinterpret_cast<Eight*>(to + x);
    out[0] = a, out[1] = b, out[2] = c, out[3] = d;
  }
  for (; x < length; ++x) {
    double sum = 0;
    for (size_t k = 0; k < count; ++k) sum += weights[k] * from[k][x];
    to[x] = sum;
  }
}

TESSERA_FOR_EACH_ISA
void symmetric_sum(double* to, const SymmetricRows& rows, size_t length) {
  size_t x = 0;
  for (; x + kChunk <= length; x += kChunk) {
    const Eight* middle = reinterpret_cast<const Eight*>(rows.middle + x);
    Eight a = middle[0] * rows.middle_weight, b = middle[1] * rows.middle_weight,
          c = middle[2] * rows.middle_weight, d = middle[3] * rows.middle_weight;
    for (size_t k = 0; k < rows.count; ++k) {
      const double w = rows.weights[k];
      const Eight* p = reinterpret_cast<const Eight*>(rows.first[k] + x);
      const Eight* q = reinterpret_cast<const Eight*>(rows.second[k] + x);
      a += (p[0] + q[0]) * w, b += (p[1] + q[1]) * w, c += (p[2] + q[2]) * w, d += (p[3] + q[3]) * w;
    }
    Eight* out = reinterpret_cast<Eight*>(to + x);
    out[0] = a, out[1] = b, out[2] = c, out[3] = d;
  }
  for (; x < length; ++x) {
    double sum = rows.middle[x] * rows.middle_weight;
    for (size_t k = 0; k < rows.count; ++k) sum += (rows.first[k][x] + rows.second[k][x]) * rows.weights[k];
    to[x] = sum;
  }
}

void split_channels(const uint8_t* pixels, const double* table, double* r, double* g, double* b,
                    size_t count) {
  for (size_t i = 0; i < count; ++i, pixels += 3)
    r[i] = table[pixels[0]], g[i] = table[pixels[1]], b[i] = table[pixels[2]];
}

namespace {

constexpr size_t kBlock = 64;

TESSERA_FOR_EACH_ISA
void bytes_of(const double* __restrict numbers, uint8_t* __restrict bytes, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const double scaled = numbers[i] * 255, above = scaled > 0 ? scaled : 0;
    bytes[i] = static_cast<uint8_t>(static_cast<int32_t>(above < 255 ? above : 255));
  }
}

}  // namespace

void joined_channels(const double* r, const double* g, const double* b, uint8_t* pixels, size_t count) {
  uint8_t bytes[3][kBlock];
  for (size_t done = 0; done < count; done += kBlock) {
    const size_t some = count - done < kBlock ? count - done : kBlock;
    bytes_of(r + done, bytes[0], some), bytes_of(g + done, bytes[1], some),
        bytes_of(b + done, bytes[2], some);
    for (size_t i = 0; i < some; ++i, pixels += 3)
      pixels[0] = bytes[0][i], pixels[1] = bytes[1][i], pixels[2] = bytes[2][i];
  }
}

TESSERA_FOR_EACH_ISA
double sum_of(const double* numbers, size_t count) {
  Eight sums = {};
  size_t i = 0;
  for (; i + 8 <= count; i += 8) sums += *reinterpret_cast<const Eight*>(numbers + i);
  double sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  for (; i < count; ++i) sum += numbers[i];
  return sum;
}

}  // namespace tessera::data::loops
