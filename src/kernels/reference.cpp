#include "kernels/reference.h"

#include <bit>

namespace tessera::kernels {
namespace {

template <class View>
int64_t offset(const View& view, const HeadAt& at, int64_t token) {
  return at.batch * view.batch + at.head * view.head +
         (at.reverse ? at.tokens - 1 - token : token) * view.token;
}

uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (value != value) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace

double read_element(const void* data, Element element, int64_t index) {
  if (element == Element::f32) return static_cast<const float*>(data)[index];
  return std::bit_cast<float>(static_cast<uint32_t>(static_cast<const uint16_t*>(data)[index]) << 16);
}

void write_element(void* data, Element element, int64_t index, double value) {
  const auto single = static_cast<float>(value);
  if (element == Element::f32)
    static_cast<float*>(data)[index] = single;
  else
    static_cast<uint16_t*>(data)[index] = to_bf16(single);
}

std::vector<double> read_rows(const HeadRows& from, const HeadAt& at, int64_t width) {
  std::vector<double> rows(at.tokens * width);
  for (int64_t t = 0; t < at.tokens; ++t)
    for (int64_t c = 0; c < width; ++c)
      rows[t * width + c] = read_element(from.data, from.element, offset(from, at, t) + c);
  return rows;
}

void write_rows(const std::vector<double>& rows, const HeadRowsOut& to, const HeadAt& at, int64_t width) {
  for (int64_t t = 0; t < at.tokens; ++t)
    for (int64_t c = 0; c < width; ++c)
      write_element(to.data, to.element, offset(to, at, t) + c, rows[t * width + c]);
}

std::vector<double> read_gates(const Gates& from, const HeadAt& at) {
  std::vector<double> values(at.tokens);
  for (int64_t t = 0; t < at.tokens; ++t) values[t] = from.data[offset(from, at, t)];
  return values;
}

void write_gates(const std::vector<double>& values, const GatesOut& to, const HeadAt& at) {
  for (int64_t t = 0; t < at.tokens; ++t) to.data[offset(to, at, t)] = static_cast<float>(values[t]);
}

}  // namespace tessera::kernels
