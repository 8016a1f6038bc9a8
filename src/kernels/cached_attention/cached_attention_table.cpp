// The implementations; checks the arguments and divides the heads among threads.
#include <iterator>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/cached_attention/cached_attention.h"
#include "kernels/memory.h"
#include "kernels/table.h"

namespace tessera::kernels {

TESSERA_IMPLEMENTATIONS(CachedAttentionFunctions, cached_attention_functions);

namespace {

constexpr Table<CachedAttentionFunctions> kTable{kImplementations, std::size(kImplementations)};
constexpr int64_t kWorthSharing = 1 << 15;  // multiply-adds per head of keys

}  // namespace

void cached_attention(const CachedAttention& call) {
  check(call.batch >= 0 && call.kv_heads >= 1 && call.heads >= 1 && call.heads % call.kv_heads == 0,
        "cached_attention: ", call.heads, " heads of queries, ", call.kv_heads,
        " of keys, must be a multiple of them");
  check(call.keys >= 1 && call.dim >= 1, "cached_attention: ", call.keys, " keys of ", call.dim, " channels");
  check(!call.cos == !call.sin && (!call.cos || call.dim % 2 == 0),
        "cached_attention: a rotation needs cosines, sines and an even number of channels, not ", call.dim);
  if (call.batch == 0) return;
  check(call.q.data && call.new_k.data && call.new_v.data && call.k.data && call.v.data && call.out.data,
        "cached_attention: a tensor is missing");
  const CachedAttentionFunctions& functions = choose(kTable);
  const int64_t work = call.heads / call.kv_heads * call.keys * call.dim;
  parallel_for(call.batch * call.kv_heads, 1 + kWorthSharing / work, [&](int64_t begin, int64_t end) {
    const auto bytes =
        static_cast<size_t>(call.heads / call.kv_heads * (call.keys + call.dim)) * sizeof(float);
    functions.attend(call, begin, end, static_cast<float*>(thread_scratch(ScratchFor::kernel, bytes)));
  });
}

}  // namespace tessera::kernels
