// An optimiser's step by one call of a GPU's kernel over all parameters (kernels/optimiser), with nothing read back.
#include "ops/torch.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "ops/gpu.h"
#include "optim/optimiser_kind.h"
#include "optim/plain_tensors.h"

namespace tessera::train {

using kernels::gpu::OptimiserRule;
using kernels::gpu::OptimiserStep;
using kernels::gpu::OptimiserTensor;

namespace {

bool has_ratios(OptimiserRule rule) { return rule == OptimiserRule::lars || rule == OptimiserRule::lamb; }

int64_t blocks_of(int64_t count) {
  return (count + kernels::gpu::kOptimiserBlock - 1) / kernels::gpu::kOptimiserBlock;
}

}  // namespace

OptimiserStep moments_step(OptimiserRule rule, double beta1, double beta2, double eps) {
  const auto f = [](double value) { return static_cast<float>(value); };
  OptimiserStep step;
  step.rule = rule, step.eps = f(eps);
  step.beta1 = f(beta1), step.rest1 = f(1 - beta1), step.log_beta1 = f(std::log(beta1));
  step.beta2 = f(beta2), step.rest2 = f(1 - beta2), step.log_beta2 = f(std::log(beta2));
  return step;
}

bool Optimiser::has_kernel(const Slot& slot) const {
  const auto place = ops::gpu_place(slot.parameter);
  if (!place) return false;
  OptimiserStep any = kernel_step();
  const OptimiserTensor tensor{};
  float sum = 0;
  any.tensors = &tensor, any.count = any.blocks = 1, any.sums = &sum;
  return kernels::gpu::choose_form(kernels::gpu::table()->optimiser, place->capability, any) != nullptr;
}

bool Optimiser::kernel_takes(const Slot& slot) const {
  const auto fits = [&](const torch::Tensor& t) {
    return t.scalar_type() == torch::kFloat32 && t.is_non_overlapping_and_dense() &&
           plain::same_layout(t, slot.parameter);
  };
  return !composition_ && has_kernel(slot) && fits(slot.parameter) &&
         std::all_of(slot.state.begin(), slot.state.end(), fits);
}

bool Optimiser::updates_there() const {
  return !slots_.empty() && !norm_of_all_ && std::all_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return slot.parameter.numel() == 0 || kernel_takes(slot);
  });
}

void Optimiser::step_there(double lr, const torch::Tensor& gradient_scale, double decay_factor,
                           AveragingThere* averaging) {
  check(updates_there(), "optimiser: no kernel for a step with its factor on the device");
  step(lr, 1, gradient_scale, decay_factor, averaging);
}

Optimiser::~Optimiser() {
  for (const Slot& slot : slots_)
    if (slot.half.defined()) ops::forget_half(slot.parameter);
}

void Optimiser::keep_halves(const std::vector<torch::Tensor>& weights) {
  for (Slot& slot : slots_) {
    const bool listed = std::any_of(weights.begin(), weights.end(),
                                    [&](const torch::Tensor& one) { return one.is_same(slot.parameter); });
    if (listed && slot.parameter.numel() > 0 && kernel_takes(slot))
      slot.half = torch::empty_like(slot.parameter.detach(), torch::kBFloat16);
  }
}

// Counts a step on the device, unless its factor is not finite.
void Optimiser::count_there(const torch::Tensor& scale) {
  std::vector<double> counted, due;
  for (const Slot& slot : slots_) {
    counted.push_back(static_cast<double>(slot.updates));
    due.push_back(slot.parameter.grad().defined() ? 1 : 0);
  }
  counted.push_back(static_cast<double>(steps_)), due.push_back(1);
  if (!counts_there_.defined())
    counts_there_ = ops::sent_to(scale.device(), torch::tensor(counted, torch::kFloat64));
  const bool all = std::find(due.begin(), due.end(), 0.0) == due.end();
  torch::Tensor counts = scale.isfinite();
  if (!all) counts = counts * ops::sent_to(scale.device(), torch::tensor(due, torch::kFloat64));
  counts_there_.add_(counts);
}

// Returns a parameter's row, without its blocks.
OptimiserTensor Optimiser::row_of(const Slot& slot) const {
  const auto state = [&](size_t i) {
    return i < slot.state.size() ? slot.state[i].mutable_data_ptr<float>() : nullptr;
  };
  OptimiserTensor row{};
  const torch::Tensor p = slot.parameter.detach();
  row.p = p.mutable_data_ptr<float>(), row.g = slot.gradient.const_data_ptr<float>();
  row.m = state(0), row.v = state(1), row.largest = state(2);
  if (slot.half.defined()) row.half = static_cast<uint16_t*>(slot.half.mutable_data_ptr());
  row.count = p.numel(), row.slot = &slot - slots_.data();
  row.rate = static_cast<float>(slot.lr_scale);
  fill(row, slot);
  return row;
}

void Optimiser::send_table(const std::vector<OptimiserTensor>& table, torch::Device device) {
  const size_t bytes = table.size() * sizeof(OptimiserTensor);
  if (table.size() == table_.size() && std::memcmp(table.data(), table_.data(), bytes) == 0) return;
  const torch::Tensor host = torch::from_blob(const_cast<OptimiserTensor*>(table.data()),
                                              {static_cast<int64_t>(bytes)}, torch::kUInt8);
  table_there_ = ops::sent_to(device, device.is_cpu() ? host.clone() : host), table_ = table;
}

void Optimiser::update_there(const Slots& slots, double lr, double decay_factor, const torch::Tensor& scale,
                             AveragingThere* averaging) {
  // Parameters with fewer updates have counts of their own.
  const int64_t usual = (*std::max_element(slots.begin(), slots.end(), [](const Slot* a, const Slot* b) {
                          return a->updates < b->updates;
                        }))->updates;
  std::vector<OptimiserTensor> table;
  int64_t blocks = 0;
  for (const Slot* slot : slots) {
    OptimiserTensor& row = table.emplace_back(row_of(*slot));
    row.first = blocks, blocks += blocks_of(row.count);
    if (!counts_there_.defined() && slot->updates != usual) row.updates = static_cast<float>(slot->updates);
    const torch::Tensor average = averaging ? averaging->take(slot->parameter) : torch::Tensor();
    if (average.defined()) row.average = average.mutable_data_ptr<float>();
  }
  send_table(table, scale.device());
  OptimiserStep call = kernel_step();
  call.tensors = static_cast<const OptimiserTensor*>(table_there_.const_data_ptr());
  call.count = static_cast<int64_t>(table.size()), call.blocks = blocks;
  call.lr = static_cast<float>(lr), call.decay_factor = static_cast<float>(decay_factor);
  call.updates = static_cast<float>(usual), call.scale = scale.const_data_ptr<float>();
  if (counts_there_.defined()) call.counts = counts_there_.const_data_ptr<double>();
  if (averaging) call.share = averaging->share.const_data_ptr<float>();
  torch::Tensor sums;
  if (has_ratios(call.rule)) {
    sums = torch::empty({2 * blocks + call.count}, scale.options());
    call.sums = sums.mutable_data_ptr<float>();
  }
  const auto place = *ops::gpu_place(slots[0]->parameter);
  const auto* form = kernels::gpu::choose_form(kernels::gpu::table()->optimiser, place.capability, call);
  ops::run_on_gpu("optimiser", place, *form, call);
}

}  // namespace tessera::train
