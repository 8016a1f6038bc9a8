// The forms of the mLSTM cell's gradients, by head dims. A file of its own: its kernels take minutes to compile.
#include "kernels/mlstm/mlstm_gradient.cuh"
#include "kernels/mlstm/mlstm_states.cuh"

namespace tessera::kernels::gpu {
namespace {

template <int kDim>
bool takes_gradients(const MlstmGradients& call) {
  return fits(call) && call.key_dim == kDim && call.value_dim == kDim && vectors(call.q) &&
         vectors(call.dh) && vectors(call.h) && vectors(call.h_rest) && vectors(call.dc) &&
         (call.c || call.tokens <= call.chunk);
}
template <int kDim, int kSlice, MlstmInput kOf>
int run_gradient(const MlstmGradients& call, Stream stream) {
  const int64_t tiles = chunks_of(call.tokens, call.chunk) * (call.chunk / kTileRows);
  const Block grid = {tiles, kDim / kSlice, call.batch * call.heads};
  return call.c ? launch<MlstmGradientKernel<kDim, kSlice, kOf, true>>(call, grid, stream)
                : launch<MlstmGradientKernel<kDim, kSlice, kOf, false>>(call, grid, stream);
}
template <int kDim, int kSlice>
int run_gradients(const MlstmGradients& call, Stream stream) {
  const int64_t items = call.batch * call.heads, row_blocks = (items * call.tokens + 3) / 4;
  static_assert(MlstmRowGradientKernel::kAtOnce == 4);
  int failed = launch<MlstmRowGradientKernel>(call, {row_blocks, 1, 1}, stream);
  if (!failed && call.c)
    failed =
        launch<MlstmStateGradientsKernel<kSlice>>(call, {mlstm_slices(kDim), kDim / kSlice, items}, stream);
  if (!failed) failed = run_gradient<kDim, kSlice, MlstmInput::q>(call, stream);
  if (!failed) failed = run_gradient<kDim, kSlice, MlstmInput::k>(call, stream);
  if (!failed) failed = run_gradient<kDim, kSlice, MlstmInput::v>(call, stream);
  if (failed) return failed;
  return launch<MlstmGateGradientKernel<kDim, kSlice>>(call, {chunks_of(call.tokens, call.chunk), 1, items},
                                                       stream);
}
// By head dim, and the columns of a gradient that one block computes.
template <int kDim, int kSlice>
constexpr Form<MlstmGradients> gradients(const char* name) {
  return {name, 80, MlstmGradientKernel<kDim, kSlice, MlstmInput::q, true>::kShared, takes_gradients<kDim>,
          run_gradients<kDim, kSlice>};
}

constexpr Form<MlstmGradients> kGradients[] = {
    gradients<48, 48>("tile48"),   gradients<64, 64>("tile64"),   gradients<96, 96>("tile96"),
    gradients<128, 64>("tile128"), gradients<192, 96>("tile192"), gradients<256, 64>("tile256"),
    gradients<384, 64>("tile384"), gradients<512, 64>("tile512"),
};

}  // namespace

Forms<MlstmGradients> mlstm_backward_forms() {
  return {kGradients, sizeof(kGradients) / sizeof(*kGradients)};
}

}  // namespace tessera::kernels::gpu
