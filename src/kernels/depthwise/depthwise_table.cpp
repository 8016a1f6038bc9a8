// The implementations; checks the arguments and divides the pieces among threads.
#include <iterator>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/depthwise/depthwise.h"
#include "kernels/table.h"

namespace tessera::kernels {

TESSERA_IMPLEMENTATIONS(DepthwiseFunctions, depthwise_convolution);

namespace {

constexpr Table<DepthwiseFunctions> kTable{kImplementations, std::size(kImplementations)};

}  // namespace

void depthwise_convolution(const DepthwiseConvolution& call) {
  check(call.batch >= 0 && call.rows >= 1 && call.columns >= 1 && call.channels >= 1,
        "depthwise_convolution: ", call.batch, " samples of ", call.rows, " x ", call.columns, " cells of ",
        call.channels, " channels");
  check(call.batch == 0 || (call.x && call.y && call.weight), "depthwise_convolution: a tensor is missing");
  const DepthwiseFunctions& functions = choose(kTable);
  const int64_t groups = (call.channels + functions.lanes - 1) / functions.lanes,
                chunks = (call.columns + kDepthwiseColumns - 1) / kDepthwiseColumns;
  parallel_for(call.batch * chunks * groups, 1,
               [&](int64_t begin, int64_t end) { functions.convolve(call, begin, end); });
}

}  // namespace tessera::kernels
