// Stochastic gradient descent with momentum, as in torch.optim.SGD, and LARS (You et al., "Large batch
// training of convolutional networks", 2017), as in timm: the same descent on g' = ratio (g + wd p),
//   ratio = trust |p| / (|g| + wd |p| + eps) if both norms are positive, else 1.
// Parameters without weight decay keep ratio 1 in LARS, unless always_adapt (timm) or adapt_matrices (MAE) is
// set. trust_clip makes the ratio min(ratio / lr, 1) (LARC). The first momentum buffer is the gradient
// itself, without dampening.
#include "ops/torch.h"

#include <cmath>

#include "core/error.h"
#include "optim/optimiser_kind.h"
#include "optim/plain_loops.h"

namespace tessera::train {
namespace {

struct SgdConfig : OptimiserSettings {
  double momentum = 0.9, dampening = 0;
  bool nesterov = false;

  template <class V>
  void visit(V& v) {
    OptimiserSettings::visit(v);
    v("momentum", momentum, "momentum of the buffer; 0 = none"),
        v("dampening", dampening, "share of the gradient left out");
    v("nesterov", nesterov, "look ahead along the buffer");
  }
  void check(const std::string& where) const {
    check_setting(where, "momentum", momentum, 0, 1);
    if (!(dampening >= 0 && dampening <= 1))
      fail_usage(where, ".dampening is ", dampening, ", must be 0 to 1");
    if (nesterov && momentum == 0) fail_usage(where, ".nesterov needs a momentum above 0");
  }
};

struct LarsConfig : SgdConfig {
  double trust_coeff = 0.001, eps = 1e-8;
  bool trust_clip = false, always_adapt = false, adapt_matrices = false;

  template <class V>
  void visit(V& v) {
    SgdConfig::visit(v);
    v("trust_coeff", trust_coeff, "factor of the trust ratio"),
        v("eps", eps, "added to the ratio's denominator");
    v("trust_clip", trust_clip, "bound the resulting rate by the given one (LARC)");
    v("always_adapt", always_adapt, "trust ratio for parameters without weight decay too");
    v("adapt_matrices", adapt_matrices,
      "trust ratio for parameters of two dimensions or more, whatever their decay (MAE's linear probe)");
  }
  void check(const std::string& where) const {
    SgdConfig::check(where);
    check_setting(where, "trust_coeff", trust_coeff, 0, HUGE_VAL);
    check_setting(where, "eps", eps, 0, 1);
  }
};

std::vector<std::string> buffers(const SgdConfig& config) {
  return config.momentum == 0 ? std::vector<std::string>{} : std::vector<std::string>{"momentum_buffer"};
}

class Sgd : public Optimiser {
 public:
  Sgd(const SgdConfig& config, std::vector<ParameterGroup> groups)
      : Optimiser(std::move(groups), buffers(config)), config_(config) {}

 protected:
  // Hooks for LARS: the factor on a slot's gradient (decay included), from the norms of parameter and
  // gradient.
  virtual bool adapts(const Slot&) const { return false; }
  virtual double trust(const Slot&, double /*length*/, double /*gradient*/, double /*lr*/) const { return 1; }

  kernels::gpu::OptimiserStep kernel_step() const override {
    kernels::gpu::OptimiserStep step;
    step.rule = kernels::gpu::OptimiserRule::sgd, step.nesterov = config_.nesterov;
    step.beta1 = static_cast<float>(config_.momentum), step.rest1 = static_cast<float>(1 - config_.dampening);
    return step;
  }

 private:
  void fill(kernels::gpu::OptimiserTensor& row, const Slot& slot) const override {
    row.l2 = static_cast<float>(slot.first_decay), row.adapts = adapts(slot);
  }

  void update_tensors(const Slots& slots, double lr, double gradient_scale) override {
    for (const Slot* slot : slots) {
      torch::Tensor p = slot->parameter.detach(), g = slot->gradient * gradient_scale;
      const double rate = lr * slot->lr_scale;
      double ratio = 1;
      if (adapts(*slot)) ratio = trust(*slot, p.norm().item<double>(), g.norm().item<double>(), rate);
      g.add_(p, slot->weight_decay).mul_(ratio);
      if (config_.momentum != 0) {
        torch::Tensor buffer = slot->state[0];
        if (slot->updates == 1)
          buffer.copy_(g);
        else
          buffer.mul_(config_.momentum).add_(g, 1 - config_.dampening);
        g = config_.nesterov ? g.add(buffer, config_.momentum) : buffer;
      }
      p.add_(g, -rate);
    }
  }

  void update_plain(const Slots& slots, double lr, double gradient_scale) override {
    std::vector<int64_t> sizes;
    for (const Slot* slot : slots) sizes.push_back(slot->parameter.numel());
    const auto blocks = plain::cut_into_blocks(sizes);
    const std::vector<double> ratios = plain_ratios(slots, blocks, lr, gradient_scale);
    const auto f = [](double value) { return static_cast<float>(value); };
    plain::for_each_block(blocks, [&](size_t i) {
      const auto& [tensor, begin, end] = blocks[i];
      const Slot& slot = *slots[tensor];
      const plain::Sgd constants = {f(gradient_scale),   f(slot.weight_decay),     f(ratios[tensor]),
                                    f(config_.momentum), f(1 - config_.dampening), f(lr * slot.lr_scale),
                                    slot.updates == 1,   config_.nesterov};
      plain::sgd(slot.parameter.data_ptr<float>() + begin, slot.gradient.const_data_ptr<float>() + begin,
                 slot.state.empty() ? nullptr : slot.state[0].data_ptr<float>() + begin, end - begin,
                 constants);
    });
  }

  std::vector<double> plain_ratios(const Slots& slots, const std::vector<plain::Block>& blocks, double lr,
                                   double gradient_scale) const {
    std::vector<double> lengths(blocks.size()), gradients(blocks.size()), ratios(slots.size(), 1.0);
    plain::for_each_block(blocks, [&](size_t i) {
      const auto& [tensor, begin, end] = blocks[i];
      const Slot& slot = *slots[tensor];
      if (!adapts(slot)) return;
      lengths[i] = plain::sum_of_squares(slot.parameter.const_data_ptr<float>() + begin, end - begin);
      gradients[i] = plain::sum_of_squares(slot.gradient.const_data_ptr<float>() + begin, end - begin);
    });
    std::vector<double> length(slots.size()), gradient(slots.size());
    for (size_t i = 0; i < blocks.size(); ++i) {
      length[blocks[i].tensor] += lengths[i];
      gradient[blocks[i].tensor] += gradients[i];
    }
    for (size_t i = 0; i < slots.size(); ++i)
      if (adapts(*slots[i]))
        ratios[i] = trust(*slots[i], std::sqrt(length[i]), std::sqrt(gradient[i]) * std::abs(gradient_scale),
                          lr * slots[i]->lr_scale);
    return ratios;
  }

  SgdConfig config_;
};

class Lars final : public Sgd {
 public:
  static constexpr bool kReadsWhole = true;
  Lars(const LarsConfig& config, std::vector<ParameterGroup> groups)
      : Sgd(config, std::move(groups)), config_(config) {}

 private:
  bool adapts(const Slot& slot) const override {
    if (config_.adapt_matrices) return slot.parameter.dim() > 1;
    return slot.weight_decay != 0 || config_.always_adapt;
  }
  double trust(const Slot& slot, double length, double gradient, double lr) const override {
    double ratio = 1;
    if (length > 0 && gradient > 0)
      ratio = config_.trust_coeff * length / (gradient + length * slot.weight_decay + config_.eps);
    return config_.trust_clip && lr > 0 ? std::min(ratio / lr, 1.0) : ratio;
  }
  kernels::gpu::OptimiserStep kernel_step() const override {
    kernels::gpu::OptimiserStep step = Sgd::kernel_step();
    step.rule = kernels::gpu::OptimiserRule::lars, step.clips_trust = config_.trust_clip;
    step.trust = static_cast<float>(config_.trust_coeff), step.trust_eps = static_cast<float>(config_.eps);
    return step;
  }

  LarsConfig config_;
};

}  // namespace

OptimiserKind sgd() {
  SgdConfig config;
  config.lr = 0.1;
  config.weight_decay = 1e-4;
  return optimiser_kind<SgdConfig, Sgd>("sgd", config);
}

OptimiserKind lars() {
  LarsConfig config;
  config.lr = 1;
  config.weight_decay = 1e-4;
  return optimiser_kind<LarsConfig, Lars>("lars", config);
}

}  // namespace tessera::train
