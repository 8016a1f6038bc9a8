// Muon (Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024), as in
// torch.optim.Muon:
//   b <- momentum b + (1 - momentum) g,  u = (1 - momentum) g + momentum b  (nesterov; else u = b)
//   p <- (1 - lr wd) p - lr s orthogonal(u)
// where orthogonal(u) brings all singular values of a matrix near 1 by Newton-Schulz iterations. s is 0.2
// sqrt(max(rows, columns)), which matches the step size of AdamW (Liu et al., "Muon is scalable for LLM
// training", 2025, section 2.2), or the original sqrt(max(1, rows / columns)). This applies to weights of
// linear layers [out, in] and of convolutions [out, in x height x width] (transposed ones [in, out x height x
// width]). AdamW updates embeddings, heads and non-matrices, with the same rate.
#include "ops/torch.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "core/threads.h"
#include "optim/optimiser_adam.h"

namespace tessera::train {
enum class StepScale { adamw, first };
}

template <>
struct tessera::EnumNames<tessera::train::StepScale> {
  static constexpr std::array names = {"adamw", "first"};
};

namespace tessera::train {
namespace {

// Names of embeddings, positions, read-outs and codebooks in families, heads and tasks.
constexpr const char* kEmbeddingsAndHeads[] = {"*embed*",          "*_embs",        "*wte.weight",
                                               "*wpe.weight",      "*table*",       "*rel_pos_*",
                                               "*latents",         "*query",        "*codebook*",
                                               "*positions.*",     "*head.weight",  "*head.fc.weight",
                                               "fc.weight",        "*head_dist.*",  "*projection",
                                               "*_projection.*",   "*predictor.*",  "*conv_seg.*",
                                               "rpn.objectness.*", "rpn.deltas.*",  "final_layer.linear.*",
                                               "decoder_pred.*",   "head.linear.*", "cls2.0.*",
                                               "cls.2.*"};

struct MuonConfig : AdamConfig {
  double momentum = 0.95;
  bool nesterov = true;
  int64_t iterations = 5;
  StepScale scale = StepScale::adamw;
  std::vector<std::string> by_adamw;

  template <class V>
  void visit(V& v) {
    AdamConfig::visit(v);
    v("momentum", momentum, from_to_below(0, 1), "decay of the gradients' mean");
    v("nesterov", nesterov, "look ahead along the mean");
    v("iterations", iterations, between(1, 100), "Newton-Schulz iterations");
    v("scale", scale, choice<StepScale>(),
      "size of a step: adamw, 0.2 sqrt(max(rows, columns)); or first, sqrt(max(1, rows / columns))");
    v("by_adamw", by_adamw,
      "patterns of further parameters that AdamW updates, as it does embeddings and heads");
  }
  // True if Muon updates the parameter. It does not update depthwise kernels ([channels, 1, …]), which mix no
  // channels.
  bool orthogonalises(const std::string& parameter, const torch::Tensor& p) const {
    const auto fits = [&](const auto& pattern) { return matches(pattern, parameter); };
    return (p.dim() == 2 || p.dim() >= 4) && p.size(1) > 1 &&
           std::none_of(std::begin(kEmbeddingsAndHeads), std::end(kEmbeddingsAndHeads), fits) &&
           std::none_of(by_adamw.begin(), by_adamw.end(), fits);
  }
};

constexpr const char* kMean = "momentum_buffer";  // the state of a matrix

// Returns [rows, columns] with the same singular vectors and singular values of about 1. On devices float32
// is computed in bfloat16, as published; the CPU uses the matrix's own dtype.
torch::Tensor orthogonal(const torch::Tensor& matrix, int64_t iterations) {
  constexpr double kLinear = 3.4445, kCubic = -4.7750, kQuintic = 2.0315;
  const bool tall = matrix.size(0) > matrix.size(1);
  torch::Tensor x = tall ? matrix.t() : matrix;
  if (!x.device().is_cpu() && x.scalar_type() == torch::kFloat32) x = x.to(torch::kBFloat16);
  x = x / x.norm().clamp_min(1e-7);
  for (int64_t i = 0; i < iterations; ++i) {
    const torch::Tensor gram = x.mm(x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, kCubic, kQuintic), x, kLinear);
  }
  return (tall ? x.t() : x).to(matrix.scalar_type());
}

class Muon final : public Adam<true> {
 public:
  static constexpr bool kReadsWhole = true;
  Muon(const MuonConfig& config, std::vector<ParameterGroup> groups)
      : Adam(config, std::move(groups),
             [&](const std::string& name, const torch::Tensor& parameter) {
               return config.orthogonalises(name, parameter) ? std::vector<std::string>{kMean}
                                                             : names_of_state(config);
             }),
        config_(config) {
    for (const std::string& pattern : config.by_adamw) {
      bool found = false;
      for (const ParameterGroup& group : this->groups())
        for (const auto& [name, parameter] : group.parameters) found = found || matches(pattern, name);
      if (!found) fail_usage("optimiser.by_adamw: no parameter matches '", pattern, "'");
    }
  }

 private:
  void update_tensors(const Slots& slots, double lr, double gradient_scale) override {
    const auto [matrices, others] = split(slots);
    for (Slot* slot : matrices) update_matrix(*slot, lr, gradient_scale);
    if (!others.empty()) Adam::update_tensors(others, lr, gradient_scale);
  }

  void update_plain(const Slots& slots, double lr, double gradient_scale) override {
    const auto [matrices, others] = split(slots);
    if (!others.empty()) Adam::update_plain(others, lr, gradient_scale);
    // Each thread takes whole matrices, so the sums do not depend on the number of threads.
    parallel_for(std::ssize(matrices), 1, [&](int64_t begin, int64_t end) {
      const torch::NoGradGuard no_grad;
      for (int64_t i = begin; i < end; ++i)
        update_matrix(*matrices[static_cast<size_t>(i)], lr, gradient_scale);
    });
  }

  // The matrices by tensor operations, as update_tensors() does, with factors of zero in a step that is skipped.
  void update_there(const Slots& slots, double lr, double decay_factor, const torch::Tensor& scale,
                    AveragingThere* averaging) override {
    const auto [matrices, others] = split(slots);
    const torch::Tensor finite = scale.isfinite(), counts = finite.to(torch::kFloat32);
    for (const Slot* slot : matrices) {
      const torch::Tensor g = torch::where(finite, slot->gradient * scale, 0.0f);
      update_matrix(*slot, lr, g, counts);
      if (slot->half.defined()) slot->half.copy_(slot->parameter.detach());
    }
    if (!others.empty()) Adam::update_there(others, lr, decay_factor, scale, averaging);
  }

  static std::pair<Slots, Slots> split(const Slots& slots) {
    std::pair<Slots, Slots> both;
    for (Slot* slot : slots) (slot->state_names.front() == kMean ? both.first : both.second).push_back(slot);
    return both;
  }

  void update_matrix(const Slot& slot, double lr, double gradient_scale) const {
    update_matrix(slot, lr, gradient_scale == 1 ? slot.gradient : slot.gradient * gradient_scale, {});
  }
  // `counts`: [] float32 on the device, 1 or, for no change, 0; undefined: 1.
  void update_matrix(const Slot& slot, double lr, const torch::Tensor& g, const torch::Tensor& counts) const {
    const double rate = lr * slot.lr_scale, rest = 1 - config_.momentum;
    torch::Tensor p = slot.parameter.detach(), mean = slot.state[0];
    if (counts.defined())
      mean.lerp_(g, counts * rest);
    else
      mean.lerp_(g, rest);
    const torch::Tensor u = (config_.nesterov ? g.lerp(mean, config_.momentum) : mean).flatten(1);
    const auto rows = static_cast<double>(u.size(0)), columns = static_cast<double>(u.size(1));
    const double scale = config_.scale == StepScale::adamw ? 0.2 * std::sqrt(std::max(rows, columns))
                                                           : std::sqrt(std::max(1.0, rows / columns));
    const torch::Tensor step = orthogonal(u, config_.iterations).view(p.sizes());
    if (counts.defined()) {
      p.mul_(1 - counts * (rate * slot.weight_decay)).sub_(step * (counts * (rate * scale)));
    } else {
      p.mul_(1 - rate * slot.weight_decay);
      p.add_(step, -rate * scale);
    }
  }

  MuonConfig config_;
};

}  // namespace

OptimiserKind muon() { return optimiser_kind<MuonConfig, Muon>("muon"); }

}  // namespace tessera::train
