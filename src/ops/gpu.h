// The kernels of a GPU for operations: where they apply, and their launch on LibTorch's stream.
#pragma once

#include "ops/torch.h"

#include <c10/core/DeviceGuard.h>

#include <optional>

#include "kernels/gpu/library.h"
#include "ops/inference.h"

namespace tessera::ops {

// A device with kernels, and the type of the results there: of x, or bfloat16 under autocast.
struct GpuPlace {
  torch::Device device;
  int capability;
  torch::ScalarType output;
};

// Returns the place of x if it is on a GPU, the kernels' library is loaded, and the settings allow fused forms; none
// for other types than float32 and bfloat16, or under autocast to fp16. Next to fused_arithmetic(x), for GPUs.
std::optional<GpuPlace> gpu_place(const torch::Tensor& x);

// Returns x, or a copy if its rows do not start on 16-byte boundaries: gradients may come as any view.
torch::Tensor aligned(const torch::Tensor& x);

// Returns the device's current stream; null for the emulator.
kernels::gpu::Stream stream_of(torch::Device device);

// Runs a form on the device's current stream, named for profilers: "norm (rows)".
template <class Call>
void run_on_gpu(const char* operation, const GpuPlace& place, const kernels::gpu::Form<Call>& form,
                const Call& call) {
  const Profiled profiled(operation, " (", form.name, ")");
  const c10::DeviceGuard guard(place.device);
  kernels::gpu::run_form(operation, form, call, stream_of(place.device));
}

}  // namespace tessera::ops
