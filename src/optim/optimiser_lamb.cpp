// LAMB (You et al., "Large batch optimization for deep learning", 2020) as in timm. First clips the norm of
// all gradients together to max_grad_norm; then
//   u = (m / bias1) / (sqrt(v) / sqrt(bias2) + eps) + wd p
//   p <- p - lr * ratio * u,  ratio = |p| / |u| if both are positive, else 1.
// Parameters without weight decay keep ratio 1 unless always_adapt is set. decoupled_decay removes wd from u
// and does p <- (1 - lr wd) p beforehand.
#include "ops/torch.h"

#include <cmath>

#include "optim/optimiser_kind.h"
#include "optim/plain_loops.h"

namespace tessera::train {
namespace {

struct LambConfig : OptimiserSettings {
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-6, max_grad_norm = 1;
  bool trust_clip = false, always_adapt = false, decoupled_decay = false;
  bool grad_averaging = true, bias_correction = true;

  template <class V>
  void visit(V& v) {
    OptimiserSettings::visit(v);
    v("betas", betas, "decay of the first and second moment"),
        v("eps", eps, "added to the root of the second moment");
    v("max_grad_norm", max_grad_norm, "bound on the norm of all gradients; 0 = none");
    v("trust_clip", trust_clip, "bound the trust ratio by 1 (LAMBC)");
    v("always_adapt", always_adapt, "trust ratio for parameters without weight decay too");
    v("decoupled_decay", decoupled_decay, "weight decay separate from the update, as in AdamW");
    v("grad_averaging", grad_averaging, "first moment takes (1 - beta1) of the gradient, else all of it");
    v("bias_correction", bias_correction, "divide the moments by 1 - beta^t");
  }
  void check(const std::string& where) const {
    check_betas(where, betas);
    check_setting(where, "eps", eps, 0, 1);
    check_setting(where, "max_grad_norm", max_grad_norm, 0, HUGE_VAL);
  }
};

class Lamb final : public Optimiser {
 public:
  static constexpr bool kReadsWhole = true;
  Lamb(const LambConfig& config, std::vector<ParameterGroup> groups)
      : Optimiser(std::move(groups), {"exp_avg", "exp_avg_sq"}), config_(config) {}

 private:
  double beta1() const { return config_.betas[0]; }
  double beta2() const { return config_.betas[1]; }
  double beta3() const { return config_.grad_averaging ? 1 - beta1() : 1; }
  double bias(const Slot& slot, double beta) const {
    return config_.bias_correction ? 1 - std::pow(beta, static_cast<double>(slot.updates)) : 1;
  }
  double decay(const Slot& slot, double lr) const {
    return config_.decoupled_decay ? 1 - lr * slot.lr_scale * slot.weight_decay : 1;
  }
  double l2(const Slot& slot) const { return config_.decoupled_decay ? 0 : slot.weight_decay; }
  bool adapts(const Slot& slot) const { return slot.weight_decay != 0 || config_.always_adapt; }

  double rescale(const Slots& slots, double gradient_scale) override {
    if (config_.max_grad_norm == 0) return gradient_scale;
    const double norm = norm_of(slots) * std::abs(gradient_scale);
    return gradient_scale / std::max(norm / config_.max_grad_norm, 1.0);
  }

  torch::Tensor rescale_there(const Slots& slots, const torch::Tensor& gradient_scale) const override {
    if (config_.max_grad_norm == 0) return gradient_scale;
    std::vector<torch::Tensor> gradients;
    for (const Slot* slot : slots) gradients.push_back(slot->gradient);
    const torch::Tensor norm = gradient_norm_there(gradients, 2) * gradient_scale.abs();
    return (gradient_scale / (norm / config_.max_grad_norm).clamp_min(1)).to(torch::kFloat32);
  }

  kernels::gpu::OptimiserStep kernel_step() const override {
    auto step = moments_step(kernels::gpu::OptimiserRule::lamb, beta1(), beta2(), config_.eps);
    step.rest1 = static_cast<float>(beta3()), step.clips_trust = config_.trust_clip;
    if (!config_.bias_correction) step.log_beta1 = step.log_beta2 = -HUGE_VALF;
    return step;
  }

  void fill(kernels::gpu::OptimiserTensor& row, const Slot& slot) const override {
    (config_.decoupled_decay ? row.decay : row.l2) =
        static_cast<float>((config_.decoupled_decay ? slot.lr_scale : 1) * slot.first_decay);
    row.adapts = adapts(slot);
  }

  void update_tensors(const Slots& slots, double lr, double gradient_scale) override {
    for (const Slot* slot : slots) {
      torch::Tensor p = slot->parameter.detach(), m = slot->state[0], v = slot->state[1];
      const torch::Tensor g = slot->gradient * gradient_scale;
      m.mul_(beta1()).add_(g, beta3());
      v.mul_(beta2()).addcmul_(g, g, 1 - beta2());
      torch::Tensor u =
          (m / bias(*slot, beta1())) / (v.sqrt() / std::sqrt(bias(*slot, beta2())) + config_.eps);
      p.mul_(decay(*slot, lr));
      u.add_(p, l2(*slot));
      if (adapts(*slot)) {
        const torch::Tensor length = p.norm(), step = u.norm();
        torch::Tensor ratio = torch::where((length > 0).logical_and(step > 0), length / step, 1.0);
        if (config_.trust_clip) ratio = ratio.clamp_max(1.0);
        u.mul_(ratio.to(u.scalar_type()));
      }
      p.add_(u, -lr * slot->lr_scale);
    }
  }

  void update_plain(const Slots& slots, double lr, double gradient_scale) override {
    std::vector<int64_t> sizes;
    std::vector<plain::Lamb> constants;
    const auto f = [](double value) { return static_cast<float>(value); };
    for (const Slot* slot : slots) {
      sizes.push_back(slot->parameter.numel());
      constants.push_back({f(gradient_scale), f(l2(*slot)), f(decay(*slot, lr)), f(beta1()), f(beta3()),
                           f(beta2()), f(1 - beta2()), f(bias(*slot, beta1())),
                           f(std::sqrt(bias(*slot, beta2()))), f(config_.eps)});
    }
    const auto blocks = plain::cut_into_blocks(sizes);
    std::vector<plain::LambNorms> partial(blocks.size()), norms(slots.size());
    plain::for_each_block(blocks, [&](size_t i) {
      const auto& [tensor, begin, end] = blocks[i];
      const Slot& slot = *slots[tensor];
      partial[i] = plain::lamb_moments(
          slot.parameter.data_ptr<float>() + begin, slot.gradient.const_data_ptr<float>() + begin,
          slot.state[0].data_ptr<float>() + begin, slot.state[1].data_ptr<float>() + begin, end - begin,
          constants[tensor]);
    });
    for (size_t i = 0; i < blocks.size(); ++i) {
      norms[blocks[i].tensor].parameter += partial[i].parameter;
      norms[blocks[i].tensor].update += partial[i].update;
    }
    plain::for_each_block(blocks, [&](size_t i) {
      const auto& [tensor, begin, end] = blocks[i];
      const Slot& slot = *slots[tensor];
      const double step = lr * slot.lr_scale * trust_ratio(slot, norms[tensor]);
      plain::lamb_step(
          slot.parameter.data_ptr<float>() + begin, slot.state[0].const_data_ptr<float>() + begin,
          slot.state[1].const_data_ptr<float>() + begin, end - begin, constants[tensor], f(step));
    });
  }

  double trust_ratio(const Slot& slot, const plain::LambNorms& squares) const {
    if (!adapts(slot)) return 1;
    const double length = std::sqrt(squares.parameter), step = std::sqrt(squares.update);
    const double ratio = length > 0 && step > 0 ? length / step : 1;
    return config_.trust_clip ? std::min(ratio, 1.0) : ratio;
  }

  LambConfig config_;
};

}  // namespace

OptimiserKind lamb() { return optimiser_kind<LambConfig, Lamb>("lamb"); }

}  // namespace tessera::train
