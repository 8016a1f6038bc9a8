#include "nn/layer_division.h"

#include <torch/csrc/autograd/custom_function.h>

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

thread_local const LayerDivision* division_of_this_thread = nullptr;

torch::Tensor summed(const torch::Tensor& values, const LayerDivision& division) {
  torch::Tensor sum = values.contiguous();
  if (sum.is_same(values)) sum = sum.clone();
  division.sum(sum);
  return sum;
}

const LayerDivision& division_in(AutogradContext* context) {
  return *reinterpret_cast<const LayerDivision*>(context->saved_data["division"].toInt());
}

enum class Backward { mean, multiple, sum };

// Returns the values, summed over the processes if `sums`; `backward` is for the gradient.
struct Exchange : torch::autograd::Function<Exchange> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& values, int64_t division,
                               bool sums, int64_t backward) {
    context->saved_data["division"] = division, context->saved_data["backward"] = backward;
    return sums ? summed(values, division_in(context)) : values.view_as(values);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const LayerDivision& division = division_in(context);
    const auto form = static_cast<Backward>(context->saved_data["backward"].toInt());
    const torch::Tensor& gradient = gradients[0];
    const torch::Tensor result = form == Backward::mean  ? summed(gradient, division).div_(division.size())
                                 : form == Backward::sum ? summed(gradient, division)
                                                         : gradient * division.size();
    return {result, torch::Tensor(), torch::Tensor(), torch::Tensor()};
  }
};

torch::Tensor exchange(const torch::Tensor& values, const LayerDivision& division, bool sums,
                       Backward backward) {
  return Exchange::apply(values, reinterpret_cast<int64_t>(&division), sums, static_cast<int64_t>(backward));
}

torch::Tensor rows_of(const torch::Tensor& tensor, const Share& rows, int64_t groups) {
  if (!tensor.defined()) return tensor;
  if (groups == 1) return tensor.narrow(0, rows.first, rows.count).contiguous();
  return tensor.unflatten(0, {groups, -1}).narrow(1, rows.first, rows.count).flatten(0, 1);
}

}  // namespace

LayerDivisionScope::LayerDivisionScope(const LayerDivision* division) : before_(division_of_this_thread) {
  division_of_this_thread = division;
}
LayerDivisionScope::~LayerDivisionScope() { division_of_this_thread = before_; }
const LayerDivision* LayerDivisionScope::current() { return division_of_this_thread; }

const LayerDivision* division_of(int64_t count) {
  const LayerDivision* const division = LayerDivisionScope::current();
  return division && division->size() > 1 && count >= division->size() ? division : nullptr;
}

torch::Tensor enter_division(const torch::Tensor& x, const LayerDivision& division) {
  return exchange(x, division, /*sums=*/false, Backward::mean);
}
torch::Tensor leave_division(const torch::Tensor& term, const LayerDivision& division) {
  return exchange(term, division, /*sums=*/true, Backward::multiple);
}
torch::Tensor sum_in_division(const torch::Tensor& term, const LayerDivision& division) {
  return exchange(term, division, /*sums=*/true, Backward::sum);
}

ops::LinearParameters rows_of(const torch::Tensor& weight, const torch::Tensor& bias, const Share& rows,
                              int64_t groups) {
  return {.weight = rows_of(weight, rows, groups), .bias = rows_of(bias, rows, groups)};
}

torch::Tensor product(const torch::Tensor& x, const ops::LinearParameters& parameters) {
  ops::LinearCache cache;  // for these views alone
  return ops::linear(x, parameters, {}, cache);
}

torch::Tensor join_channels(const torch::Tensor& part, const torch::Tensor& weight, const torch::Tensor& bias,
                            const Share& channels, const LayerDivision& division, const Epilogue& epilogue) {
  const torch::Tensor own = weight.narrow(1, channels.first, channels.count).contiguous();
  torch::Tensor y = leave_division(product(part, {.weight = own}), division);
  if (bias.defined()) y = y + bias.to(y.scalar_type());
  return ops::add_scaled(epilogue.residual, y, epilogue.scale);
}

}  // namespace tessera::nn
