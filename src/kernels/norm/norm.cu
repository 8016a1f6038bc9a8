// The forms of LayerNorm and RMSNorm, by the width of a row.
#include "kernels/norm/norm.cuh"

#include "kernels/gpu/table.h"

namespace tessera::kernels::gpu {
namespace {

constexpr int64_t kMostWidth = 8192, kMostRows = int64_t{1} << 31;

bool fits(int64_t rows, int64_t width, int64_t sample_rows) {
  return rows > 0 && rows < kMostRows && width > 0 && width % 8 == 0 && width <= kMostWidth &&
         (sample_rows == 0 || rows % sample_rows == 0);
}

// Calls pick(kWarps, kTurns) of the smallest form that holds a row.
template <template <int, int> class Kernel, class Call, class Run>
int by_width(const Call& call, const Run& run) {
  if (call.width <= 256) return run(Kernel<1, 1>());
  if (call.width <= 512) return run(Kernel<1, 2>());
  if (call.width <= 1024) return run(Kernel<4, 1>());
  if (call.width <= 2048) return run(Kernel<8, 1>());
  if (call.width <= 4096) return run(Kernel<8, 2>());
  return run(Kernel<8, 4>());
}

bool takes_forward(const NormForward& call) {
  return fits(call.rows, call.width, call.sample_rows) && vectors(call.x) && vectors(call.y) &&
         vectors(call.weight) && vectors(call.bias);
}

int run_forward(const NormForward& call, Stream stream) {
  return by_width<NormForwardKernel>(call, [&](auto kernel) {
    using Kernel = decltype(kernel);
    return launch<Kernel>(call, {(call.rows + Kernel::kAtOnce - 1) / Kernel::kAtOnce, 1, 1}, stream);
  });
}

int64_t samples_of(const NormBackward& call) {
  return call.sample_rows > 0 ? call.rows / call.sample_rows : 1;
}

bool takes_backward(const NormBackward& call) {
  constexpr int64_t kMostSamples = 65535;  // blocks in the second direction of a grid
  return fits(call.rows, call.width, call.sample_rows) && samples_of(call) <= kMostSamples &&
         vectors(call.x) && vectors(call.dy) && vectors(call.dx) && vectors(call.weight) &&
         (call.partial || (!call.dweight && !call.dbias));
}

int run_backward(const NormBackward& call, Stream stream) {
  const int64_t samples = samples_of(call), parts = samples * row_parts(call.rows / samples);
  const int failed = by_width<NormBackwardKernel>(call, [&](auto kernel) {
    return launch<decltype(kernel)>(call, {parts, 1, 1}, stream);
  });
  if (failed || (!call.dweight && !call.dbias)) return failed;
  return launch<NormPartsKernel>(call, {(2 * call.width + kLanes - 1) / kLanes, samples, 1}, stream);
}

constexpr Form<NormForward> kForward[] = {{"rows", 80, 0, takes_forward, run_forward}};
constexpr Form<NormBackward> kBackward[] = {
    {"rows", 80, NormBackwardKernel<8, 4>::kShared, takes_backward, run_backward}};

}  // namespace

Forms<NormForward> norm_forms() { return {kForward, 1}; }
Forms<NormBackward> norm_backward_forms() { return {kBackward, 1}; }

}  // namespace tessera::kernels::gpu
