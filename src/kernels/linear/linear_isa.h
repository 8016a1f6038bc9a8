// The functions that an instruction set defines for linear layers. C headers only: per-ISA files include it.
#pragma once

#include <stdint.h>

#include "kernels/types.h"

namespace tessera::kernels {

// The storage of a panel of weights. A word is broadcast from a row of x and multiplied by a vector of
// columns: one float, two bfloat16, four bytes or two int16.
enum class WordForm : int32_t { single, bf16_pair, byte_quad, int16_pair };
constexpr int64_t numbers_per_word(WordForm form) {
  return form == WordForm::single ? 1 : form == WordForm::byte_quad ? 4 : 2;
}

struct EpilogueTile;

// sums[m][n] = start[n] + sum_k a[m * a_row + k * a_k] . b[k][n] for m < rows and the n of one panel; or
// added to `sums`.
struct ProductTile {
  const void* a;
  int64_t a_row, a_k;  // in words
  const void* b;       // k rows of a panel
  int64_t rows, k;     // k in words
  void* sums;          // float, or int32 for the integer forms
  int64_t sums_row;
  bool add;
  const void* start;  // null: zeros
  // The epilogue after the products, or null. Its lines are prefetched during the products, because stores
  // wait for their lines like loads.
  const EpilogueTile* ahead = nullptr;
  // An epilogue to run while products leave the vector units idle, or null.
  const EpilogueTile* meanwhile = nullptr;
  void (*epilogue)(const EpilogueTile&, int64_t begin, int64_t end) = nullptr;
};

// Prepares rows of x for products: normalised and converted.
struct ReadyRows {
  int64_t rows, columns, words;  // columns numbers fill `words` words, the rest is zero
  const void* x;
  Element element;
  int64_t x_row;
  bool normed, centred;
  const float *weight, *bias;
  float eps;
  float* row;  // (columns), working memory of the integer forms
  WordForm form;
  bool round;                  // single form: round to bfloat16 first
  void* out;                   // (rows, words)
  float static_scale;          // integer forms: a given scale; 0 = one per row
  float* scales;               // integer forms: (rows)
  int64_t first, sample_rows;  // index of row 0 among all rows; as in RowNorm
};

// y = residual + sample_scale * scale * activation(sums) on one panel.
struct EpilogueTile {
  int64_t rows, columns;  // columns <= panel
  const void *sums, *gate_sums;
  int64_t sums_row;
  bool integer;
  const float* row_scales;                    // integer: (rows)
  const float *scales, *gate_scales;          // integer: (panel)
  const float *bias, *gate_bias, *out_scale;  // (panel), out_scale may be null
  int32_t activation;                         // Activation
  bool coarse;                                // GELU to 8e-5, SiLU to a relative 7e-5; always for integers
  const void* residual;
  Element residual_element;
  int64_t residual_row;
  void* y;
  Element y_element;
  int64_t y_row;
  RowsOut before, gate_before;  // null data: not kept
  // The values of the first row's sample for this panel, or null; samples are `sample_row` apart.
  // `sample_begin` rows of the first sample precede this tile.
  const float* sample_scale;
  int64_t sample_row, sample_rows, sample_begin;
};

struct RowsToNorm {
  int64_t rows, columns;
  const void* x;
  Element x_element;
  int64_t x_row;
  bool centred;
  const float *weight, *bias;
  float eps;
  void* y;
  Element y_element;
  int64_t y_row;
  int64_t first, sample_rows;  // as in ReadyRows
};

// Weights of `outputs` <= panel outputs as words of two bfloat16: to[k][n] = (w[n][2 k], w[n][2 k + 1]),
// padded with zeros to the panel and the last word. One of the strides is 1.
struct PairsToPack {
  const float* weight;
  int64_t row, column;  // strides of outputs and inputs
  int64_t in, outputs, words;
  uint32_t* to;
};

// The row layout of products.
struct ProductRows {
  int64_t together = 8;  // rows of x per product call
  int64_t least = 1;     // fewer rows take as long as this number
  bool epilogue_meanwhile = false;
  // Called around products, in each thread; null: nothing to do.
  void (*open)() = nullptr;
  void (*close)() = nullptr;
  // Transposes words of `count` <= kTransposed rows, to[w][r] for w < words; writes kTransposed of each. If
  // not null, products read a along k (a_k is 1), and this makes such rows from columns.
  static constexpr int64_t kTransposed = 16;
  void (*transpose)(const float* from, int64_t from_row, int64_t count, int64_t words, float* to,
                    int64_t to_row) = nullptr;
};

struct LinearFunctions {
  WordForm form;
  int64_t panel;  // columns per panel
  void (*product)(const ProductTile&);
  void (*ready)(const ReadyRows&);
  void (*epilogue)(const EpilogueTile&, int64_t begin, int64_t end);  // rows
  void (*norm)(const RowsToNorm&);
  void (*widen)(const uint16_t* from, float* to, int64_t count);
  // Writes words of two numbers, rounding floats; null second: zeros.
  void (*pair)(const void* first, const void* second, Element element, uint32_t* to, int64_t count);
  void (*pack_pairs)(const PairsToPack&);
  void (*add_row)(const void* row, Element element, float* sums, int64_t count);  // sums += row
  ProductRows rows = {};
};

// Products of pairs of bfloat16 and of bytes on tile registers.
struct LinearTiles {
  void (*pairs)(const ProductTile&);
  void (*bytes)(const ProductTile&);
  ProductRows rows;
};

}  // namespace tessera::kernels
