#include "optim/optimiser_adam.h"

#include "ops/torch.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "ops/gpu.h"
#include "optim/plain_loops.h"

namespace tessera::train {

template <bool decoupled>
Adam<decoupled>::Adam(const AdamConfig& config, std::vector<ParameterGroup> groups)
    : Optimiser(std::move(groups), names_of_state(config)), config_(config) {}

template <bool decoupled>
Adam<decoupled>::Adam(const AdamConfig& config, std::vector<ParameterGroup> groups,
                      const StateNames& state_names)
    : Optimiser(std::move(groups), state_names), config_(config) {}

template <bool decoupled>
std::vector<std::string> Adam<decoupled>::names_of_state(const AdamConfig& config) {
  std::vector<std::string> names = {"exp_avg", "exp_avg_sq"};
  if (config.amsgrad) names.emplace_back("max_exp_avg_sq");
  return names;
}

template <bool decoupled>
double Adam<decoupled>::step_size(const Slot& slot, double lr) const {
  return lr * slot.lr_scale / (1 - std::pow(beta1(), static_cast<double>(slot.updates)));
}

template <bool decoupled>
double Adam<decoupled>::root_bias2(const Slot& slot) const {
  return std::sqrt(1 - std::pow(beta2(), static_cast<double>(slot.updates)));
}

template <bool decoupled>
void Adam<decoupled>::update_tensors(const Slots& slots, double lr, double gradient_scale) {
  std::vector<torch::Tensor> p, g, m, v, largest;
  std::vector<torch::Scalar> decays, l2s, steps, roots;
  for (const Slot* slot : slots) {
    p.push_back(slot->parameter.detach()), g.push_back(slot->gradient);
    m.push_back(slot->state[0]), v.push_back(slot->state[1]);
    if (config_.amsgrad) largest.push_back(slot->state[2]);
    decays.emplace_back(decay(*slot, lr)), l2s.emplace_back(l2(*slot));
    steps.emplace_back(-step_size(*slot, lr)), roots.emplace_back(root_bias2(*slot));
  }
  if (gradient_scale != 1) g = at::_foreach_mul(g, gradient_scale);
  if (decoupled)
    at::_foreach_mul_(p, decays);
  else
    g = at::_foreach_add(g, at::_foreach_mul(p, l2s));
  at::_foreach_mul_(m, beta1());
  at::_foreach_add_(m, g, 1 - beta1());
  at::_foreach_mul_(v, beta2());
  at::_foreach_addcmul_(v, g, g, 1 - beta2());
  if (config_.amsgrad) at::_foreach_maximum_(largest, v);
  auto denominator = at::_foreach_sqrt(config_.amsgrad ? largest : v);
  at::_foreach_div_(denominator, roots);
  at::_foreach_add_(denominator, config_.eps);
  at::_foreach_addcdiv_(p, m, denominator, steps);
}

template <bool decoupled>
void Adam<decoupled>::update_plain(const Slots& slots, double lr, double gradient_scale) {
  std::vector<int64_t> sizes;
  std::vector<plain::Adam> constants;
  const auto f = [](double value) { return static_cast<float>(value); };
  for (const Slot* slot : slots) {
    sizes.push_back(slot->parameter.numel());
    constants.push_back({f(gradient_scale), f(l2(*slot)), f(decay(*slot, lr)), f(beta1()), f(1 - beta1()),
                         f(beta2()), f(1 - beta2()), f(step_size(*slot, lr)), f(root_bias2(*slot)),
                         f(config_.eps)});
  }
  const auto blocks = plain::cut_into_blocks(sizes);
  plain::for_each_block(blocks, [&](size_t i) {
    const auto& [tensor, begin, end] = blocks[i];
    const Slot& slot = *slots[tensor];
    float* p = slot.parameter.data_ptr<float>() + begin;
    const float* g = slot.gradient.const_data_ptr<float>() + begin;
    float *m = slot.state[0].data_ptr<float>() + begin, *v = slot.state[1].data_ptr<float>() + begin;
    if (config_.amsgrad)
      plain::amsgrad(p, g, m, v, slot.state[2].data_ptr<float>() + begin, end - begin, constants[tensor]);
    else
      plain::adam(p, g, m, v, end - begin, constants[tensor]);
  });
}

template <bool decoupled>
bool Adam<decoupled>::has_kernel(const Slot& slot) const {
  const auto place = ops::gpu_place(slot.parameter);
  if (!place) return false;
  kernels::gpu::AdamStep any;
  const kernels::gpu::AdamTensor tensor{};
  any.tensors = &tensor, any.count = any.blocks = 1;
  return kernels::gpu::choose_form(kernels::gpu::table()->adam, place->capability, any) != nullptr;
}

// Returns a parameter's row, without blocks and corrections.
template <bool decoupled>
kernels::gpu::AdamTensor Adam<decoupled>::row_of(const Slot& slot) const {
  const auto f = [](double value) { return static_cast<float>(value); };
  kernels::gpu::AdamTensor row{};
  const torch::Tensor p = slot.parameter.detach();
  row.p = p.mutable_data_ptr<float>(), row.g = slot.gradient.const_data_ptr<float>();
  row.m = slot.state[0].mutable_data_ptr<float>(), row.v = slot.state[1].mutable_data_ptr<float>();
  if (config_.amsgrad) row.largest = slot.state[2].mutable_data_ptr<float>();
  row.count = p.numel(), row.rate = f(slot.lr_scale);
  (decoupled ? row.decay : row.l2) = f((decoupled ? slot.lr_scale : 1) * slot.first_decay);
  return row;
}

// Copies the table to the device if it changed, and computes the corrections there if the updates are there.
template <bool decoupled>
void Adam<decoupled>::send_table(const std::vector<kernels::gpu::AdamTensor>& table,
                                 const torch::Tensor& updates, torch::Device device) {
  using Row = kernels::gpu::AdamTensor;
  static_assert(offsetof(Row, root) == offsetof(Row, correction) + sizeof(float));
  const auto rows = static_cast<int64_t>(table.size());
  const size_t bytes = table.size() * sizeof(Row);
  if (table.size() != table_.size() || std::memcmp(table.data(), table_.data(), bytes) != 0 ||
      corrected_there_ != updates.defined()) {
    const torch::Tensor host =
        torch::from_blob(const_cast<Row*>(table.data()), {static_cast<int64_t>(bytes)}, torch::kUInt8);
    table_there_ = ops::sent_to(device, device.is_cpu() ? host.clone() : host), table_ = table;
    corrected_there_ = updates.defined();
  }
  if (!updates.defined()) return;
  constexpr int64_t kNumbers = sizeof(Row) / sizeof(float), kAt = offsetof(Row, correction) / sizeof(float);
  const torch::Tensor numbers = table_there_.view(torch::kFloat32).view({rows, kNumbers});
  const auto bias = [&](double beta) { return (updates * std::log(beta)).expm1().neg(); };  // 1 - beta^t
  numbers.select(1, kAt).copy_(bias(beta1()).reciprocal());
  numbers.select(1, kAt + 1).copy_(bias(beta2()).sqrt());
}

template <bool decoupled>
void Adam<decoupled>::update_there(const Slots& slots, double lr, double decay_factor,
                                   const torch::Tensor& scale, const torch::Tensor& updates) {
  const auto f = [](double value) { return static_cast<float>(value); };
  // Parameters with fewer updates have corrections of their own.
  const Slot& usual = **std::max_element(
      slots.begin(), slots.end(), [](const Slot* a, const Slot* b) { return a->updates < b->updates; });
  const auto correction = [&](const Slot& slot) {
    return 1 / (1 - std::pow(beta1(), static_cast<double>(slot.updates)));
  };
  std::vector<kernels::gpu::AdamTensor> table;
  int64_t blocks = 0;
  for (const Slot* slot : slots) {
    kernels::gpu::AdamTensor row = row_of(*slot);
    row.first = blocks;
    blocks += (row.count + kernels::gpu::kAdamBlock - 1) / kernels::gpu::kAdamBlock;
    if (!updates.defined() && slot->updates != usual.updates)
      row.correction = f(correction(*slot)), row.root = f(root_bias2(*slot));
    table.push_back(row);
  }
  if (blocks == 0) return;  // empty tensors alone
  send_table(table, updates, scale.device());
  kernels::gpu::AdamStep call;
  call.tensors = static_cast<const kernels::gpu::AdamTensor*>(table_there_.const_data_ptr());
  call.count = static_cast<int64_t>(table.size()), call.blocks = blocks;
  call.lr = f(lr), call.decay_factor = f(decay_factor);
  call.correction = f(correction(usual)), call.root = f(root_bias2(usual));
  call.beta1 = f(beta1()), call.rest1 = f(1 - beta1()), call.beta2 = f(beta2()), call.rest2 = f(1 - beta2());
  call.eps = f(config_.eps), call.scale = scale.const_data_ptr<float>();
  const auto place = *ops::gpu_place(slots[0]->parameter);
  const auto* form = kernels::gpu::choose_form(kernels::gpu::table()->adam, place.capability, call);
  ops::run_on_gpu("adam", place, *form, call);
}

template class Adam<true>;
template class Adam<false>;

OptimiserKind adamw() { return optimiser_kind<AdamConfig, Adam<true>>("adamw"); }

OptimiserKind adam() { return optimiser_kind<AdamConfig, Adam<false>>("adam"); }

}  // namespace tessera::train
