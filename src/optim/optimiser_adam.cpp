#include "optim/optimiser_adam.h"

#include "ops/torch.h"

#include <cmath>

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
kernels::gpu::OptimiserStep Adam<decoupled>::kernel_step() const {
  return moments_step(kernels::gpu::OptimiserRule::adam, beta1(), beta2(), config_.eps);
}

template <bool decoupled>
void Adam<decoupled>::fill(kernels::gpu::OptimiserTensor& row, const Slot& slot) const {
  (decoupled ? row.decay : row.l2) = static_cast<float>((decoupled ? slot.lr_scale : 1) * slot.first_decay);
}

template class Adam<true>;
template class Adam<false>;

OptimiserKind adamw() { return optimiser_kind<AdamConfig, Adam<true>>("adamw"); }

OptimiserKind adam() { return optimiser_kind<AdamConfig, Adam<false>>("adam"); }

}  // namespace tessera::train
