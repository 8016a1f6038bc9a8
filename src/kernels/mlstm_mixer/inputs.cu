// The forms of the mLSTM mixer's inputs and of their gradients.
#include "kernels/mlstm_mixer/inputs_gradient.cuh"

#include "kernels/gpu/table.h"

namespace tessera::kernels::gpu {
namespace {

constexpr int64_t kMostBlocks = int64_t{1} << 31;

int64_t blocks_of(const MixerInputs& call) {
  using Kernel = MixerInputsKernel;
  const int64_t groups = call.batch * ((call.tokens + Kernel::kTokens - 1) / Kernel::kTokens);
  return (groups + Kernel::kWarps - 1) / Kernel::kWarps;
}

bool takes(const MixerInputs& call) {
  const bool shapes = call.batch > 0 && call.tokens > 0 && call.channels > 0 && call.channels % 8 == 0 &&
                      call.heads > 0 && call.heads <= kMixerHeads && call.kernel > 0 && call.row % 8 == 0 &&
                      call.sample % 8 == 0;
  const bool grid = call.columns == 0 || (call.kernel % 2 == 1 && call.tokens % call.columns == 0);
  return shapes && grid && blocks_of(call) < kMostBlocks && vectors(call.x) && vectors(call.conv_weight) &&
         vectors(call.q_weight) && vectors(call.k_weight) && vectors(call.v_weight) &&
         vectors(call.input_weight) && vectors(call.forget_weight) && vectors(call.a) && vectors(call.q) &&
         vectors(call.k) && vectors(call.v);
}

int run(const MixerInputs& call, Stream stream) {
  return launch<MixerInputsKernel>(call, {blocks_of(call), 1, 1}, stream);
}

bool takes_backward(const MixerInputsBackward& call) {
  const bool sums = !call.dparameters || call.partial;
  return takes(call.of) && sums && call.of.kernel <= kMixerTaps && vectors(call.da) && vectors(call.dq) &&
         vectors(call.dk) && vectors(call.dv) && vectors(call.dx) && vectors(call.totals) &&
         vectors(call.partial) && eight_a_thread(call.of.batch * call.of.tokens, call.of.channels, 128);
}

int run_backward(const MixerInputsBackward& call, Stream stream) {
  const MixerInputs& of = call.of;
  const int64_t rows = of.batch * of.tokens;
  int failed = launch<MixerTotalsKernel>(call, {blocks_of(of), 1, 1}, stream);
  if (!failed)
    failed = launch<MixerToInputKernel>(call, grid_of_eight(rows, of.channels, MixerToInputKernel::kThreads),
                                        stream);
  if (failed || !call.dparameters) return failed;
  const int64_t kinds = 6 + (of.columns > 0 ? of.kernel : 1),
                groups = (of.channels + MixerSumsKernel::kColumns - 1) / MixerSumsKernel::kColumns;
  failed = launch<MixerSumsKernel>(call, {row_parts(rows), kinds, groups}, stream);
  if (failed) return failed;
  return launch<MixerPartsKernel>(call, {(mixer_numbers(of) + kLanes - 1) / kLanes, 1, 1}, stream);
}

constexpr Form<MixerInputs> kInputs[] = {{"warps", 80, 0, takes, run}};
constexpr Form<MixerInputsBackward> kBackward[] = {
    {"warps", 80, MixerPartsKernel::kShared, takes_backward, run_backward}};

}  // namespace

Forms<MixerInputs> mixer_inputs_forms() { return {kInputs, 1}; }
Forms<MixerInputsBackward> mixer_inputs_backward_forms() { return {kBackward, 1}; }

}  // namespace tessera::kernels::gpu
