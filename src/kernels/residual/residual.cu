// The forms of residual sums.
#include "kernels/residual/residual.cuh"

#include "kernels/gpu/table.h"

namespace tessera::kernels::gpu {
namespace {

constexpr int64_t kMostSamples = 65535;  // blocks in the second direction of a grid

template <class Call>
bool fits(const Call& call) {
  return eight_a_thread(call.rows, call.width, ResidualForwardKernel::kThreads) && vectors(call.x) &&
         call.scale && vectors(call.scale) &&
         (call.sample_rows == 0 ||
          (call.rows % call.sample_rows == 0 && call.rows / call.sample_rows <= kMostSamples));
}

bool takes_forward(const ResidualForward& call) {
  return fits(call) && vectors(call.residual) && vectors(call.y);
}

int run_forward(const ResidualForward& call, Stream stream) {
  return launch<ResidualForwardKernel>(
      call, grid_of_eight(call.rows, call.width, ResidualForwardKernel::kThreads), stream);
}

bool takes_backward(const ResidualBackward& call) {
  return fits(call) && vectors(call.dy) && vectors(call.dx) && (call.partial || !call.dscale);
}

int run_backward(const ResidualBackward& call, Stream stream) {
  using Kernel = ResidualBackwardKernel;
  const int64_t rows = call.sample_rows > 0 ? call.sample_rows : call.rows, samples = call.rows / rows;
  const int failed = launch<Kernel>(
      call, {samples * row_parts(rows), (call.width + Kernel::kColumns - 1) / Kernel::kColumns, 1}, stream);
  if (failed || !call.dscale) return failed;
  return launch<ResidualPartsKernel>(call, {(call.width + kLanes - 1) / kLanes, samples, 1}, stream);
}

constexpr Form<ResidualForward> kForward[] = {{"vectors", 80, 0, takes_forward, run_forward}};
constexpr Form<ResidualBackward> kBackward[] = {{"vectors", 80, 0, takes_backward, run_backward}};

}  // namespace

Forms<ResidualForward> residual_forms() { return {kForward, 1}; }
Forms<ResidualBackward> residual_backward_forms() { return {kBackward, 1}; }

}  // namespace tessera::kernels::gpu
