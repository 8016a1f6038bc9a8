// The functions that an instruction set gives to linear layers. C headers only: per-ISA files include it.
#pragma once

#include <stdint.h>

#include "kernels/types.h"

namespace tessera::kernels {

// How a panel of weights is stored. A word is what is broadcast from a row of x and multiplied by a vector of
// columns: one float, two bfloat16, four bytes or two int16.
enum class WordForm : int32_t { single, bf16_pair, byte_quad, int16_pair };
constexpr int64_t numbers_per_word(WordForm form) {
  return form == WordForm::single ? 1 : form == WordForm::byte_quad ? 4 : 2;
}

struct EpilogueTile;

// sums[m][n] = start[n] + sum_k a[m * a_row + k * a_k] . b[k][n] for m < rows and the n of one panel; or
// added to what is there.
struct ProductTile {
  const void* a;
  int64_t a_row, a_k;  // in words
  const void* b;       // k rows of a panel
  int64_t rows, k;     // k in words
  void* sums;          // float, or int32 for the integer forms
  int64_t sums_row;
  bool add;
  const void* start;  // null: zeros
  // The epilogue behind the products, whose lines are prefetched along with them (stores wait for theirs as
  // loads do), or null.
  const EpilogueTile* ahead = nullptr;
  // Where products leave vectors idle: what is to be finished meanwhile, or null.
  const EpilogueTile* meanwhile = nullptr;
  void (*epilogue)(const EpilogueTile&, int64_t begin, int64_t end) = nullptr;
};

// Rows of x made ready for products: normalised and converted.
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
  bool round;                  // single form: to bfloat16 first
  void* out;                   // (rows, words)
  float static_scale;          // integer forms: 0 = each row's own
  float* scales;               // integer forms: (rows)
  int64_t first, sample_rows;  // row 0's number among all rows; RowNorm's
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
  bool coarse;                                // GELU to 8e-5, SiLU to 7e-5 of itself; integers: always
  const void* residual;
  Element residual_element;
  int64_t residual_row;
  void* y;
  Element y_element;
  int64_t y_row;
  RowsOut before, gate_before;  // null data: not wanted
  // The numbers of the first row's sample at this panel, or null; each sample's lie `sample_row` behind those of
  // the one before. `sample_begin` rows of the first sample are in front of this tile.
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
// zeros where a panel or the last word is only filled up. One of the strides is 1.
struct PairsToPack {
  const float* weight;
  int64_t row, column;  // strides of outputs and inputs
  int64_t in, outputs, words;
  uint32_t* to;
};

// How products take their rows.
struct ProductRows {
  int64_t together = 8;  // rows of x for which the sums of a panel are computed at once
  int64_t least = 1;     // what does not fill so many takes as long
  bool epilogue_meanwhile = false;
  // Around products, in each thread; null: nothing to do.
  void (*open)() = nullptr;
  void (*close)() = nullptr;
  // Words of `count` <= kTransposed rows transposed, to[w][r] for w < words; writes kTransposed of each. Not
  // null: products read a along k, a_k is 1, and this makes such rows of columns.
  static constexpr int64_t kTransposed = 16;
  void (*transpose)(const float* from, int64_t from_row, int64_t count, int64_t words, float* to,
                    int64_t to_row) = nullptr;
};

struct LinearFunctions {
  WordForm form;
  int64_t panel;  // columns of a panel
  void (*product)(const ProductTile&);
  void (*ready)(const ReadyRows&);
  void (*epilogue)(const EpilogueTile&, int64_t begin, int64_t end);  // rows
  void (*norm)(const RowsToNorm&);
  void (*widen)(const uint16_t* from, float* to, int64_t count);
  // Words of two numbers, rounded where they are floats; null second: zeros.
  void (*pair)(const void* first, const void* second, Element element, uint32_t* to, int64_t count);
  void (*pack_pairs)(const PairsToPack&);
  void (*add_row)(const void* row, Element element, float* sums, int64_t count);  // sums += row
  ProductRows rows = {};
};

// Products on tile registers, of pairs of bfloat16 and of bytes.
struct LinearTiles {
  void (*pairs)(const ProductTile&);
  void (*bytes)(const ProductTile&);
  ProductRows rows;
};

}  // namespace tessera::kernels
