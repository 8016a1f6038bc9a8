#include "ops/linear.h"

#include <ATen/native/Resize.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <vector>

#include "core/error.h"
#include "kernels/linear/linear_backward.h"
#include "ops/gpu.h"
#include "ops/identity.h"
#include "ops/inference.h"
#include "ops/lsq.h"
#include "ops/samples.h"

namespace tessera::ops {
namespace {

using kernels::Activation;

struct LinearKey {
  std::array<Identity, 6> tensors;
  const kernels::LinearImplementation* implementation = nullptr;
  Activation activation = Activation::none;
  int64_t weight_bits = 8;
  bool operator==(const LinearKey&) const = default;
};

kernels::MatrixView matrix_view(const torch::Tensor& matrix) {
  if (!matrix.defined()) return {};
  return {matrix.const_data_ptr<float>(), kernels::Element::f32, matrix.stride(0), matrix.stride(1)};
}

// Quantises W with its learned step sizes.
torch::Tensor rounded_weight(const LinearParameters& p) {
  if (!p.weight_log_step.defined()) return p.weight;
  return learned_step_size_quantise(p.weight, p.weight_log_step.exp().unsqueeze(1),
                                    quantised_range(p.weight_bits, true));
}

kernels::PackedLinear pack(const LinearParameters& p, const kernels::LinearImplementation& implementation) {
  const torch::Tensor weight = floats(rounded_weight(p)), bias = floats(p.bias), gate = floats(p.gate),
                      scale = floats(p.scale);
  kernels::LinearLayer layer;
  layer.in = weight.size(1), layer.out = weight.size(0);
  layer.weight = matrix_view(weight), layer.gate = matrix_view(gate);
  layer.activation = p.activation;
  layer.bias = float_pointer(bias), layer.scale = float_pointer(scale);
  const bool integer = implementation.arithmetic == kernels::Arithmetic::int8;
  torch::Tensor steps;
  if (integer && p.weight_log_step.defined() && p.weight_bits <= 8) {
    steps = floats(p.weight_log_step.exp());
    layer.weight_scales = float_pointer(steps);
  }
  if (integer && p.input_log_step.defined()) layer.static_scale = p.input_log_step.exp().item<float>();
  return {layer, implementation};
}

void check_parameters(const torch::Tensor& x, const LinearParameters& p, const torch::Tensor& residual) {
  check(p.weight.dim() == 2 && x.dim() >= 1 && x.size(-1) == p.weight.size(1), "linear: x is ", x.sizes(),
        ", the weight ", p.weight.sizes());
  const int64_t out = p.weight.size(0);
  check((!p.bias.defined() || p.bias.numel() == out) && (!p.scale.defined() || fits_rows(p.scale, x, out)),
        "linear: bias and scale must have ", out, " numbers, the scale optionally per sample");
  check(!p.gate.defined() || p.gate.sizes() == p.weight.sizes(), "linear: the gate's weight is ",
        p.gate.sizes(), ", must be ", p.weight.sizes());
  check(!residual.defined() || (residual.numel() / out * x.size(-1) == x.numel() && residual.size(-1) == out),
        "linear: x is ", x.sizes(), ", the residual ", residual.sizes());
  check(!p.weight_log_step.defined() || p.weight_log_step.numel() == out,
        "linear: the weight's step sizes are ", p.weight_log_step.sizes(), ", must be ", out);
  check(!p.input_log_step.defined() || p.input_log_step.numel() == 1, "linear: the input's step size is ",
        p.input_log_step.sizes(), ", must be one number");
}

bool fits(const torch::Tensor& residual) {
  return !residual.defined() || residual.scalar_type() == torch::kFloat32 ||
         residual.scalar_type() == torch::kBFloat16;
}

}  // namespace

struct LinearCache::State {
  std::mutex mutex;
  LinearKey key;
  HeldStorages held;
  std::shared_ptr<const kernels::PackedLinear> packed;
};

LinearCache::LinearCache() : state_(std::make_unique<State>()) {}
LinearCache::~LinearCache() = default;

std::shared_ptr<const kernels::PackedLinear> LinearCache::packed(const LinearParameters& p,
                                                                 kernels::Arithmetic arithmetic) {
  const std::array tensors = {&p.weight, &p.bias, &p.gate, &p.scale, &p.weight_log_step, &p.input_log_step};
  const auto key_now = [&] {
    return LinearKey{{identity_of(p.weight), identity_of(p.bias), identity_of(p.gate), identity_of(p.scale),
                      identity_of(p.weight_log_step), identity_of(p.input_log_step)},
                     &kernels::choose_linear(arithmetic),
                     p.activation,
                     p.weight_bits};
  };
  const LinearKey key = key_now();
  if (!inference_settings().keep_packed && !packed_only())
    return std::make_shared<const kernels::PackedLinear>(pack(p, *key.implementation));
  const std::lock_guard lock(state_->mutex);
  if (!state_->packed || !(state_->key == key)) {
    const Profiled profiled("linear packing");
    check(!given_up(p.weight) && !given_up(p.gate),
          "linear: the weight was freed when it was packed for another arithmetic or layer");
    state_->packed.reset();
    state_->packed = std::make_shared<const kernels::PackedLinear>(pack(p, *key.implementation));
    if (packed_only()) give_up(p.weight), give_up(p.gate);
    state_->key = packed_only() ? key_now() : key;
    state_->held.clear();
    for (const torch::Tensor* tensor : tensors) state_->held.add(*tensor);
  }
  return state_->packed;
}

namespace {

// Computes the products of int8 with a fixed scale of x in ATen operations: x W^T + b with x and each row of W rounded
// to integers.
torch::Tensor product_in_int8(const torch::Tensor& x, const LinearParameters& p) {
  const auto [low, high] = quantised_range(8, true);
  const torch::Tensor rounded = rounded_weight(p);
  // Step sizes of more than 8 bits would clip the weight: it takes those of its own range, as packed layers do.
  const bool learned = p.weight_log_step.defined() && p.weight_bits <= 8;
  const torch::Tensor steps = learned ? p.weight_log_step.exp()
                                      : (rounded.abs().amax(1) / static_cast<double>(high)).clamp_min(1e-12);
  const torch::Tensor none = torch::zeros({steps.size(0)}, torch::kInt32);
  const torch::Tensor weight = at::fake_quantize_per_channel_affine(rounded.t(), steps, none, 1, -low, high);
  const torch::Tensor step = p.input_log_step.exp();
  const torch::Tensor y = torch::matmul(
      at::fake_quantize_per_tensor_affine(x, step, torch::zeros({1}, torch::kInt32), -low, high), weight);
  return p.bias.defined() ? y + p.bias : y;
}

// Composes the layer with `product`(x, weight, bias) for its products.
template <class Product>
torch::Tensor compose(const torch::Tensor& x, const LinearParameters& p, const torch::Tensor& residual,
                      Product product) {
  // Weights of more bits do not fit.
  const bool integers =
      composed_int8() && p.input_log_step.defined() && !p.gate.defined() && p.weight_bits <= 8;
  torch::Tensor y = integers ? product_in_int8(x, p) : product(x, rounded_weight(p), p.bias);
  if (p.activation == Activation::gelu) y = activation(ActivationKind::gelu, y);
  if (p.activation == Activation::gelu_tanh) y = activation(ActivationKind::gelu_tanh, y);
  if (p.activation == Activation::silu_gate)
    y = activation(ActivationKind::silu, product(x, p.gate, torch::Tensor()), y);
  return add_scaled(residual, y, p.scale);
}

}  // namespace

torch::Tensor linear_unfused(const torch::Tensor& x, const LinearParameters& p,
                             const torch::Tensor& residual) {
  return compose(x, p, residual,
                 [](const torch::Tensor& in, const torch::Tensor& weight, const torch::Tensor& bias) {
                   return torch::linear(in, half_or(weight), bias);
                 });
}

namespace {

// Kept for training in a layer with an activation or a scale per sample: x W^T + b, and x G^T for silu_gate.
struct SavedActivations {
  torch::Tensor before, gate_before;
};

// Allocates the layer's output for x.
torch::Tensor outputs_of(const kernels::PackedLinear& packed, const torch::Tensor& x,
                         torch::ScalarType type) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = packed.out();
  return torch::empty(shape, x.options().dtype(type));
}

// Runs the layer's kernel, for x and y with any number of axes; `sample_scale` [samples, out] or undefined.
torch::Tensor run(const kernels::PackedLinear& packed, const torch::Tensor& x, torch::ScalarType type,
                  const torch::Tensor& residual = {}, bool gated = false, const SavedActivations& saved = {},
                  const NormParameters& norm = {}, const torch::Tensor& sample_scale = {}) {
  const torch::Tensor y = outputs_of(packed, x, type);
  const RowsOfTensor rows = rows_of(x);
  const torch::Tensor norm_weight = floats(norm.weight), norm_bias = floats(norm.bias),
                      scale = floats(sample_scale);
  const kernels::RowNorm row_norm{float_pointer(norm_weight), float_pointer(norm_bias),
                                  static_cast<float>(norm.eps), norm.centred, sample_rows(norm.weight, x)};
  const Profiled profiled("linear ", rows.count, " x ", packed.in(), " -> ", packed.out(),
                          gated ? " gated" : "");
  kernels::LinearForward call;
  call.rows = rows.count, call.x = rows.rows, call.y = rows_to(y);
  RowsOfTensor before{};
  if (residual.defined()) {
    before = rows_of(residual);
    call.residual = before.rows;
  }
  if (saved.before.defined()) call.before = rows_to(saved.before);
  if (saved.gate_before.defined()) call.gate_before = rows_to(saved.gate_before);
  if (norm.defined()) call.norm = &row_norm;
  call.sample_scale = float_pointer(scale), call.sample_rows = sample_rows(scale, x);
  kernels::linear_forward(packed, call);
  return y;
}

// Gradients of before * scale [samples, out] from the product's gradient; the gradient of `before` has this
// type.
struct SampleScaleGradients {
  torch::Tensor before, scale;
};
SampleScaleGradients sample_scale_gradients(const torch::Tensor& dy, const torch::Tensor& before,
                                            const torch::Tensor& scale, bool want_scale) {
  const torch::Tensor plain = floats(scale);
  const SampleScaleGradients gradients{torch::empty_like(before),
                                       want_scale ? torch::empty_like(plain) : torch::Tensor()};
  const RowsOfTensor rows = rows_of(before), outputs = rows_of(dy);
  const Profiled profiled("sample scale backward");
  kernels::sample_scale_backward({rows.count, before.size(-1), sample_rows(scale, before), rows.rows,
                                  outputs.rows, float_pointer(plain), rows_to(gradients.before),
                                  want_scale ? gradients.scale.mutable_data_ptr<float>() : nullptr});
  return gradients;
}

// (x W^T + b) (scale of each sample) (+ residual) in float. Forward uses packed weights if given: LibTorch's
// product writes the bias to all rows first and adds the residual last. The gradients use LibTorch's
// products; its own gradient of W would be transposed and copied into the parameter's layout.
struct FloatNode : torch::autograd::Function<FloatNode> {
  using Optional = std::optional<torch::Tensor>;

  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, const torch::Tensor& x,
                               const torch::Tensor& weight, const Optional& bias, const Optional& residual,
                               const Optional& sample_scale, const kernels::PackedLinear* packed) {
    const torch::Tensor scale = sample_scale.value_or(torch::Tensor());
    SavedActivations saved;
    if (scale.defined()) saved.before = outputs_of(*packed, x, torch::kFloat32);
    ctx->save_for_backward({x, weight, scale, saved.before});
    ctx->saved_data["bias"] = bias.has_value();
    ctx->saved_data["residual"] = residual.has_value();
    if (!packed) return torch::linear(x, weight, bias.value_or(torch::Tensor()));
    return run(*packed, x, torch::kFloat32, residual.value_or(torch::Tensor()), false, saved, {}, scale);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const torch::Tensor &x = saved[0], &weight = saved[1];
    const bool bias = ctx->saved_data["bias"].toBool(), residual = ctx->saved_data["residual"].toBool();
    SampleScaleGradients of_product{gradients[0], {}};
    if (saved[2].defined()) {
      check_first_derivative("linear");
      // Absent inputs have no index.
      of_product = sample_scale_gradients(gradients[0], saved[3], saved[2],
                                          ctx->needs_input_grad(2 + size_t{bias} + size_t{residual}));
    }
    const torch::Tensor dy = of_product.before.reshape({-1, weight.size(0)});
    torch::Tensor dx, dweight, dbias;
    if (ctx->needs_input_grad(0)) dx = dy.mm(weight).view(x.sizes());
    if (ctx->needs_input_grad(1)) dweight = dy.t().mm(x.reshape({-1, weight.size(1)}));
    if (bias && ctx->needs_input_grad(2)) dbias = dy.sum(0);
    return {dx, dweight, dbias, residual ? gradients[0] : torch::Tensor(), of_product.scale, {}};
  }
};

// Returns the parameters to pack: a scale per sample does not belong to the layer.
LinearParameters without_sample_scale(const LinearParameters& p) {
  LinearParameters packed = p;
  if (of_each_sample(p.scale)) packed.scale = torch::Tensor();
  return packed;
}

torch::Tensor float_linear_with_gradients(const torch::Tensor& x, const LinearParameters& p,
                                          const torch::Tensor& residual, LinearCache& cache) {
  constexpr int64_t kWorthPacking = 1024;  // rows
  const auto given = [](const torch::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  // FloatNode has no gradient through the quantisation of weights.
  const bool own = of_each_sample(p.scale);
  const bool plain =
      p.activation == Activation::none && (own || !p.scale.defined()) && !p.weight_log_step.defined();
  if (plain && (!residual.defined() || residual.scalar_type() == torch::kFloat32) &&
      x.numel() >= kWorthPacking * x.size(-1))
    return FloatNode::apply(x, p.weight, given(p.bias), given(residual), given(p.scale),
                            cache.packed(without_sample_scale(p), kernels::Arithmetic::f32).get());
  return compose(x, p, residual,
                 [&](const torch::Tensor& in, const torch::Tensor& weight, const torch::Tensor& bias) {
                   return FloatNode::apply(in, weight, given(bias), std::nullopt, std::nullopt, nullptr);
                 });
}

// dx = dy W, with W packed transposed; added to `to` if defined.
torch::Tensor input_gradient(const torch::Tensor& dy, const torch::Tensor& weight, torch::ScalarType type,
                             const torch::Tensor& to = {}) {
  kernels::LinearLayer transposed;
  transposed.in = weight.size(0), transposed.out = weight.size(1);
  const torch::Tensor plain = floats(weight);
  transposed.weight = {plain.const_data_ptr(), kernels::Element::f32, 1, plain.stride(0)};
  const kernels::PackedLinear packed = [&] {
    const Profiled profiled("linear packing");
    return kernels::PackedLinear(transposed, kernels::Arithmetic::bf16);
  }();
  return run(packed, dy, type, to);
}

// dW = dy^T x and, if needed, db: floats.
struct WeightGradients {
  torch::Tensor weight, bias;
};
WeightGradients weight_gradients(const torch::Tensor& x, const torch::Tensor& dy, bool with_bias) {
  const auto options = torch::TensorOptions(torch::kFloat32);
  WeightGradients gradients{torch::empty({dy.size(-1), x.size(-1)}, options), {}};
  if (with_bias) gradients.bias = torch::empty({dy.size(-1)}, options);
  const RowsOfTensor rows = rows_of(x), outputs = rows_of(dy);
  const Profiled profiled("linear gradients");
  kernels::linear_gradients({rows.count, x.size(-1), dy.size(-1), rows.rows, outputs.rows,
                             kernels::Arithmetic::bf16, gradients.weight.mutable_data_ptr<float>(),
                             with_bias ? gradients.bias.mutable_data_ptr<float>() : nullptr});
  return gradients;
}

// Gradients of x W^T + b and of x G^T from the gradient of silu(x G^T) (x W^T + b), or the first from the
// gradient of gelu(x W^T + b).
SavedActivations activation_gradients(const torch::Tensor& dy, const SavedActivations& saved,
                                      Activation activation) {
  const bool gated = saved.gate_before.defined();
  SavedActivations gradients{torch::empty_like(saved.before),
                             gated ? torch::empty_like(saved.before) : torch::Tensor()};
  const RowsOfTensor rows = rows_of(dy), before = rows_of(saved.before),
                     gate_before = gated ? rows_of(saved.gate_before) : RowsOfTensor{};
  const Profiled profiled("activation backward");
  kernels::activation_backward(
      {rows.count, dy.size(-1), gated, before.rows, gate_before.rows, rows.rows, rows_to(gradients.before),
       gated ? rows_to(gradients.gate_before) : kernels::RowsOut{}, activation == Activation::gelu_tanh});
  return gradients;
}

// The whole layer in bfloat16, with gradients of the parameters in float. With an activation, it has neither
// scale nor residual (see linear_with_gradients).
//
// The gradient of scale needs no output: with D = dy^T x and d = sum dy, from dy before scale, it is sum_k D
// W + d b, and dW = scale D, db = scale d. A scale per sample is applied to dy first.
struct LinearNode : torch::autograd::Function<LinearNode> {
  using Optional = std::optional<torch::Tensor>;

  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, const torch::Tensor& x,
                               const torch::Tensor& weight, const Optional& bias, const Optional& gate,
                               const Optional& scale, const Optional& residual,
                               const kernels::PackedLinear& packed, Activation activation, bool recorded) {
    const torch::Tensor before = residual.value_or(torch::Tensor());
    const torch::Tensor sample_scale = scale && of_each_sample(*scale) ? *scale : torch::Tensor();
    SavedActivations saved;
    if ((activation != Activation::none || sample_scale.defined()) && recorded) {
      saved.before = outputs_of(packed, x, torch::kBFloat16);
      if (gate) saved.gate_before = torch::empty_like(saved.before);
    }
    ctx->save_for_backward({x, weight, bias.value_or(torch::Tensor()), gate.value_or(torch::Tensor()),
                            scale.value_or(torch::Tensor()), saved.before, saved.gate_before});
    ctx->saved_data["residual"] = residual.has_value();
    ctx->saved_data["activation"] = static_cast<int64_t>(activation);
    return run(packed, x, residual ? residual->scalar_type() : torch::kBFloat16, before, gate.has_value(),
               saved, {}, sample_scale);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const torch::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2], &gate = saved[3],
                        &scale = saved[4];
    check_first_derivative("linear");
    const torch::Tensor out = gradients[0].contiguous();
    const auto activation = static_cast<Activation>(ctx->saved_data["activation"].toInt());
    const bool own = of_each_sample(scale);
    SavedActivations dy{out, {}};
    if (activation != Activation::none) dy = activation_gradients(out, {saved[5], saved[6]}, activation);
    // Absent inputs have no index.
    auto wanted = [ctx, next = size_t{0}](const torch::Tensor& input) mutable {
      return input.defined() && ctx->needs_input_grad(next++);
    };
    const bool want_x = wanted(x), want_weight = wanted(weight), want_bias = wanted(bias),
               want_gate = wanted(gate), want_scale = wanted(scale);
    torch::Tensor dx, dgate, dscale;
    if (own) {
      const SampleScaleGradients gradients_of = sample_scale_gradients(out, saved[5], scale, want_scale);
      dy.before = gradients_of.before, dscale = gradients_of.scale;
    }
    WeightGradients dw;
    if (want_x) {
      const torch::Tensor scaled = scale.defined() && !own ? weight * scale.unsqueeze(1) : weight;
      dx = input_gradient(dy.before, scaled, x.scalar_type());
      if (gate.defined()) dx = input_gradient(dy.gate_before, gate, x.scalar_type(), dx);
    }
    if (want_weight || want_bias || (want_scale && !own)) dw = weight_gradients(x, dy.before, bias.defined());
    if (want_gate) dgate = weight_gradients(x, dy.gate_before, false).weight;
    if (scale.defined() && !own && dw.weight.defined()) {
      dscale = (dw.weight * weight).sum(1);
      dw.weight.mul_(scale.unsqueeze(1));
      if (bias.defined()) dscale.add_(dw.bias * bias), dw.bias.mul_(scale);
    }
    const torch::Tensor dresidual = ctx->saved_data["residual"].toBool() ? gradients[0] : torch::Tensor();
    return {dx, dw.weight, dw.bias, dgate, dscale, dresidual, {}, {}, {}};
  }
};

// The whole layer with gradients, recorded now or on recomputation, with the same results in both cases.
// Scale and residual after an activation (which no model has) are composed.
torch::Tensor linear_with_gradients(const torch::Tensor& x, const LinearParameters& p,
                                    const torch::Tensor& residual, LinearCache& cache) {
  if (p.activation != Activation::none && (p.scale.defined() || residual.defined())) {
    const torch::Tensor y = linear_with_gradients(x, {p.weight, p.bias, p.activation, p.gate}, {}, cache);
    return add_scaled(residual, y, p.scale);
  }
  const auto given = [](const torch::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  return LinearNode::apply(x, p.weight, given(p.bias), given(p.gate), given(p.scale), given(residual),
                           *cache.packed(without_sample_scale(p), kernels::Arithmetic::bf16), p.activation,
                           torch::GradMode::is_enabled());
}

// True if the products with gradients take the parameters: floats, or rounded weights that do not train.
bool are_taken(const LinearParameters& p, kernels::Arithmetic arithmetic) {
  const auto is_float = [](const torch::Tensor& t) {
    return !t.defined() || t.scalar_type() == torch::kFloat32;
  };
  const auto rounded = [&](const torch::Tensor& t) {
    return arithmetic == kernels::Arithmetic::bf16 && t.scalar_type() == torch::kBFloat16 &&
           !t.requires_grad();
  };
  return std::ranges::all_of(std::array{p.weight, p.gate},
                             [&](const auto& t) { return is_float(t) || rounded(t); }) &&
         is_float(p.bias) && is_float(p.scale);
}

// The layer by cuBLASLt. A scale without a residual gives floats, as the composition does.
torch::Tensor linear_by_products(const GpuPlace& place, const torch::Tensor& x, const LinearParameters& p,
                                 const torch::Tensor& residual) {
  check_parameters(x, p, residual);
  const bool one_product = p.activation == Activation::none && !of_each_sample(p.scale);
  if (one_product && (residual.defined() || !p.scale.defined()))
    return linear_on_gpu(place, x, p.weight, {p.bias, p.scale, residual});
  if (p.activation == Activation::gelu_tanh && !gradients_wanted())
    return add_scaled(residual, linear_on_gpu(place, x, p.weight, {.bias = p.bias, .gelu_tanh = true}),
                      p.scale);
  return compose(x, p, residual,
                 [&](const torch::Tensor& in, const torch::Tensor& weight, const torch::Tensor& bias) {
                   return linear_on_gpu(place, in, weight, {.bias = bias});
                 });
}

}  // namespace

torch::Tensor linear(const torch::Tensor& x, const LinearParameters& p, const torch::Tensor& residual,
                     LinearCache& cache, const NormParameters& norm) {
  if (const auto place = product_place(x, p, residual))
    return linear_by_products(*place, norm.defined() ? ops::norm(x, norm) : x, p, residual);
  const std::optional<kernels::Arithmetic> arithmetic = fused_arithmetic(x);
  if (arithmetic && fits(residual) && p.weight.scalar_type() != torch::kFloat64) {
    check_parameters(x, p, residual);
    if (norm.defined()) check_norm(x, norm.weight, norm.bias);
    const auto packed = cache.packed(without_sample_scale(p), *arithmetic);
    return run(*packed, x, residual.defined() ? residual.scalar_type() : output_type(*arithmetic), residual,
               p.gate.defined(), {}, norm, of_each_sample(p.scale) ? p.scale : torch::Tensor());
  }
  if (norm.defined()) return linear(ops::norm(x, norm), p, residual, cache);
  const std::optional<kernels::Arithmetic> trained = arithmetic ? std::nullopt : product_arithmetic(x);
  const bool composed = trained == kernels::Arithmetic::bf16 && p.weight_log_step.defined();
  if (trained && !composed && are_taken(p, *trained) && fits(residual)) {
    check_parameters(x, p, residual);
    if (trained == kernels::Arithmetic::bf16) return linear_with_gradients(x, p, residual, cache);
    return float_linear_with_gradients(x, p, residual, cache);
  }
  return linear_unfused(x, p, residual);
}

namespace {

thread_local bool on_this_thread = false;

}  // namespace

PackedOnly::PackedOnly(bool on) : before_(on_this_thread) { on_this_thread = on; }
PackedOnly::~PackedOnly() { on_this_thread = before_; }
bool packed_only() { return on_this_thread; }

void give_up(const torch::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cpu()) return;
  const c10::Storage& storage = tensor.storage();
  const bool whole = storage.nbytes() == tensor.nbytes() && storage.use_count() == 1 && storage.resizable();
  if (whole) at::native::resize_bytes_cpu(storage.unsafeGetStorageImpl(), 0);
}

bool given_up(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.numel() > 0 && tensor.storage().nbytes() == 0;
}

}  // namespace tessera::ops
