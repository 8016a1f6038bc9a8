#include "ops/gpu.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/autocast_mode.h>

#include <array>
#include <atomic>

namespace tessera::ops {
namespace {

// Returns the compute capability of a device that the library has code for, or -1; read once.
int capability_of(const kernels::gpu::Table& table, int device) {
  constexpr int kMost = 64;
  static std::array<std::atomic<int>, kMost> known{};
  if (table.on_host || device < 0 || device >= kMost) return kernels::gpu::usable_capability(table, device);
  if (known[device] == 0) known[device] = kernels::gpu::usable_capability(table, device);
  return known[device];
}

}  // namespace

std::optional<GpuPlace> gpu_place(const torch::Tensor& x) {
  const kernels::gpu::Table* table = kernels::gpu::table();
  if (!table || x.device().type() != (table->on_host ? torch::kCPU : torch::kCUDA)) return {};
  if (!inference_settings().fused || x.numel() == 0) return {};
  const torch::ScalarType type = x.scalar_type();
  if (type != torch::kFloat32 && type != torch::kBFloat16) return {};
  const bool autocast = at::autocast::is_autocast_enabled(x.device().type());
  if (autocast && at::autocast::get_autocast_dtype(x.device().type()) != torch::kBFloat16) return {};
  const int capability = capability_of(*table, x.device().index());
  if (capability < 0) return {};
  return GpuPlace{x.device(), capability, autocast ? torch::kBFloat16 : type};
}

torch::Tensor aligned(const torch::Tensor& x) {
  const torch::Tensor rows = x.contiguous();
  return reinterpret_cast<uintptr_t>(rows.const_data_ptr()) % 16 == 0 ? rows : rows.clone();
}

kernels::gpu::Stream stream_of(torch::Device device) {
  return device.is_cpu() ? nullptr : at::accelerator::getCurrentStream(device.index()).native_handle();
}

}  // namespace tessera::ops
