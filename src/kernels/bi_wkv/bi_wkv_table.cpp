// The implementations; checks the arguments and divides samples and channels among threads.
#include <algorithm>
#include <iterator>
#include <vector>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/bi_wkv/bi_wkv.h"
#include "kernels/memory.h"

namespace tessera::kernels {

TESSERA_IMPLEMENTATIONS(BiWkvFunctions, bi_wkv_functions);

Table<BiWkvFunctions> bi_wkv_table() { return {kImplementations, std::size(kImplementations)}; }

namespace {

void check_call(const BiWkv& call) {
  check(call.batch >= 0 && call.tokens >= 1 && call.channels >= 1, "bi_wkv: ", call.batch, " samples of ",
        call.tokens, " tokens, ", call.channels, " channels");
  check(call.batch == 0 || (call.w && call.u && call.k.data && call.v.data), "bi_wkv: a tensor is missing");
}

// Calls work(piece) for every sample and vector of channels.
template <class Work>
void each_piece(const BiWkv& call, const BiWkvFunctions& functions, const Work& work) {
  const int64_t vectors = (call.channels + functions.lanes - 1) / functions.lanes;
  const auto bytes = static_cast<size_t>(call.tokens * kBiWkvScratch * functions.lanes) * sizeof(float);
  parallel_for(call.batch * vectors, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      BiWkvPiece piece;
      piece.sample = i / vectors;
      piece.channel = i % vectors * functions.lanes;
      piece.count = std::min(functions.lanes, call.channels - piece.channel);
      piece.scratch = static_cast<float*>(thread_scratch(ScratchFor::kernel, bytes));
      work(piece);
    }
  });
}

// Sums over the samples into to[c].
void sum_samples(const BiWkv& call, const std::vector<float>& from, float* to) {
  for (int64_t c = 0; c < call.channels; ++c) {
    double total = 0;
    for (int64_t sample = 0; sample < call.batch; ++sample)
      total += from[static_cast<size_t>(sample * call.channels + c)];
    to[c] = static_cast<float>(total);
  }
}

}  // namespace

void bi_wkv(const BiWkvForward& call) {
  check_call(call);
  const BiWkvFunctions& functions = choose(bi_wkv_table());
  each_piece(call, functions, [&](const BiWkvPiece& piece) { functions.forward(call, piece); });
}

void bi_wkv_backward(const BiWkvBackward& call) {
  check_call(call);
  check(call.gw && call.gu && (call.batch == 0 || call.gy.data), "bi_wkv_backward: a tensor is missing");
  const BiWkvFunctions& functions = choose(bi_wkv_table());
  std::vector<float> gw(static_cast<size_t>(call.batch * call.channels)), gu(gw.size());
  each_piece(call, functions, [&](const BiWkvPiece& given) {
    BiWkvPiece piece = given;
    piece.gw = gw.data() + piece.sample * call.channels + piece.channel;
    piece.gu = gu.data() + piece.sample * call.channels + piece.channel;
    functions.backward(call, piece);
  });
  sum_samples(call, gw, call.gw);
  sum_samples(call, gu, call.gu);
}

}  // namespace tessera::kernels
