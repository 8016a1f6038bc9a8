#include "runs/meter.h"

#include "core/error.h"

namespace tessera::train {

Meter::Meter(std::vector<std::string> names, torch::Device device, bool with_gradient_norm)
    : names_(std::move(names)), device_(device), with_gradient_norm_(with_gradient_norm) {
  names_.insert(names_.begin(), "loss");
  new_epoch();
}

Meter::Sums Meter::zero() const {
  const auto count = static_cast<int64_t>(names_.size()) + 1;
  return {torch::zeros({count}, torch::TensorOptions(torch::kFloat64).device(device_)), 0};
}

Meter::Sums Meter::reduced(const Sums& sums, const Reduce& reduce) {
  if (!reduce) return sums;
  const torch::Tensor packed =
      torch::cat({sums.values.to(torch::kCPU), torch::tensor({sums.steps}, torch::kFloat64)});
  reduce(packed);
  const int64_t count = sums.values.numel();
  return {packed.narrow(0, 0, count).to(sums.values.device()), packed[count].item<double>()};
}

void Meter::add(const StepMeans& means, const torch::Tensor& gradient_norm, const torch::Tensor& counts) {
  std::vector<torch::Tensor> values = {means.loss.detach().to(torch::kFloat64)};
  if (means.loss_share != means.share) values[0] = values[0] * (means.loss_share / means.share);
  for (const torch::Tensor& term : means.terms) values.push_back(term.to(torch::kFloat64));
  values.push_back(gradient_norm);
  torch::Tensor all = torch::stack(values);
  if (counts.defined()) all = torch::where(counts, all, 0.0);
  interval_.values.add_(all, means.share);
  interval_.steps += means.share;
}

Metrics Meter::means(const Sums& sums) const {
  Metrics means;
  if (sums.steps == 0) return means;
  const torch::Tensor values = sums.values.to(torch::kCPU);
  for (size_t i = 0; i < names_.size(); ++i)
    means.emplace_back(names_[i], values[static_cast<int64_t>(i)].item<double>() / sums.steps);
  if (with_gradient_norm_) means.emplace_back("grad_norm", values[-1].item<double>() / sums.steps);
  return means;
}

Metrics Meter::interval(const Reduce& reduce) const { return means(reduced(interval_, reduce)); }

Metrics Meter::epoch(const Reduce& reduce) const {
  return means(reduced({before_.values + interval_.values, before_.steps + interval_.steps}, reduce));
}

void Meter::new_interval() {
  before_.values += interval_.values;
  before_.steps += interval_.steps;
  interval_ = zero();
}

void Meter::new_epoch() {
  before_ = zero();
  interval_ = zero();
}

Value Meter::state_of(const Sums& sums) const {
  const torch::Tensor values = sums.values.to(torch::kCPU);
  Value::Array list;
  for (int64_t i = 0; i + 1 < values.numel(); ++i) list.emplace_back(values[i].item<double>());
  Value state;
  state.set("values", std::move(list));
  state.set("gradient_norm", values[-1].item<double>());
  state.set("steps", sums.steps);
  return state;
}

Meter::Sums Meter::sums_of(const Value& state) const {
  Sums sums = zero();
  const Value* values = state.find("values");
  const Value* norm = state.find("gradient_norm");
  const Value* steps = state.find("steps");
  check(values && values->is_array() && values->as_array().size() == names_.size() && norm &&
            norm->is_number() && steps && steps->is_number(),
        "checkpoint: the running means are not those of this task");
  std::vector<double> numbers;
  for (const Value& value : values->as_array()) {
    check(value.is_number(), "checkpoint: the running means hold ", value.type_name());
    numbers.push_back(value.as_double());
  }
  numbers.push_back(norm->as_double());
  sums.values.copy_(torch::tensor(numbers, torch::kFloat64));
  sums.steps = steps->as_double();
  return sums;
}

Value Meter::state(const Reduce& reduce) const {
  Value state;
  state.set("interval", state_of(reduced(interval_, reduce)));
  state.set("before", state_of(reduced(before_, reduce)));
  return state;
}

void Meter::load_state(const Value& state) {
  const Value* interval = state.find("interval");
  const Value* before = state.find("before");
  check(interval && before, "checkpoint: no running means");
  interval_ = sums_of(*interval);
  before_ = sums_of(*before);
}

}  // namespace tessera::train
