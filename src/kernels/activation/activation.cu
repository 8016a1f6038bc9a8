// The forms of activations.
#include "kernels/activation/activation.cuh"

#include "kernels/gpu/table.h"

namespace tessera::kernels::gpu {
namespace {

constexpr int64_t kMostBlocks = int64_t{1} << 31;

template <class Call>
bool fits(const Call& call) {
  return call.rows > 0 && call.width > 0 && call.width % 8 == 0 &&
         call.rows < kMostBlocks * 256 * 8 / call.width && vectors(call.x) && vectors(call.gate);
}

template <class Kernel>
int run(const typename Kernel::Call& call, Stream stream) {
  const int64_t vectors_of_all = call.rows * (call.width / 8);
  return launch<Kernel>(call, {(vectors_of_all + Kernel::kThreads - 1) / Kernel::kThreads, 1, 1}, stream);
}

bool takes_forward(const ActivationForward& call) { return fits(call) && vectors(call.y); }
bool takes_backward(const ActivationBackward& call) {
  return fits(call) && vectors(call.dy) && vectors(call.dx) && vectors(call.dgate);
}

constexpr Form<ActivationForward> kForward[] = {
    {"vectors", 80, 0, takes_forward, run<ActivationForwardKernel>}};
constexpr Form<ActivationBackward> kBackward[] = {
    {"vectors", 80, 0, takes_backward, run<ActivationBackwardKernel>}};

}  // namespace

Forms<ActivationForward> activation_forms() { return {kForward, 1}; }
Forms<ActivationBackward> activation_backward_forms() { return {kBackward, 1}; }

}  // namespace tessera::kernels::gpu
