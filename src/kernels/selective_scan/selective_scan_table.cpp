// The implementations; checks the arguments and divides samples and channels among threads.
#include <algorithm>
#include <iterator>
#include <vector>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/memory.h"
#include "kernels/selective_scan/selective_scan.h"

namespace tessera::kernels {

TESSERA_IMPLEMENTATIONS(SelectiveScanFunctions, selective_scan_functions);

Table<SelectiveScanFunctions> selective_scan_table() {
  return {kImplementations, std::size(kImplementations)};
}

namespace {

void check_call(const SelectiveScan& call) {
  check(call.batch >= 0 && call.tokens >= 1 && call.channels >= 1 && call.states >= 1 && call.groups >= 1 &&
            call.channels % call.groups == 0,
        "selective_scan: ", call.batch, " samples of ", call.tokens, " tokens, ", call.channels,
        " channels in ", call.groups, " groups, ", call.states, " states");
  check(call.batch == 0 || (call.u.data && call.delta.data && call.a && call.b.data && call.c.data),
        "selective_scan: a tensor is missing");
}

int64_t blocks_of_group(const SelectiveScan& call) {
  return (call.channels / call.groups + kScanBlock - 1) / kScanBlock;
}

// Calls work(piece, block) for every sample and block of channels.
template <class Work>
void each_piece(const SelectiveScan& call, float* kept, const SelectiveScanFunctions& functions,
                const Work& work) {
  const int64_t width = call.channels / call.groups, blocks = blocks_of_group(call);
  const int64_t of_channel = scan_chunks(call.tokens) * call.states;
  const auto bytes = static_cast<size_t>(scan_scratch(call.states, functions.lanes)) * sizeof(float);
  parallel_for(call.batch * call.groups * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t block = i % blocks, first = block * kScanBlock;
      ScanPiece piece;
      piece.sample = i / (blocks * call.groups);
      piece.group = i / blocks % call.groups;
      piece.channel = piece.group * width + first;
      piece.count = std::min(kScanBlock, width - first);
      piece.scratch = static_cast<float*>(thread_scratch(ScratchFor::kernel, bytes));
      if (kept) piece.kept = kept + ((i / blocks) * round_up16(width) + first) * of_channel;
      work(piece, i);
    }
  });
}

// Sums `count` rows of `size` numbers into to[i].
void sum_rows(const std::vector<float>& from, int64_t count, int64_t size, float* to) {
  if (!to) return;
  parallel_for(size, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      double total = 0;
      for (int64_t row = 0; row < count; ++row) total += from[static_cast<size_t>(row * size + i)];
      to[i] = static_cast<float>(total);
    }
  });
}

// The sums of the blocks of each group, (blocks, tokens, states) -> rows of (tokens, groups * states).
void sum_blocks(const SelectiveScan& call, const std::vector<float>& from, float* to) {
  const int64_t blocks = blocks_of_group(call), size = call.tokens * call.states;
  parallel_for(call.batch * call.groups, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t at = 0; at < size; ++at) {
        double total = 0;
        for (int64_t block = 0; block < blocks; ++block)
          total += from[static_cast<size_t>((i * blocks + block) * size + at)];
        const int64_t row = i / call.groups * call.tokens + at / call.states;
        to[(row * call.groups + i % call.groups) * call.states + at % call.states] =
            static_cast<float>(total);
      }
  });
}

}  // namespace

void selective_scan(const SelectiveScanForward& call) {
  check_call(call);
  const SelectiveScanFunctions& functions = choose(selective_scan_table());
  each_piece(call, call.kept, functions,
             [&](const ScanPiece& piece, int64_t) { functions.forward(call, piece); });
}

void selective_scan_backward(const SelectiveScanBackward& call) {
  check_call(call);
  check(call.kept && call.ga && call.gb && call.gc, "selective_scan_backward: a tensor is missing");
  const SelectiveScanFunctions& functions = choose(selective_scan_table());
  const int64_t pieces = call.batch * call.groups * blocks_of_group(call), size = call.tokens * call.states;
  const int64_t all = call.batch * call.channels;
  std::vector<float> gb(static_cast<size_t>(pieces * size)), gc(gb.size());
  std::vector<float> ga(static_cast<size_t>(all * call.states)), gd(static_cast<size_t>(all)),
      gbias(gd.size());
  each_piece(call, call.kept, functions, [&](const ScanPiece& given, int64_t number) {
    ScanPiece piece = given;
    const int64_t channel = piece.sample * call.channels + piece.channel;
    piece.gb = gb.data() + number * size;
    piece.gc = gc.data() + number * size;
    piece.ga = ga.data() + channel * call.states;
    piece.gd = gd.data() + channel;
    piece.gdelta_bias = gbias.data() + channel;
    functions.backward(call, piece);
  });
  sum_blocks(call, gb, call.gb);
  sum_blocks(call, gc, call.gc);
  sum_rows(ga, call.batch, call.channels * call.states, call.ga);
  sum_rows(gd, call.batch, call.channels, call.gd);
  sum_rows(gbias, call.batch, call.channels, call.gdelta_bias);
}

}  // namespace tessera::kernels
