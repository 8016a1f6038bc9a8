// Runs linear layers: prepares each block of rows once, then passes every panel of weights over it.
#include "kernels/linear/linear.h"

#include <algorithm>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/linear/linear_data.h"
#include "kernels/memory.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kBlockBytes = 384 * 1024;  // bytes of prepared rows: they fit into the second-level cache
constexpr int64_t kTilesWorthSplitting = 4;  // tiles per thread, else threads share the columns
// With few rows, reading the weights from memory dominates the time.
constexpr int64_t kBytesWorthSharing = 1 << 19;

// A thread's share: rows [row, row_end) of panels [panel, panel_end). Excluded are the first tile of rows in
// panels below `first_from`, and the last one from panel `last_until` on.
struct ThreadRange {
  int64_t row, row_end, panel, panel_end, first_from, last_until;
};

struct Job {
  const PackedLinearData& w;
  const LinearForward& call;
  int64_t parts;
  bool by_rows;

  // Returns the beginning of part i in panels of tiles, rounded; a shorter last tile counts with its actual
  // cost.
  int64_t begin_of(int64_t i) const {
    const int64_t tile = w.tile_rows(), all = w.panels, full = call.rows / tile * all,
                  rest = call.rows % tile;
    const int64_t least = w.implementation.functions->rows.least, counted = ceil_div(rest, least) * least;
    const int64_t at = (full * tile + counted * all) * i / parts;
    const int64_t behind = at - full * tile;
    return behind <= 0 ? (at + tile / 2) / tile : full + (behind + counted / 2) / counted;
  }
  // If threads share the rows, divides a tile between them by its panels. Otherwise two threads would get 96
  // and 101 of an image's 197 rows.
  ThreadRange range(int64_t i) const {
    const int64_t all = w.panels;
    if (!by_rows) return {0, call.rows, all * i / parts, all * (i + 1) / parts, 0, all};
    const int64_t begin = begin_of(i), end = begin_of(i + 1);
    const int64_t last = ceil_div(end, all);  // past the end
    return {begin / all * w.tile_rows(), std::min(call.rows, last * w.tile_rows()), 0, all, begin % all,
            end % all ? end % all : all};
  }
};

Job plan(const PackedLinearData& w, const LinearForward& call) {
  const int64_t matrices = w.activation == Activation::silu_gate ? 2 : 1;
  const bool small = call.rows * w.in * w.out < kLinearWorthSharing &&
                     matrices * w.words * w.panel * w.panels * 4 < kBytesWorthSharing;
  const int64_t threads = small ? 1 : num_threads();
  const int64_t tiles = ceil_div(call.rows, w.tile_rows());
  const bool by_rows = tiles >= kTilesWorthSplitting * threads || tiles > w.panels;
  return {w, call, std::min(threads, by_rows ? tiles : w.panels), by_rows};
}

// A thread's working memory.
struct Workspace {
  int64_t tile;
  char* ready;
  float *row, *scales;
  char *sums, *gate_sums;
  Workspace(const PackedLinearData& w, int64_t block, int64_t columns) {
    // Two buffers: one is finished while sums go to the other.
    tile = aligned(w.tile_rows() * w.panel * 4);
    const int64_t sizes[] = {aligned(block * w.words * 4), aligned(columns * 4), aligned(block * 4), 2 * tile,
                             2 * tile};
    int64_t total = 0;
    for (const int64_t size : sizes) total += size;
    char* at = static_cast<char*>(thread_scratch(ScratchFor::kernel, static_cast<size_t>(total)));
    char* pieces[5];
    for (int i = 0; i < 5; ++i) pieces[i] = at, at += sizes[i];
    ready = pieces[0];
    row = reinterpret_cast<float*>(pieces[1]), scales = reinterpret_cast<float*>(pieces[2]);
    sums = pieces[3], gate_sums = pieces[4];
  }
};

// The prepared form of rows [row, row + rows), in place if they need no preparation.
struct Block {
  const void* words;
  int64_t row_words;
};
int64_t row_words(const Rows& rows) { return rows.element == Element::f32 ? rows.row : rows.row / 2; }
// True if products can read rows of x in place: words of one float or of two bfloat16. Pairs need an even
// number of columns and word alignment.
bool lie_ready(const Job& job) {
  const LinearForward& call = job.call;
  if (call.norm) return false;
  if (job.w.implementation.arithmetic == Arithmetic::f32) return call.x.element == Element::f32;
  const bool whole_words =
      call.x.row % 2 == 0 && job.w.in % 2 == 0 && reinterpret_cast<uintptr_t>(call.x.data) % 4 == 0;
  return job.w.implementation.functions->form == WordForm::bf16_pair && call.x.element == Element::bf16 &&
         whole_words;
}
Block make_ready(const Job& job, const Workspace& workspace, int64_t row, int64_t rows) {
  const LinearForward& call = job.call;
  const LinearFunctions& functions = *job.w.implementation.functions;
  const char* x = element_at(call.x.data, call.x.element, row * call.x.row);
  if (lie_ready(job)) return {x, row_words(call.x)};
  const RowNorm norm = call.norm ? *call.norm : RowNorm{};
  functions.ready({rows, job.w.in, job.w.words, x, call.x.element, call.x.row, call.norm != nullptr,
                   norm.centred, norm.weight, norm.bias, norm.eps, workspace.row, functions.form,
                   job.w.implementation.arithmetic == Arithmetic::bf16, workspace.ready, job.w.static_scale,
                   workspace.scales, row, norm.sample_rows});
  return {workspace.ready, job.w.words};
}

RowsOut part_of(const RowsOut& rows, int64_t row, int64_t column) {
  if (!rows.data) return {};
  return {const_cast<char*>(element_at(rows.data, rows.element, row * rows.row + column)), rows.element,
          rows.row};
}

const char* panel_of(const PackedLinearData& w, const PackedMatrix& matrix, int64_t panel) {
  return static_cast<const char*>(matrix.panels.get()) + panel * w.words * w.panel * 4;
}

template <class T>
const T* padded_at(const std::vector<T>& values, int64_t index) {
  return values.empty() ? nullptr : values.data() + index;
}

// Returns the epilogue for the products of panel `panel` on `count` rows from row `at` on, row `r` of the
// block. `second` selects the buffer for sums.
EpilogueTile epilogue_of(const Job& job, const Workspace& workspace, int64_t at, int64_t r, int64_t count,
                         int64_t panel, bool second) {
  const PackedLinearData& w = job.w;
  const LinearForward& call = job.call;
  const int64_t column = panel * w.panel;
  EpilogueTile epilogue{};
  epilogue.rows = count, epilogue.columns = std::min(w.panel, w.out - column);
  epilogue.sums = workspace.sums + second * workspace.tile,
  epilogue.gate_sums = workspace.gate_sums + second * workspace.tile;
  epilogue.sums_row = w.panel;
  epilogue.integer = w.implementation.arithmetic == Arithmetic::int8;
  epilogue.row_scales = workspace.scales + r;
  epilogue.scales = padded_at(w.weight.scales, column),
  epilogue.gate_scales = padded_at(w.gate.scales, column);
  epilogue.bias = padded_at(w.weight.bias, column), epilogue.gate_bias = padded_at(w.gate.bias, column);
  epilogue.out_scale = padded_at(w.out_scale, column);
  epilogue.activation = static_cast<int32_t>(w.activation);
  // Accurate enough if inputs and results are rounded to 8 bits.
  epilogue.coarse = w.implementation.arithmetic == Arithmetic::bf16 && call.y.element == Element::bf16;
  if (call.residual.data)
    epilogue.residual =
        element_at(call.residual.data, call.residual.element, at * call.residual.row + column);
  epilogue.residual_element = call.residual.element, epilogue.residual_row = call.residual.row;
  epilogue.y = const_cast<char*>(element_at(call.y.data, call.y.element, at * call.y.row + column));
  epilogue.y_element = call.y.element, epilogue.y_row = call.y.row;
  epilogue.before = part_of(call.before, at, column);
  epilogue.gate_before = part_of(call.gate_before, at, column);
  if (call.sample_scale) {
    epilogue.sample_scale = call.sample_scale + at / call.sample_rows * w.out + column;
    epilogue.sample_row = w.out, epilogue.sample_rows = call.sample_rows;
    epilogue.sample_begin = at % call.sample_rows;
  }
  return epilogue;
}

// Runs products and their epilogues; some epilogues run together with the next product.
class Pipeline {
 public:
  explicit Pipeline(const LinearFunctions& functions) : functions_(functions) {}
  bool second() const { return second_; }
  void product(ProductTile tile) {
    if (waits_) tile.meanwhile = &waiting_, tile.epilogue = functions_.epilogue;
    functions_.product(tile);
    waits_ = false;
  }
  void epilogue(const EpilogueTile& tile) {
    if (!functions_.rows.epilogue_meanwhile) return functions_.epilogue(tile, 0, tile.rows);
    waiting_ = tile, waits_ = true, second_ = !second_;
  }
  void flush() {
    if (waits_) functions_.epilogue(waiting_, 0, waiting_.rows);
    waits_ = false;
  }

 private:
  const LinearFunctions& functions_;
  EpilogueTile waiting_;
  bool waits_ = false, second_ = false;
};

// Computes panel `panel` for rows [begin, end) of a ready block that begins at row `row`.
void run_panel(const Job& job, const Workspace& workspace, const Block& block, int64_t row, int64_t begin,
               int64_t end, int64_t panel, Pipeline& pipeline) {
  const PackedLinearData& w = job.w;
  const int64_t column = panel * w.panel;
  for (int64_t r = begin; r < end; r += w.tile_rows()) {
    const int64_t count = std::min(w.tile_rows(), end - r);
    const EpilogueTile epilogue = epilogue_of(job, workspace, row + r, r, count, panel, pipeline.second());
    ProductTile tile{static_cast<const char*>(block.words) + r * block.row_words * 4,
                     block.row_words,
                     1,
                     panel_of(w, w.weight, panel),
                     count,
                     w.words,
                     const_cast<void*>(epilogue.sums),
                     w.panel,
                     false,
                     padded_at(w.weight.start, column)};
    tile.ahead = &epilogue;
    pipeline.product(tile);
    if (w.activation == Activation::silu_gate) {
      tile.b = panel_of(w, w.gate, panel), tile.sums = const_cast<void*>(epilogue.gate_sums);
      tile.start = padded_at(w.gate.start, column), tile.ahead = nullptr;
      pipeline.product(tile);
    }
    pipeline.epilogue(epilogue);
  }
}

void run_range(const Job& job, const ThreadRange& range) {
  const int64_t row_bytes = job.w.words * 4, rows = range.row_end - range.row, tile = job.w.tile_rows();
  if (rows <= 0) return;
  const int64_t most = std::max<int64_t>(kBlockBytes / row_bytes / tile, 1) * tile;
  // Blocks of equal size, to avoid a small last one.
  const int64_t blocks = ceil_div(rows, most), tiles = ceil_div(rows, tile);
  const Workspace workspace(job.w, ceil_div(tiles, blocks) * tile, job.w.in);
  const LinearFunctions& functions = *job.w.implementation.functions;
  const OpenProducts open(functions);
  Pipeline pipeline(functions);
  const int64_t last_tile = range.row + (tiles - 1) * tile;
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t begin = range.row + tiles * i / blocks * tile;
    const int64_t end = std::min(range.row_end, range.row + tiles * (i + 1) / blocks * tile);
    const Block block = make_ready(job, workspace, begin, end - begin);
    for (int64_t p = range.panel; p < range.panel_end; ++p) {
      const int64_t first = i == 0 && p < range.first_from ? tile : 0;
      run_panel(job, workspace, block, begin, first,
                (p < range.last_until ? end : std::min(end, last_tile)) - begin, p, pipeline);
    }
    pipeline.flush();
  }
}

}  // namespace

namespace {

void check_samples(const char* operation, int64_t rows, int64_t sample_rows) {
  check(sample_rows > 0 && rows % sample_rows == 0, operation, ": ", rows,
        " rows do not divide into samples of ", sample_rows, " rows");
}

}  // namespace

void linear_forward(const PackedLinear& weights, const LinearForward& call) {
  const PackedLinearData& w = weights.data();
  check(call.rows >= 0, "linear_forward: ", call.rows, " rows");
  check_rows("linear_forward", "x", call.x.row, w.in, call.rows, call.x.data);
  check_rows("linear_forward", "y", call.y.row, w.out, call.rows, call.y.data);
  if (call.residual.data)
    check_rows("linear_forward", "residual", call.residual.row, w.out, call.rows, call.residual.data);
  for (const RowsOut& kept : {call.before, call.gate_before})
    if (kept.data) check_rows("linear_forward", "a kept output", kept.row, w.out, call.rows, kept.data);
  check(!call.gate_before.data || w.activation == Activation::silu_gate,
        "linear_forward: gate_before without a gate");
  if (call.sample_scale) check_samples("linear_forward", call.rows, call.sample_rows);
  if (call.norm && call.norm->sample_rows) check_samples("linear_forward", call.rows, call.norm->sample_rows);
  if (call.rows == 0) return;
  if (!w.implementation.functions) return linear_forward_reference(w, call);
  const Job job = plan(w, call);
  parallel_for(job.parts, 1, [&job](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) run_range(job, job.range(i));
  });
}

void norm_forward(const NormForward& call) {
  check(call.rows >= 0 && call.columns >= 1, "norm_forward: ", call.rows, " rows of ", call.columns);
  check_rows("norm_forward", "x", call.x.row, call.columns, call.rows, call.x.data);
  check_rows("norm_forward", "y", call.y.row, call.columns, call.rows, call.y.data);
  if (call.norm.sample_rows) check_samples("norm_forward", call.rows, call.norm.sample_rows);
  const LinearFunctions* functions = choose_linear(Arithmetic::f32).functions;
  if (!functions) return norm_forward_reference(call);
  const struct {
    const NormForward& call;
    const LinearFunctions& functions;
  } job{call, *functions};
  const int64_t grain = std::max<int64_t>(1, (1 << 15) / call.columns);
  parallel_for(call.rows, grain, [&job](int64_t begin, int64_t end) {
    const NormForward& c = job.call;
    job.functions.norm({end - begin, c.columns, element_at(c.x.data, c.x.element, begin * c.x.row),
                        c.x.element, c.x.row, c.norm.centred, c.norm.weight, c.norm.bias, c.norm.eps,
                        const_cast<char*>(element_at(c.y.data, c.y.element, begin * c.y.row)), c.y.element,
                        c.y.row, begin, c.norm.sample_rows});
  });
}

}  // namespace tessera::kernels
