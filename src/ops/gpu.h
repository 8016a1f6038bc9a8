// The kernels of a GPU for operations: where they apply, and their launch on LibTorch's stream.
#pragma once

#include "ops/torch.h"

#include <c10/core/DeviceGuard.h>

#include <functional>
#include <optional>
#include <vector>

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
// for other types than float32 and bfloat16, under autocast to fp16, or if the library has no code for the GPU. It is
// for GPUs what fused_arithmetic(x) is for CPUs.
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

// Products by cuBLASLt, if TESSERA_GPU=cublaslt. Returns the place of x if they take the types, widths and settings of a linear
// layer (ops/linear.h).
struct LinearParameters;
std::optional<GpuPlace> product_place(const torch::Tensor& x, const LinearParameters& parameters,
                                      const torch::Tensor& residual);
// Returns residual + scale (x W^T + b) there, or its GELU by tanh without gradients; b, scale and residual may be undefined.
struct GpuLinear {
  torch::Tensor bias = {}, scale = {}, residual = {};  // [out], [out], [..., out]
  bool gelu_tanh = false;
  torch::Tensor before = {};  // [..., in]: x is its GELU by tanh, and the gradient goes to it
};
torch::Tensor linear_on_gpu(const GpuPlace& place, const torch::Tensor& x, const torch::Tensor& weight,
                            const GpuLinear& rest);

// Tables and indices that are made on the host and used on another device: copied once, not in every pass. A copy from
// pageable memory stops the host until the device has caught up, and a graph cannot contain it.

// Returns make(host) for a table of the main memory, on `device`: kept for the next call with an equal table,
// purpose and factor. On the CPU, and for tables with gradients, on another device or of over a million numbers, calls
// make each time. `purpose` is a literal. Up to 64 results of 64 MiB together are kept; those unused for longest are dropped. May be
// called from several threads, and in inference mode.
std::vector<torch::Tensor> kept_on(
    torch::Device device, const char* purpose, const torch::Tensor& host, double factor,
    const std::function<std::vector<torch::Tensor>(const torch::Tensor&)>& make);

// Returns the table itself on a device, kept likewise.
torch::Tensor kept_on(torch::Device device, const torch::Tensor& host);

// Starts the copy of a table that differs in every pass, without stopping the host: through pinned memory to a GPU.
torch::Tensor sent_to(torch::Device device, const torch::Tensor& host);

// The copy in bfloat16 of a float32 weight on a GPU, for products in bfloat16, which otherwise round the weight in every pass. An
// optimiser's kernel writes it with the weight.

// From now on, `half` has the numbers of the weight, until the weight changes (its memory or version).
void keep_half(const torch::Tensor& weight, const torch::Tensor& half);
void forget_half(const torch::Tensor& weight);
// Returns the copy; undefined if there is none or the weight has changed, and in a recording, which would repeat an old copy.
torch::Tensor half_of(const torch::Tensor& weight);
// Returns the copy with a gradient in float32; the weight itself without a copy, or if autocast is not to bfloat16.
torch::Tensor half_or(const torch::Tensor& weight);

// While it lives, a list gets the tables that this thread gets from kept_on(), and the host's side of its sent_to(): a graph of a
// GPU reads them as long as it exists.
class HeldTables {
 public:
  explicit HeldTables(std::vector<torch::Tensor>& list);
  ~HeldTables();
  HeldTables(const HeldTables&) = delete;
  HeldTables& operator=(const HeldTables&) = delete;

 private:
  std::vector<torch::Tensor>* before_;
};

}  // namespace tessera::ops
