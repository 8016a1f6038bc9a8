// Reads and writes the tensors of types.h as double arrays, for the plain references.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/types.h"

namespace tessera::kernels {

// One head of a tensor; with `reverse`, token 0 is the last one in memory.
struct HeadAt {
  int64_t batch, head, tokens;
  bool reverse;
};

double read_element(const void* data, Element element, int64_t index);
void write_element(void* data, Element element, int64_t index, double value);

std::vector<double> read_rows(const HeadRows& from, const HeadAt& at, int64_t width);  // (tokens, width)
void write_rows(const std::vector<double>& rows, const HeadRowsOut& to, const HeadAt& at, int64_t width);
std::vector<double> read_gates(const Gates& from, const HeadAt& at);  // (tokens)
void write_gates(const std::vector<double>& values, const GatesOut& to, const HeadAt& at);

}  // namespace tessera::kernels
