// The forms of attention over few keys, by head dims and keys.
#include "kernels/attention/short_attention_gradient.cuh"

namespace tessera::kernels::gpu {
namespace {

constexpr int64_t kMostKeys = 256, kMostQueries = 1 << 20;

int64_t tiles_of(const AttentionForward& call) { return (call.queries + kTileRows - 1) / kTileRows; }

bool fits_call(const AttentionForward& call) {
  constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;  // of a grid's x
  const bool sizes = call.batch > 0 && call.heads > 0 && call.queries > 0 && call.queries <= kMostQueries &&
                     call.keys > 0 && call.keys <= kMostKeys && call.first_query >= 0 &&
                     call.first_query <= kMostQueries;
  return sizes && call.batch <= kMostBlocks / tiles_of(call) / call.heads && call.dim > 0 &&
         call.dim % 8 == 0 && vectors(call.q) && vectors(call.k) && vectors(call.v) && vectors(call.out);
}

template <int kWidth>
bool takes(const AttentionForward& call) {
  return fits_call(call) && call.dim <= kWidth;
}
template <int kWidth>
int run(const AttentionForward& call, Stream stream) {
  return launch<ShortAttentionKernel<kWidth>>(call, {call.batch * call.heads * tiles_of(call), 1, 1}, stream);
}
template <int kWidth>
constexpr Form<AttentionForward> forward(const char* name) {
  return {name, 80, ShortAttentionKernel<kWidth>::kShared, takes<kWidth>, run<kWidth>};
}

template <int kWidth, int kWarps>
bool takes_gradients(const AttentionBackward& call) {
  return takes<kWidth>(call.of) && call.of.keys <= 16 * kWarps && call.of.lse && vectors(call.dout) &&
         vectors(call.dq) && vectors(call.dk) && vectors(call.dv);
}
template <int kWidth, int kWarps>
int run_gradients(const AttentionBackward& call, Stream stream) {
  return launch<ShortAttentionGradientKernel<kWidth, kWarps>>(call, {call.of.batch * call.of.heads, 1, 1},
                                                              stream);
}
template <int kWidth, int kWarps>
constexpr Form<AttentionBackward> gradients(const char* name) {
  return {name, 80, ShortAttentionGradientKernel<kWidth, kWarps>::kShared, takes_gradients<kWidth, kWarps>,
          run_gradients<kWidth, kWarps>};
}

constexpr Form<AttentionForward> kForward[] = {forward<32>("short32"), forward<64>("short64"),
                                               forward<96>("short96"), forward<128>("short128")};
constexpr Form<AttentionBackward> kBackward[] = {
    gradients<32, 4>("short32x64"), gradients<32, 13>("short32x208"), gradients<32, 16>("short32x256"),
    gradients<64, 4>("short64x64"), gradients<64, 13>("short64x208"), gradients<64, 16>("short64x256"),
};

}  // namespace

Forms<AttentionForward> attention_forms() { return {kForward, sizeof(kForward) / sizeof(*kForward)}; }
Forms<AttentionBackward> attention_backward_forms() {
  return {kBackward, sizeof(kBackward) / sizeof(*kBackward)};
}

}  // namespace tessera::kernels::gpu
