#include "parallel/collectives.h"

#include <torch/csrc/autograd/custom_function.h>

#include "core/error.h"

namespace tessera::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

int64_t handle(const Axis& axis) { return reinterpret_cast<int64_t>(&axis); }
const Axis& axis_of(int64_t handle) { return *reinterpret_cast<const Axis*>(handle); }
const Axis& axis_of(AutogradContext* context) { return axis_of(context->saved_data["axis"].toInt()); }

torch::Tensor summed(const torch::Tensor& values, const Axis& axis) {
  torch::Tensor sum = values.contiguous();
  if (sum.is_same(values)) sum = sum.clone();
  axis.sum(sum);
  return sum;
}

struct SumOver : torch::autograd::Function<SumOver> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& values, int64_t axis) {
    context->saved_data["axis"] = axis;
    return summed(values, axis_of(axis));
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {summed(gradients[0], axis_of(context)), torch::Tensor()};
  }
};

struct GatherOver : torch::autograd::Function<GatherOver> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& rows,
                               const std::vector<int64_t>& counts, int64_t axis) {
    context->saved_data["axis"] = axis, context->saved_data["counts"] = counts;
    return axis_of(axis).gather(rows, counts);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {
        axis_of(context).scatter_sum(gradients[0].contiguous(), context->saved_data["counts"].toIntVector()),
        torch::Tensor(), torch::Tensor()};
  }
};

struct ScatterSumOver : torch::autograd::Function<ScatterSumOver> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& whole,
                               const std::vector<int64_t>& counts, int64_t axis) {
    context->saved_data["axis"] = axis, context->saved_data["counts"] = counts;
    return axis_of(axis).scatter_sum(whole.contiguous(), counts);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {axis_of(context).gather(gradients[0].contiguous(), context->saved_data["counts"].toIntVector()),
            torch::Tensor(), torch::Tensor()};
  }
};

torch::Tensor exchanged(const torch::Tensor& parts, const Axis& axis) {
  const torch::Tensor rows = parts.contiguous(), into = torch::empty_like(rows);
  const std::vector<int64_t> each(static_cast<size_t>(axis.size()), rows.size(0) / axis.size());
  axis.start_exchange(rows, each, into, each)();
  return into;
}

struct AllToAllOver : torch::autograd::Function<AllToAllOver> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& parts, int64_t axis) {
    context->saved_data["axis"] = axis;
    return exchanged(parts, axis_of(axis));
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {exchanged(gradients[0], axis_of(context)), torch::Tensor()};
  }
};

torch::Tensor shifted(const torch::Tensor& rows, int64_t count, int64_t by, const Axis& axis) {
  std::vector<int64_t> shape = rows.sizes().vec();
  shape[0] = count;
  const torch::Tensor into = torch::empty(shape, rows.options());
  axis.start_shift(rows.contiguous(), into, static_cast<int>(by))();
  return into;
}

struct ShiftOver : torch::autograd::Function<ShiftOver> {
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& rows, int64_t count, int64_t by,
                               int64_t axis) {
    context->saved_data["axis"] = axis, context->saved_data["by"] = by;
    context->saved_data["count"] = rows.size(0);
    return shifted(rows, count, by, axis_of(axis));
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {shifted(gradients[0], context->saved_data["count"].toInt(), -context->saved_data["by"].toInt(),
                    axis_of(context)),
            torch::Tensor(), torch::Tensor(), torch::Tensor()};
  }
};

}  // namespace

torch::Tensor sum_over(const torch::Tensor& values, const Axis& axis) {
  return axis.size() == 1 ? values : SumOver::apply(values, handle(axis));
}

torch::Tensor gather_over(const torch::Tensor& rows, const std::vector<int64_t>& counts, const Axis& axis) {
  return axis.size() == 1 ? rows : GatherOver::apply(rows, counts, handle(axis));
}

torch::Tensor scatter_sum_over(const torch::Tensor& whole, const std::vector<int64_t>& counts,
                               const Axis& axis) {
  return axis.size() == 1 ? whole : ScatterSumOver::apply(whole, counts, handle(axis));
}

torch::Tensor all_to_all_over(const torch::Tensor& parts, const Axis& axis) {
  check(parts.dim() >= 1 && parts.size(0) % axis.size() == 0, "axis '", axis.name(),
        "': ", parts.dim() >= 1 ? parts.size(0) : 0, " rows do not divide by ", axis.size(), " processes");
  return axis.size() == 1 ? parts : AllToAllOver::apply(parts, handle(axis));
}

torch::Tensor shift_over(const torch::Tensor& rows, int64_t count, int by, const Axis& axis) {
  return axis.size() == 1 ? rows : ShiftOver::apply(rows, count, static_cast<int64_t>(by), handle(axis));
}

}  // namespace tessera::parallel
