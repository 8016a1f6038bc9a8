// AdamW (Loshchilov & Hutter, "Decoupled weight decay regularization", 2019) and Adam with L2 decay in the
// gradient (Kingma & Ba, 2015), with the arithmetic of torch.optim.AdamW and torch.optim.Adam:
//   m <- beta1 m + (1-beta1) g,  v <- beta2 v + (1-beta2) g^2
//   p <- p - lr / (1-beta1^t) * m / (sqrt(v) / sqrt(1-beta2^t) + eps)
// where t counts the parameter's own updates. Before it, AdamW does p <- (1 - lr wd) p, and Adam g <- g + wd
// p. With AMSGrad (Reddi et al., "On the convergence of Adam and beyond", 2018) the largest v so far replaces
// v.
#pragma once

#include <string>
#include <vector>

#include "optim/optimiser_kind.h"

namespace tessera::train {

struct AdamConfig : OptimiserSettings {
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
  bool amsgrad = false;

  template <class V>
  void visit(V& v) {
    OptimiserSettings::visit(v);
    v("betas", betas, "decay of the first and second moment"),
        v("eps", eps, "added to the root of the second moment"),
        v("amsgrad", amsgrad, "divide by the largest second moment so far");
  }
  void check(const std::string& where) const {
    check_betas(where, betas);
    check_setting(where, "eps", eps, 0, 1);
  }
};

template <bool decoupled>
class Adam : public Optimiser {
 public:
  Adam(const AdamConfig& config, std::vector<ParameterGroup> groups);

 protected:
  // For optimisers that update some of their parameters differently: `state_names` for each parameter.
  Adam(const AdamConfig& config, std::vector<ParameterGroup> groups, const StateNames& state_names);
  static std::vector<std::string> names_of_state(const AdamConfig& config);

  void update_tensors(const Slots& slots, double lr, double gradient_scale) override;
  void update_plain(const Slots& slots, double lr, double gradient_scale) override;
  kernels::gpu::OptimiserStep kernel_step() const override;
  void fill(kernels::gpu::OptimiserTensor& row, const Slot& slot) const override;

 private:
  double beta1() const { return config_.betas[0]; }
  double beta2() const { return config_.betas[1]; }
  double step_size(const Slot& slot, double lr) const;
  double root_bias2(const Slot& slot) const;
  static double decay(const Slot& slot, double lr) {
    return decoupled ? 1 - lr * slot.lr_scale * slot.weight_decay : 1;
  }
  static double l2(const Slot& slot) { return decoupled ? 0 : slot.weight_decay; }

  AdamConfig config_;
};

}  // namespace tessera::train
