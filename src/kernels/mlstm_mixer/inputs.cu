// The forms of the mLSTM mixer's inputs.
#include "kernels/mlstm_mixer/inputs.cuh"

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

constexpr Form<MixerInputs> kInputs[] = {{"warps", 80, 0, takes, run}};

}  // namespace

Forms<MixerInputs> mixer_inputs_forms() { return {kInputs, 1}; }

}  // namespace tessera::kernels::gpu
