// components/loss_classification*, loss_distillation*: values and gradients.
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "tasks/base/losses.h"
#include "tests/parity/case.h"
#include "tests/parity/model_case.h"

namespace tessera::parity::loss_cases {
namespace {

using Json = nlohmann::json;
using tasks::CrossEntropyOptions;
using tasks::SigmoidOptions;

struct LossTolerance {
  explicit LossTolerance(const Golden& golden) {
    const Json given = golden.meta.value("tolerance", Json::object());
    relative = given.value("rtol", relative), absolute = given.value("atol", absolute);
  }
  double relative = 1e-5, absolute = 1e-6;
};

// The number that follows the prefix: 0.1 of "bce_smooth0.1".
std::optional<double> number_after(const std::string& name, const std::string& prefix) {
  return name.starts_with(prefix) ? parse_double(name.substr(prefix.size())) : std::nullopt;
}

// The loss of the given name, on logits that already want gradients; undefined for a name that is not known.
torch::Tensor named_loss(const Golden& golden, const std::string& name, const torch::Tensor& logits) {
  const auto input = [&](const char* key) {
    return golden.tensor(std::string("input.") + key, logits.scalar_type());
  };
  CrossEntropyOptions options;
  if (name == "ce" || name == "nll_of_log_softmax") return tasks::cross_entropy(logits, input("target"));
  if (name == "ce_ignore") return tasks::cross_entropy(logits, input("target_ignore"));
  if (name == "ce_sum") return options.sum = true, tasks::cross_entropy(logits, input("target"), options);
  if (name == "soft_ce") return tasks::soft_cross_entropy(logits, input("soft_target"));
  if (name == "soft_ce_mixup") return tasks::soft_cross_entropy(logits, input("mixup_target"));
  if (name.find("weighted") != std::string::npos) options.class_weights = input("class_weight");
  if (name == "ce_weighted") return tasks::cross_entropy(logits, input("target"), options);
  for (const char* prefix : {"ce_ls_torch_weighted_", "ce_ls_torch_", "ce_ls_timm_"})
    if (const auto smoothing = number_after(name, prefix)) {
      options.label_smoothing = *smoothing;
      return tasks::cross_entropy(logits, input("target"), options);
    }
  SigmoidOptions sigmoid;
  if (name == "bce_dense_soft") return tasks::sigmoid_cross_entropy(logits, input("mixup_target"));
  if (const auto smoothing = number_after(name, "bce_smooth")) {
    sigmoid.label_smoothing = *smoothing;
    return tasks::sigmoid_cross_entropy(logits, input("target"), sigmoid);
  }
  if (name == "bce_sum_classes") {
    sigmoid.sum_classes = true, sigmoid.label_smoothing = 0.1;  // timm's standard smoothing
    return tasks::sigmoid_cross_entropy(logits, input("target"), sigmoid);
  }
  const auto threshold = name == "bce_deit3" ? 0 : number_after(name, "bce_dense_threshold");
  if (threshold) sigmoid.target_threshold = *threshold;
  const auto weight = number_after(name, "bce_pos_weight");
  if (weight)
    sigmoid.positive_weight = torch::full({logits.size(1)}, *weight, logits.options().requires_grad(false));
  if (threshold || weight) return tasks::sigmoid_cross_entropy(logits, input("mixup_target"), sigmoid);
  return {};
}

std::string dtype_name(torch::ScalarType dtype) { return dtype == torch::kFloat64 ? "float64 " : "float32 "; }

CaseResult check_classification(const Golden& golden) {
  const LossTolerance tolerance(golden);
  Comparison comparison;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32})
    for (const std::string& name : golden.names("output.")) {
      const torch::Tensor logits = golden.tensor("input.logits", dtype).requires_grad_();
      const torch::Tensor loss = named_loss(golden, name, logits);
      comparison.holds(name, loss.defined(), "not a loss of ours");
      if (!loss.defined()) continue;
      loss.backward();
      comparison.close(dtype_name(dtype) + name, loss.reshape(1), golden.tensor("output." + name),
                       tolerance.relative, tolerance.absolute);
      comparison.close(dtype_name(dtype) + name + " gradient", logits.grad(), golden.tensor("grad." + name),
                       tolerance.relative, tolerance.absolute);
    }
  return comparison.result();
}

CaseResult check_distillation(const Golden& golden) {
  const LossTolerance tolerance(golden);
  const double alpha = golden.config().at("alpha").get<double>(),
               tau = golden.config().at("tau").get<double>();
  const std::vector<std::pair<std::string, tasks::Distillation>> kinds = {
      {"soft", tasks::Distillation::soft},
      {"hard", tasks::Distillation::hard},
      {"kd_batchmean", tasks::Distillation::batchmean}};
  Comparison comparison;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32})
    for (const auto& [name, kind] : kinds) {
      if (!golden.has("output." + name + ".total")) continue;
      const torch::Tensor classes = golden.tensor("input.student_cls", dtype).requires_grad_();
      const torch::Tensor distilled = golden.tensor("input.student_dist", dtype).requires_grad_();
      const torch::Tensor base =
          tasks::soft_cross_entropy(classes, golden.tensor("input.mixup_target", dtype));
      const torch::Tensor distill =
          tasks::distillation(distilled, golden.tensor("input.teacher", dtype), kind, tau);
      const torch::Tensor total = base * (1 - alpha) + distill * alpha;
      total.backward();
      const auto compare = [&](const std::string& key, const torch::Tensor& got) {
        comparison.close(dtype_name(dtype) + key, got, golden.tensor(key), tolerance.relative,
                         tolerance.absolute);
      };
      compare("output." + name + ".base", base.reshape(1));
      compare("output." + name + ".distill", distill.reshape(1));
      compare("output." + name + ".total", total.reshape(1));
      compare("grad." + name + ".student_cls", classes.grad());
      compare("grad." + name + ".student_dist", distilled.grad());
    }
  return comparison.result();
}

const Registered registered({
    {"classification_loss", check_classification, {"components/loss_classification"}},
    {"distillation_loss", check_distillation, {"components/loss_distillation"}},
});

}  // namespace
}  // namespace tessera::parity::loss_cases
