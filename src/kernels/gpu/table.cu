// The table of the library, and of the emulator.
#include "kernels/gpu/table.h"

#ifndef TESSERA_GPU_IMAGES
#define TESSERA_GPU_IMAGES "80;90a;100;120"
#endif

namespace tessera::kernels::gpu {
namespace {

#ifdef __CUDACC__
constexpr int32_t kOnHost = 0;
const char* error_text(int error) { return cudaGetErrorString((cudaError_t)error); }
int capability(int device) {
  int major = 0, minor = 0;
  const bool read =
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess;
  return read ? 10 * major + minor : -1;
}
#else
constexpr int32_t kOnHost = 1;
const char* error_text(int) { return "an error of the emulator"; }
int capability(int) { return 90; }
#endif

}  // namespace
}  // namespace tessera::kernels::gpu

extern "C" __attribute__((visibility("default"))) const tessera::kernels::gpu::Table* tessera_gpu_table(
    void) {
  using namespace tessera::kernels::gpu;
  static const Table table = {kTableVersion,
                              kTableLayout,
                              kOnHost,
                              error_text,
                              capability,
                              TESSERA_GPU_IMAGES,
                              norm_forms(),
                              norm_backward_forms(),
                              residual_forms(),
                              residual_backward_forms(),
                              patch_rows_forms(),
                              rotate_forms(),
                              attention_forms(),
                              attention_backward_forms(),
                              cached_attention_forms(),
                              activation_forms(),
                              activation_backward_forms(),
                              optimiser_forms(),
                              mixer_inputs_forms(),
                              mixer_inputs_backward_forms(),
                              mlstm_forms(),
                              mlstm_states_forms(),
                              mlstm_backward_forms()};
  return &table;
}
