#include "ops/convolution.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "kernels/depthwise/depthwise.h"
#include "kernels/isa.h"
#include "ops/gpu.h"
#include "ops/identity.h"
#include "ops/inference.h"
#include "ops/winograd.h"

namespace tessera::ops {
namespace {

// LibTorch operations without a C++ declaration: found by name and called through the stack.
c10::OperatorHandle operation(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}
torch::Tensor call(const c10::OperatorHandle& operation, torch::jit::Stack stack) {
  operation.callBoxed(&stack);
  return stack.at(0).toTensor();
}

std::vector<int64_t> both(int64_t size) { return {size, size}; }
c10::IValue no_scalars() { return c10::List<std::optional<at::Scalar>>(); }

torch::Tensor lay_out(const torch::Tensor& weight, const ConvolutionParameters& p, at::IntArrayRef shape) {
  static const c10::OperatorHandle reorder = operation("mkldnn::_reorder_convolution_weight");
  return call(reorder, {weight, both(p.padding), both(p.stride), both(p.dilation), p.groups, shape.vec()});
}

torch::Tensor convolve(const torch::Tensor& x, const ConvolutionCache::Packed& packed,
                       const ConvolutionParameters& p, bool relu) {
  static const c10::OperatorHandle pointwise = operation("mkldnn::_convolution_pointwise");
  const c10::IValue bias = packed.bias.defined() ? c10::IValue(packed.bias) : c10::IValue();
  return call(pointwise, {x, packed.weight, bias, both(p.padding), both(p.stride), both(p.dilation), p.groups,
                          relu ? "relu" : "none", no_scalars(), ""});
}

torch::Tensor convolve_and_add(const torch::Tensor& x, const torch::Tensor& residual,
                               const ConvolutionCache::Packed& packed, const ConvolutionParameters& p,
                               bool relu) {
  static const c10::OperatorHandle binary = operation("mkldnn::_convolution_pointwise", "binary");
  const c10::IValue bias = packed.bias.defined() ? c10::IValue(packed.bias) : c10::IValue();
  const c10::IValue then = relu ? c10::IValue("relu") : c10::IValue();
  return call(binary, {x, residual, packed.weight, bias, both(p.padding), both(p.stride), both(p.dilation),
                       p.groups, "add", c10::IValue(), then, no_scalars(), c10::IValue()});
}

// The implementation: LibTorch's oneDNN, kernels/depthwise or kernels/winograd. Weights for oneDNN depend on
// the shape of x; those for depthwise do not depend on the type.
enum class Form { onednn, depthwise, winograd };
Form form_of(torch::ScalarType type, at::IntArrayRef shape) {
  if (type == torch::ScalarType::Undefined) return Form::depthwise;
  return shape.empty() ? Form::winograd : Form::onednn;
}

struct ConvolutionKey {
  std::array<Identity, 6> tensors;
  torch::ScalarType type = torch::kFloat32;
  bool operator==(const ConvolutionKey&) const = default;
};

// Folds conv(x) * scale + shift into one convolution, in float.
ConvolutionCache::Packed folded(const ConvolutionParameters& p, const ChannelNorm& norm) {
  const torch::Tensor weight = floats(p.weight), bias = floats(p.bias);
  if (!norm.defined()) return {weight, bias};
  const torch::Tensor scale = floats(norm.weight) * (floats(norm.variance) + norm.eps).rsqrt();
  torch::Tensor shift = floats(norm.bias) - floats(norm.mean) * scale;
  if (bias.defined()) shift = shift + bias * scale;
  return {weight * scale.view({-1, 1, 1, 1}), shift};
}

// Channels first in ATen's axis order, but last in memory.
torch::Tensor channels_first(const torch::Tensor& x) { return x.contiguous().permute({0, 3, 1, 2}); }
torch::Tensor channels_last(const torch::Tensor& y) { return y.permute({0, 2, 3, 1}).contiguous(); }

// True if kernels/depthwise applies.
bool is_depthwise(const ConvolutionParameters& p, const ConvolutionEpilogue& epilogue) {
  return p.groups == p.weight.size(0) && p.weight.size(1) == 1 &&
         p.weight.size(2) == kernels::kDepthwiseKernel && p.stride == 1 && p.dilation == 1 &&
         p.padding == kernels::kDepthwiseKernel / 2 && !epilogue.norm.defined() &&
         !epilogue.residual.defined() && !epilogue.relu;
}

// Returns its weights, [kernel, kernel, channels] floats.
ConvolutionCache::Packed depthwise_weights(const ConvolutionParameters& p) {
  return {floats(p.weight.squeeze(1).permute({1, 2, 0})), floats(p.bias)};
}

torch::Tensor run_depthwise(const torch::Tensor& given, const ConvolutionCache::Packed& packed,
                            torch::ScalarType type) {
  const torch::Tensor x = given.contiguous(), y = torch::empty(x.sizes(), x.options().dtype(type));
  const auto element = [](const torch::Tensor& tensor) {
    return tensor.scalar_type() == torch::kBFloat16 ? kernels::Element::bf16 : kernels::Element::f32;
  };
  const Profiled profiled("depthwise convolution ", x.size(0) * x.size(1) * x.size(2), " x ", x.size(3));
  kernels::depthwise_convolution({x.size(0), x.size(1), x.size(2), x.size(3), x.const_data_ptr(), element(x),
                                  float_pointer(packed.weight), float_pointer(packed.bias),
                                  y.mutable_data_ptr(), element(y)});
  return y;
}

// Returns the type of the result if a kernel supports the convolution, with or without gradients; otherwise
// none.
std::optional<torch::ScalarType> kernel_type(const torch::Tensor& x, const ConvolutionParameters& p) {
  if (!product_arithmetic(x) || p.weight.scalar_type() == torch::kFloat64) return {};
  const bool bf16 = x.scalar_type() == torch::kBFloat16 || at::autocast::is_autocast_enabled(at::kCPU);
  return bf16 ? torch::kBFloat16 : torch::kFloat32;
}

// Returns the number of rows (or columns) of the result for `size` of x.
int64_t extent(int64_t size, const ConvolutionParameters& p) {
  return (size + 2 * p.padding - p.dilation * (p.weight.size(2) - 1) - 1) / p.stride + 1;
}

void check_convolution(const torch::Tensor& x, const ConvolutionParameters& p) {
  check(x.dim() == 4 && x.size(3) == p.weight.size(1) * p.groups, "convolution: x is ", x.sizes(),
        ", must be [batch, rows, columns, ", p.weight.size(1) * p.groups, "]");
  const int64_t reach = p.dilation * (p.weight.size(2) - 1) + 1 - 2 * p.padding;
  check(x.size(1) >= reach && x.size(2) >= reach, "convolution: a grid of ", x.size(1), " x ", x.size(2),
        " is too small, it must be at least ", reach, " x ", reach);
}

// Without AVX-512 oneDNN would use its reference for bfloat16. If a side has one cell, strides cannot
// distinguish channels first from channels last.
bool onednn_computes(const torch::Tensor& x, const ConvolutionParameters& p, torch::ScalarType type) {
  const int64_t least = std::min({x.size(1), x.size(2), extent(x.size(1), p), extent(x.size(2), p)});
  return least > 1 && (type == torch::kFloat32 || kernels::machine().best >= kernels::Isa::avx512);
}

ConvolutionCache::Packed lay_out_for(Form form, const ConvolutionParameters& p, const ChannelNorm& norm,
                                     torch::ScalarType type, at::IntArrayRef shape) {
  const Profiled profiled("convolution packing");
  ConvolutionCache::Packed made = form == Form::depthwise ? depthwise_weights(p) : folded(p, norm);
  if (form == Form::winograd) made.weight = winograd_weights(made.weight);
  if (form == Form::onednn) {
    made.weight = lay_out(made.weight.to(type), p, shape);
    if (made.bias.defined()) made.bias = made.bias.to(type);
  }
  return made;
}

}  // namespace

// A layer that several map sizes share, as in a detector, alternates between implementations; each keeps its
// weights.
struct ConvolutionCache::State {
  struct Entry {
    ConvolutionKey key;
    HeldStorages held;
    std::shared_ptr<const Packed> packed;
  };
  std::mutex mutex;
  std::array<Entry, 3> of_form;
};

ConvolutionCache::ConvolutionCache() : state_(std::make_unique<State>()) {}
ConvolutionCache::~ConvolutionCache() = default;

std::shared_ptr<const ConvolutionCache::Packed> ConvolutionCache::packed(const ConvolutionParameters& p,
                                                                         const ChannelNorm& norm,
                                                                         torch::ScalarType type,
                                                                         at::IntArrayRef shape) {
  const Form form = form_of(type, shape);
  if (!inference_settings().keep_packed)
    return std::make_shared<const Packed>(lay_out_for(form, p, norm, type, shape));
  const std::array tensors = {&p.weight, &p.bias, &norm.mean, &norm.variance, &norm.weight, &norm.bias};
  ConvolutionKey key{.tensors = {}, .type = type};
  for (size_t i = 0; i < tensors.size(); ++i) key.tensors[i] = identity_of(*tensors[i]);
  const std::lock_guard lock(state_->mutex);
  State::Entry& entry = state_->of_form[static_cast<size_t>(form)];
  if (!entry.packed || !(entry.key == key)) {
    entry.packed = std::make_shared<const Packed>(lay_out_for(form, p, norm, type, shape));
    entry.key = key;
    entry.held.clear();
    for (const torch::Tensor* tensor : tensors) entry.held.add(*tensor);
  }
  return entry.packed;
}

namespace {

// The operations after a convolution, y [batch, rows, columns, channels].
torch::Tensor compose_epilogue(torch::Tensor y, const ConvolutionEpilogue& epilogue) {
  if (const ChannelNorm& norm = epilogue.norm; norm.defined())
    y = channels_last(torch::batch_norm(channels_first(y), norm.weight, norm.bias, norm.mean, norm.variance,
                                        /*training=*/false, /*momentum=*/0, norm.eps,
                                        /*cudnn_enabled=*/true));
  if (epilogue.residual.defined()) y = y + epilogue.residual;
  return epilogue.relu ? torch::relu(y) : y;
}

torch::Tensor run_onednn(const torch::Tensor& x, const ConvolutionParameters& p,
                         const ConvolutionEpilogue& epilogue, torch::ScalarType type,
                         ConvolutionCache& cache) {
  // Casts here, since under autocast LibTorch would check every argument.
  const torch::Tensor in = channels_first(x.to(type));
  const auto packed = cache.packed(p, epilogue.norm, type, in.sizes());
  const int64_t cells = x.size(0) * extent(x.size(1), p) * extent(x.size(2), p);
  const Profiled profiled(p.groups == 1 ? "convolution " : "grouped convolution ", cells, " x ",
                          p.weight[0].numel(), " -> ", p.weight.size(0));
  if (!epilogue.residual.defined()) return channels_last(convolve(in, *packed, p, epilogue.relu));
  return channels_last(
      convolve_and_add(in, channels_first(epilogue.residual.to(type)), *packed, p, epilogue.relu));
}

}  // namespace

torch::Tensor convolution_unfused(const torch::Tensor& x, const ConvolutionParameters& p,
                                  const ConvolutionEpilogue& epilogue) {
  // A 1x1 convolution of few channels with a stride: LibTorch 2.11's gradient of its weights writes out of
  // bounds with several threads on AVX-512. So skipped cells are dropped before it.
  const bool steps = p.stride > 1 && p.padding == 0 && p.groups == 1 && p.weight.size(1) < 16 &&
                     p.weight.size(2) == 1 && p.weight.size(3) == 1;
  const torch::Tensor cells =
      steps ? x.slice(1, 0, x.size(1), p.stride).slice(2, 0, x.size(2), p.stride).contiguous() : x;
  return compose_epilogue(
      channels_last(torch::conv2d(channels_first(cells), p.weight, p.bias, both(steps ? 1 : p.stride),
                                  both(p.padding), both(p.dilation), p.groups)),
      epilogue);
}

torch::Tensor convolution(const torch::Tensor& x, const ConvolutionParameters& p,
                          const ConvolutionEpilogue& epilogue, ConvolutionCache& cache) {
  check_convolution(x, p);
  const std::optional<torch::ScalarType> type = kernel_type(x, p);
  const bool training = gradients_wanted(), with_winograd = type && winograd_applies(x, p, *type, training);
  if (training && with_winograd)
    return compose_epilogue(winograd_with_gradients(x.to(*type), p.weight, p.bias, *type), epilogue);
  if (!type || training) return convolution_unfused(x, p, epilogue);
  if (with_winograd) {
    const auto packed = cache.packed(p, epilogue.norm, torch::kFloat32, {});
    return winograd(x, packed->weight, packed->bias, p.weight.size(0), *type, epilogue.residual,
                    epilogue.relu);
  }
  if (is_depthwise(p, epilogue))
    return run_depthwise(x, *cache.packed(p, {}, torch::ScalarType::Undefined, {}), *type);
  return onednn_computes(x, p, *type) ? run_onednn(x, p, epilogue, *type, cache)
                                      : convolution_unfused(x, p, epilogue);
}

namespace {

// Returns the patches by a kernel; undefined if none takes them.
torch::Tensor patch_rows_on_gpu(const torch::Tensor& images, int64_t patch, int64_t rows, int64_t columns) {
  const auto place = gpu_place(images);
  const bool recorded = torch::GradMode::is_enabled() && images.requires_grad();
  if (!place || place->output != torch::kBFloat16 || recorded) return {};
  const int64_t batch = images.size(0), channels = images.size(1);
  const torch::Tensor y = torch::empty({batch, rows, columns, channels * patch * patch},
                                       images.options().dtype(torch::kBFloat16).requires_grad(false));
  const kernels::gpu::PatchRows call = {batch,
                                        channels,
                                        rows,
                                        columns,
                                        patch,
                                        element_of(images),
                                        images.const_data_ptr(),
                                        images.stride(0),
                                        images.stride(1),
                                        images.stride(2),
                                        images.stride(3),
                                        static_cast<uint16_t*>(y.mutable_data_ptr())};
  const auto* form = kernels::gpu::choose_form(kernels::gpu::table()->patch_rows, place->capability, call);
  if (!form) return {};
  run_on_gpu("patch rows", *place, *form, call);
  return y;
}

}  // namespace

torch::Tensor patch_rows(const torch::Tensor& images, int64_t patch) {
  const int64_t batch = images.size(0), channels = images.size(1);
  const int64_t rows = images.size(2) / patch, columns = images.size(3) / patch;
  if (const torch::Tensor y = patch_rows_on_gpu(images, patch, rows, columns); y.defined()) return y;
  return images.slice(2, 0, rows * patch)
      .slice(3, 0, columns * patch)
      .reshape({batch, channels, rows, patch, columns, patch})
      .permute({0, 2, 4, 1, 3, 5})
      .reshape({batch, rows, columns, channels * patch * patch});
}

}  // namespace tessera::ops
