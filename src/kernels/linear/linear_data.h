// The contents of a packed linear layer, shared by the fast forms' driver and the reference.
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "core/error.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_isa.h"
#include "kernels/memory.h"

namespace tessera::kernels {

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

// One of the two matrices, with the values of each output (padded to whole panels).
struct PackedMatrix {
  std::unique_ptr<void, FreeMemory> panels;  // [panels][words][panel] words
  std::vector<float> bias;                   // zeros if none
  std::vector<float> scales;                 // int8
  std::vector<int32_t> start;                // int8: -128 * the column's sum, if x is stored with 128 added
  std::vector<float> plain;                  // reference: (out, in), rounded for the arithmetic
};

struct PackedLinearData {
  LinearImplementation implementation;
  int64_t in = 0, out = 0;
  Activation activation = Activation::none;
  float static_scale = 0;
  int64_t words = 0, panel = 0, panels = 0;
  PackedMatrix weight, gate;
  std::vector<float> out_scale;  // empty: none
  int64_t tile_rows() const { return implementation.functions->rows.together; }
};

// While it lives, this thread may call products.
class OpenProducts {
 public:
  explicit OpenProducts(const LinearFunctions& functions) : rows_(functions.rows) {
    if (rows_.open) rows_.open();
  }
  ~OpenProducts() {
    if (rows_.close) rows_.close();
  }
  OpenProducts(const OpenProducts&) = delete;
  OpenProducts& operator=(const OpenProducts&) = delete;

 private:
  const ProductRows& rows_;
};

// Shared by the drivers.
constexpr int64_t kLinearWorthSharing = 1 << 20;  // multiply-adds
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t aligned(int64_t bytes) { return ceil_div(bytes, 64) * 64; }
inline const char* element_at(const void* data, Element element, int64_t index) {
  return static_cast<const char*>(data) + index * (element == Element::f32 ? 4 : 2);
}
// Prefetches a matrix that will be read or written after other work.
__attribute__((always_inline)) inline void fetch_rows(const void* data, Element element, int64_t row,
                                                      int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    const char* first = element_at(data, element, r * row);
    fetch<FetchFor::soon>(first, element_at(first, element, columns) - first);
  }
}
inline void check_rows(const char* operation, const char* what, int64_t row, int64_t columns, int64_t rows,
                       const void* data) {
  check(rows == 0 || data != nullptr, operation, ": ", what, " is null");
  check(rows <= 1 || row >= columns, operation, ": rows of ", what, " are ", row, " apart, must be at least ",
        columns);
}

// The definition: double sums, one thread.
void linear_forward_reference(const PackedLinearData& weights, const LinearForward& call);
void linear_gradients_reference(const LinearGradients& call);
void norm_forward_reference(const NormForward& call);

}  // namespace tessera::kernels
