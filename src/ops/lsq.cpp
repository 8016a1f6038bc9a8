#include "ops/lsq.h"

#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <optional>

#include "core/error.h"

namespace tessera::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Sums a gradient over the axes along which its argument was broadcast.
torch::Tensor summed_to(const torch::Tensor& gradient, torch::IntArrayRef shape) {
  return at::sum_to(gradient, shape);
}

// Returns (x - offset) / step_size.
torch::Tensor in_step_sizes(const torch::Tensor& x, const torch::Tensor& step_size,
                            const torch::Tensor& offset) {
  return (offset.defined() ? x - offset : x) * step_size.reciprocal();
}

class Lsq : public torch::autograd::Function<Lsq> {
 public:
  static Variable forward(AutogradContext* context, const Variable& x, const Variable& step_size, int64_t low,
                          int64_t high, const std::optional<torch::Tensor>& given_offset, int64_t sharing) {
    const torch::Tensor offset = given_offset.value_or(torch::Tensor());
    context->save_for_backward({x, step_size, offset});
    context->saved_data["low"] = low;
    context->saved_data["high"] = high;
    context->saved_data["sharing"] = sharing > 0 ? sharing : x.numel() / step_size.numel();
    const torch::Tensor y = in_step_sizes(x, step_size, offset)
                                .clamp_(static_cast<double>(-low), static_cast<double>(high))
                                .round_()
                                .mul_(step_size);
    return offset.defined() ? y + offset : y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor &x = saved[0], &step_size = saved[1], &offset = saved[2], &gradient = gradients[0];
    const auto low = static_cast<double>(context->saved_data["low"].toInt()),
               high = static_cast<double>(context->saved_data["high"].toInt());
    const torch::Tensor v = in_step_sizes(x, step_size, offset);
    const torch::Tensor inside = (v > -low).logical_and(v < high);
    const torch::Tensor to_x = gradient * inside;
    // Outside the range the derivative is the bound itself, inside it is the rounding error.
    const torch::Tensor slope = v.clamp(-low, high).round() - v * inside;
    const auto sharing = static_cast<double>(context->saved_data["sharing"].toInt());
    const torch::Tensor to_step_size =
        summed_to(gradient * slope, step_size.sizes()) / std::sqrt(sharing * high);
    torch::Tensor to_offset;
    if (offset.defined()) to_offset = summed_to(gradient - to_x, offset.sizes());
    return {to_x, to_step_size, {}, {}, to_offset, {}};
  }
};

}  // namespace

QuantisedRange quantised_range(int64_t bits, bool with_sign) {
  check(bits >= 2 && bits <= 16, "quantisation to ", bits, " bits: must be 2 to 16");
  if (!with_sign) return {0, (int64_t{1} << bits) - 1};
  return {int64_t{1} << (bits - 1), (int64_t{1} << (bits - 1)) - 1};
}

torch::Tensor learned_step_size_quantise(const torch::Tensor& x, const torch::Tensor& step_size,
                                         const QuantisedRange& range, const torch::Tensor& offset,
                                         int64_t sharing) {
  // The arguments of an autograd function must be defined tensors, or absent.
  return Lsq::apply(x, step_size, range.low, range.high,
                    offset.defined() ? std::optional<torch::Tensor>(offset) : std::nullopt, sharing);
}

torch::Tensor zero_point_quantise(const torch::Tensor& x, const torch::Tensor& step_size,
                                  const torch::Tensor& zero_point, const QuantisedRange& range,
                                  int64_t sharing) {
  const int64_t shared = sharing > 0 ? sharing : x.numel() / step_size.numel();
  const double scale = 1 / std::sqrt(static_cast<double>(shared * range.high));
  // The offset of the zero point. Its gradient is scaled like the rest of the step size's gradient.
  const torch::Tensor integer = zero_point + (zero_point.round() - zero_point).detach();
  const torch::Tensor offset = -integer * step_size;
  const torch::Tensor scaled = offset.detach() + (offset - offset.detach()) * scale;
  return learned_step_size_quantise(x, step_size, range, scaled, shared);
}

torch::Tensor first_step_size(const torch::Tensor& x, const QuantisedRange& range, bool per_channel) {
  const torch::NoGradGuard no_grad;
  const double scale = 2 / std::sqrt(static_cast<double>(range.high));
  if (!per_channel) return x.abs().mean().reshape({1}) * scale;
  std::vector<int64_t> axes;
  for (int64_t axis = 1; axis < x.dim(); ++axis) axes.push_back(axis);
  return x.abs().mean(axes, /*keepdim=*/true) * scale;
}

}  // namespace tessera::ops
