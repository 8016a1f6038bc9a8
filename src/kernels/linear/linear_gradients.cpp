// Gradients of the weights of linear layers: dW = dy^T x, with blocks of rows packed for the products.
#include <algorithm>
#include <cstring>

#include "core/threads.h"
#include "kernels/linear/linear_data.h"
#include "kernels/memory.h"

namespace tessera::kernels {
namespace {

// Words per column of x and dy at a time: more words mean fewer passes over the sums, as long as packed dy
// fits into the last-level cache. kRowsOfSums: rows summed in float before they are added to db.
constexpr int64_t kWords = 800, kWordsOfTiles = 400, kPackedBytes = 8 << 20, kRowsOfSums = 256;

struct Job {
  const LinearGradients& call;
  const LinearFunctions& functions;
  bool pairs() const { return functions.form == WordForm::bf16_pair; }
  int64_t rows_a_word() const { return pairs() ? 2 : 1; }
  int64_t words_of(int64_t rows) const { return ceil_div(rows, rows_a_word()); }
  // Returns the words of a block of rows: equal except in the last block, and whole tiles if words are
  // transposed.
  int64_t block_words() const {
    const int64_t fits = std::max<int64_t>(kPackedBytes / (call.out * 4), 64);
    const int64_t words = words_of(call.rows),
                  most = std::min(functions.rows.transpose ? kWordsOfTiles : kWords, fits);
    const int64_t equal = ceil_div(words, ceil_div(words, most));
    return functions.rows.transpose ? ceil_div(equal, ProductRows::kTransposed) * ProductRows::kTransposed
                                    : equal;
  }
  int64_t tile_rows() const { return functions.rows.together; }
};

// Rows [first, first + count) of x and dy.
struct Block {
  int64_t first, count;
};

// Rows are prefetched this many words in advance, since they are far apart in memory and only a few lines of
// each are read at a time.
constexpr int64_t kWordsAhead = 4;

// Writes `columns` words of rows first + 0 (and 1, if a word holds two) of a matrix from `column` on.
void words_of_rows(const Job& job, const Rows& from, int64_t first, int64_t rows, int64_t column,
                   int64_t columns, void* to) {
  const char* at = element_at(from.data, from.element, first * from.row + column);
  const int64_t step = job.rows_a_word();
  fetch_rows(element_at(at, from.element, kWordsAhead * step * from.row), from.element, from.row, step,
             columns);
  if (job.pairs())
    job.functions.pair(at, rows > 1 ? element_at(at, from.element, from.row) : nullptr, from.element,
                       static_cast<uint32_t*>(to), columns);
  else if (from.element == Element::f32)
    std::memcpy(to, at, static_cast<size_t>(columns) * 4);
  else
    job.functions.widen(reinterpret_cast<const uint16_t*>(at), static_cast<float*>(to), columns);
}

// Number of outputs of dy that are packed together: a few tiles, since rows at distances of a power of two
// would evict each other from the cache.
constexpr int64_t kGroup = 64;

// Packs groups [begin, end) of dy as rows of words, [outputs][block_words()].
void pack_transposed(const Job& job, const Block& block, int64_t begin, int64_t end, float* to) {
  constexpr int64_t kTransposed = ProductRows::kTransposed;
  float rows[kTransposed * kGroup] = {};
  const int64_t words = job.words_of(block.count), step = job.rows_a_word(), row = job.block_words();
  for (int64_t o = begin * kGroup; o < std::min(end * kGroup, job.call.out); o += kGroup) {
    const int64_t outputs = std::min(kGroup, job.call.out - o);
    for (int64_t k = 0; k < words; k += kTransposed) {
      for (int64_t i = k; i < std::min(words, k + kTransposed); ++i)
        words_of_rows(job, job.call.dy, block.first + i * step, block.count - i * step, o, outputs,
                      rows + (i - k) * kGroup);
      job.functions.rows.transpose(rows, kGroup, std::min(kTransposed, words - k), outputs, to + o * row + k,
                                   row);
    }
  }
}

// Packs groups [begin, end) of dy for the products: as above, or as tiles of outputs, [tiles][words][rows of
// a tile].
void pack_outputs(const Job& job, const Block& block, int64_t begin, int64_t end, float* to) {
  if (job.functions.rows.transpose) return pack_transposed(job, block, begin, end, to);
  float row[kGroup] = {};
  const int64_t words = job.words_of(block.count), step = job.rows_a_word(), tile = job.tile_rows();
  for (int64_t o = begin * kGroup; o < std::min(end * kGroup, job.call.out); o += kGroup) {
    const int64_t outputs = std::min(kGroup, job.call.out - o);
    std::fill(row + outputs, std::end(row), 0.0f);
    for (int64_t k = 0; k < words; ++k) {
      words_of_rows(job, job.call.dy, block.first + k * step, block.count - k * step, o, outputs, row);
      for (int64_t t = 0; t * tile < outputs; ++t)
        std::memcpy(to + o * words + (t * words + k) * tile, row + t * tile, static_cast<size_t>(tile) * 4);
    }
  }
}

// Packs one panel of columns of x, [words][panel].
void pack_inputs(const Job& job, const Block& block, int64_t column, float* to) {
  const int64_t words = job.words_of(block.count), step = job.rows_a_word(), panel = job.functions.panel;
  const int64_t columns = std::min(panel, job.call.in - column);
  for (int64_t k = 0; k < words; ++k, to += panel) {
    words_of_rows(job, job.call.x, block.first + k * step, block.count - k * step, column, columns, to);
    std::fill(to + columns, to + panel, 0.0f);
  }
}

// Adds the products of packed dy and x to dW, for outputs [begin, end) and one panel of columns.
void add_panel(const Job& job, const float* dy, const float* x, int64_t words, int64_t column, int64_t begin,
               int64_t end, bool add, float* edge) {
  const LinearGradients& call = job.call;
  const int64_t panel = job.functions.panel, columns = std::min(panel, call.in - column);
  const int64_t tile = job.tile_rows();
  const bool transposed = job.functions.rows.transpose != nullptr;
  for (int64_t o = begin; o < end; o += tile) {
    const int64_t outputs = std::min(tile, end - o);
    float* to = call.weight + o * call.in + column;
    const bool direct = columns == panel;
    if (const int64_t next = o + tile; add && direct && !transposed && next < end)
      fetch_rows(to + tile * call.in, Element::f32, call.in, std::min(tile, end - next), columns);
    if (!direct && add)
      for (int64_t m = 0; m < outputs; ++m) std::copy_n(to + m * call.in, columns, edge + m * panel);
    job.functions.product({dy + o * (transposed ? job.block_words() : words),
                           transposed ? job.block_words() : 1, transposed ? 1 : tile, x, outputs, words,
                           direct ? to : edge, direct ? call.in : panel, add, nullptr});
    if (!direct)
      for (int64_t m = 0; m < outputs; ++m) std::copy_n(edge + m * panel, columns, to + m * call.in);
  }
}

// Computes db of outputs [begin, end), summing kRowsOfSums rows at a time.
void bias_share(const Job& job, int64_t begin, int64_t end) {
  const LinearGradients& call = job.call;
  const auto count = static_cast<size_t>(end - begin);
  auto* sums = static_cast<float*>(thread_scratch(ScratchFor::kernel, count * 4));
  std::fill_n(call.bias + begin, count, 0.0f);
  for (int64_t first = 0; first < call.rows; first += kRowsOfSums) {
    std::fill_n(sums, count, 0.0f);
    for (int64_t r = first; r < std::min(call.rows, first + kRowsOfSums); ++r)
      job.functions.add_row(element_at(call.dy.data, call.dy.element, r * call.dy.row + begin),
                            call.dy.element, sums, end - begin);
    for (size_t o = 0; o < count; ++o) call.bias[begin + static_cast<int64_t>(o)] += sums[o];
  }
}

// Adds a block of rows to tiles [begin, end) of dW, consecutive within a panel of columns.
void weight_share(const Job& job, const Block& block, const float* dy, int64_t begin, int64_t end) {
  const int64_t words = job.words_of(block.count), width = job.functions.panel, size = words * width;
  const int64_t tile = job.tile_rows(), tiles = ceil_div(job.call.out, tile);
  auto* x =
      static_cast<float*>(thread_scratch(ScratchFor::kernel, static_cast<size_t>(size + tile * width) * 4));
  const OpenProducts open(job.functions);
  while (begin < end) {
    const int64_t column = begin / tiles * width, first = begin % tiles;
    const int64_t last = std::min(tiles, first + end - begin);
    pack_inputs(job, block, column, x);
    add_panel(job, dy, x, words, column, first * tile, std::min(job.call.out, last * tile), block.first > 0,
              x + size);
    begin += last - first;
  }
}

// Divides the packing of dy, then the tiles of dW, among threads.
void weight_gradient(const Job& job, bool shared) {
  const LinearGradients& call = job.call;
  const int64_t words = job.block_words(), rows = words * job.rows_a_word();
  const int64_t panels = ceil_div(call.in, job.functions.panel), groups = ceil_div(call.out, kGroup);
  const int64_t tiles = panels * ceil_div(call.out, job.tile_rows());
  const auto size = static_cast<size_t>(ceil_div(call.out, job.tile_rows()) * job.tile_rows() * words * 4);
  auto* dy = static_cast<float*>(thread_scratch(ScratchFor::shared, size));
  for (int64_t first = 0; first < call.rows; first += rows) {
    const Block block{first, std::min(rows, call.rows - first)};
    parallel_for(groups, shared ? 1 : groups,
                 [&](int64_t begin, int64_t end) { pack_outputs(job, block, begin, end, dy); });
    parallel_for(tiles, shared ? 1 : tiles,
                 [&](int64_t begin, int64_t end) { weight_share(job, block, dy, begin, end); });
  }
}

// Returns the float functions except for pairs of bfloat16, the only form with other inputs.
const LinearFunctions* functions_for(const LinearGradients& call) {
  const LinearFunctions* functions = choose_linear(call.arithmetic).functions;
  return functions && functions->form == WordForm::bf16_pair ? functions
                                                             : choose_linear(Arithmetic::f32).functions;
}

}  // namespace

void linear_gradients(const LinearGradients& call) {
  check(call.rows >= 0 && call.in >= 1 && call.out >= 1, "linear_gradients: ", call.rows, " rows of ",
        call.in, " and ", call.out);
  check_rows("linear_gradients", "x", call.x.row, call.in, call.rows, call.x.data);
  check_rows("linear_gradients", "dy", call.dy.row, call.out, call.rows, call.dy.data);
  check(call.weight != nullptr, "linear_gradients: dW is missing");
  check(call.arithmetic != Arithmetic::int8, "linear_gradients: int8 has no gradients");
  const LinearFunctions* functions = functions_for(call);
  if (!functions) return linear_gradients_reference(call);
  if (call.rows == 0) {
    std::fill_n(call.weight, call.in * call.out, 0.0f);
    if (call.bias) std::fill_n(call.bias, call.out, 0.0f);
    return;
  }
  const Job job{call, *functions};
  const bool shared = call.rows * call.in * call.out >= kLinearWorthSharing;
  weight_gradient(job, shared);
  if (call.bias)
    parallel_for(call.out, shared ? 64 : call.out,
                 [&job](int64_t begin, int64_t end) { bias_share(job, begin, end); });
}

}  // namespace tessera::kernels
