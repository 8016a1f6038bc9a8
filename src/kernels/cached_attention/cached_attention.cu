#include "kernels/cached_attention/cached_attention.cuh"

namespace tessera::kernels::gpu {
namespace {

template <int kParts>
bool takes(const CachedAttention& call) {
  constexpr int64_t kMostChunks = 65535, kMostHeads = int64_t{1} << 31;  // of a grid
  return call.batch > 0 && call.kv_heads > 0 && call.room > 0 && call.heads % call.kv_heads == 0 &&
         call.heads / call.kv_heads <= kCachedGroup && call.dim > 0 && call.dim % 8 == 0 &&
         call.dim <= 8 * kParts && cached_chunks(call.room) <= kMostChunks &&
         call.batch < kMostHeads / call.heads && vectors(call.k) && vectors(call.v);
}

template <int kParts>
int run(const CachedAttention& call, Stream stream) {
  const Block grid = {call.batch * call.kv_heads, cached_chunks(call.room), 1};
  const int failed = launch<CachedChunkKernel<kParts>>(call, grid, stream);
  return failed ? failed : launch<CachedJoinKernel>(call, {call.batch * call.heads, 1, 1}, stream);
}

constexpr Form<CachedAttention> kForms[] = {
    {"chunks64", 80, CachedChunkKernel<8>::kShared, takes<8>, run<8>},
    {"chunks128", 80, CachedChunkKernel<16>::kShared, takes<16>, run<16>},
    {"chunks256", 80, CachedChunkKernel<32>::kShared, takes<32>, run<32>}};

}  // namespace

Forms<CachedAttention> cached_attention_forms() { return {kForms, 3}; }

}  // namespace tessera::kernels::gpu
