#include "ops/inference.h"

#include <ATen/autocast_mode.h>

#include "core/error.h"

namespace tessera::ops {
namespace {

thread_local InferenceSettings settings;

bool is_bf16(const torch::Tensor& tensor) { return tensor.scalar_type() == torch::kBFloat16; }

}  // namespace

kernels::Element element_of(const torch::Tensor& tensor) {
  return is_bf16(tensor) ? kernels::Element::bf16 : kernels::Element::f32;
}

bool gradients_wanted() { return settings.gradients_follow || torch::GradMode::is_enabled(); }

const InferenceSettings& inference_settings() { return settings; }

InferenceScope::InferenceScope(const InferenceSettings& now) : before_(settings) { settings = now; }
InferenceScope::~InferenceScope() { settings = before_; }

std::optional<kernels::Arithmetic> fused_arithmetic(const torch::Tensor& x) {
  return gradients_wanted() ? std::nullopt : product_arithmetic(x);
}

std::optional<kernels::Arithmetic> product_arithmetic(const torch::Tensor& x) {
  using kernels::Arithmetic;
  if (!settings.fused || !x.device().is_cpu() || x.numel() == 0) return {};
  if (x.scalar_type() != torch::kFloat32 && !is_bf16(x)) return {};
  const bool autocast = at::autocast::is_autocast_enabled(at::kCPU);
  if (autocast && at::autocast::get_autocast_dtype(at::kCPU) != torch::kBFloat16) return {};
  if (settings.int8 && !gradients_wanted()) return Arithmetic::int8;
  return autocast || is_bf16(x) ? Arithmetic::bf16 : Arithmetic::f32;
}

torch::ScalarType output_type(kernels::Arithmetic arithmetic) {
  return arithmetic == kernels::Arithmetic::f32 ? torch::kFloat32 : torch::kBFloat16;
}

RowsOfTensor rows_of(const torch::Tensor& x) {
  const int64_t width = x.size(-1);
  const bool strided = x.dim() == 2 && x.stride(1) == 1 && x.stride(0) >= width;
  const torch::Tensor tensor = strided ? x : x.contiguous();
  return {tensor,
          {tensor.const_data_ptr(), element_of(tensor), strided ? x.stride(0) : width},
          x.numel() / width};
}

kernels::RowsOut rows_to(const torch::Tensor& y) { return {y.mutable_data_ptr(), element_of(y), y.size(-1)}; }

torch::Tensor floats(const torch::Tensor& tensor) {
  return tensor.defined() ? tensor.detach().to(torch::kFloat32).contiguous() : tensor;
}

const float* float_pointer(const torch::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<float>() : nullptr;
}

void check_first_derivative(const char* operation) {
  check(!torch::GradMode::is_enabled(), operation,
        ": the fused form has no second derivative; compute forward under InferenceScope({.fused = false})");
}

}  // namespace tessera::ops
