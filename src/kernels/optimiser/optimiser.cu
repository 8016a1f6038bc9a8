// The forms of an optimiser's step, one a rule.
#include "kernels/optimiser/optimiser.cuh"

#include "kernels/gpu/table.h"

namespace tessera::kernels::gpu {
namespace {

template <OptimiserRule rule>
bool takes(const OptimiserStep& call) {
  const bool sums = rule == OptimiserRule::lars || rule == OptimiserRule::lamb;
  return call.rule == rule && call.tensors && call.count > 0 && call.blocks > 0 &&
         call.blocks < int64_t{1} << 31 && (!sums || call.sums);
}

int adam(const OptimiserStep& call, Stream stream) {
  return launch<AdamKernel>(call, {call.blocks, 1, 1}, stream);
}
int sgd(const OptimiserStep& call, Stream stream) {
  return launch<SgdKernel<false>>(call, {call.blocks, 1, 1}, stream);
}
template <bool lamb>
int with_ratios(const OptimiserStep& call, Stream stream) {
  const Block blocks = {call.blocks, 1, 1};
  if (const int failed = launch<TrustSumsKernel<lamb>>(call, blocks, stream)) return failed;
  if (const int failed = launch<TrustRatioKernel<lamb>>(call, {call.count, 1, 1}, stream)) return failed;
  if constexpr (lamb)
    return launch<LambKernel>(call, blocks, stream);
  else
    return launch<SgdKernel<true>>(call, blocks, stream);
}

constexpr Form<OptimiserStep> kForms[] = {
    {"adam", 80, 0, takes<OptimiserRule::adam>, adam},
    {"sgd", 80, 0, takes<OptimiserRule::sgd>, sgd},
    {"lars", 80, 0, takes<OptimiserRule::lars>, with_ratios<false>},
    {"lamb", 80, 0, takes<OptimiserRule::lamb>, with_ratios<true>},
};

}  // namespace

Forms<OptimiserStep> optimiser_forms() { return {kForms, 4}; }

}  // namespace tessera::kernels::gpu
