// The form of Adam's step.
#include "kernels/adam/adam.cuh"

#include "kernels/gpu/table.h"

namespace tessera::kernels::gpu {
namespace {

bool takes(const AdamStep& call) {
  return call.tensors && call.count > 0 && call.blocks > 0 && call.blocks < int64_t{1} << 31;
}
int run(const AdamStep& call, Stream stream) { return launch<AdamKernel>(call, {call.blocks, 1, 1}, stream); }

constexpr Form<AdamStep> kForms[] = {{"tensors", 80, 0, takes, run}};

}  // namespace

Forms<AdamStep> adam_forms() { return {kForms, 1}; }

}  // namespace tessera::kernels::gpu
