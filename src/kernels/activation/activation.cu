// The forms of activations.
#include "kernels/activation/activation.cuh"

#include "kernels/gpu/table.h"

namespace tessera::kernels::gpu {
namespace {

template <class Call>
bool fits(const Call& call) {
  return eight_a_thread(call.rows, call.width, 256) && vectors(call.x) && vectors(call.gate);
}

template <class Kernel>
int run(const typename Kernel::Call& call, Stream stream) {
  return launch<Kernel>(call, grid_of_eight(call.rows, call.width, Kernel::kThreads), stream);
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
