#include "tasks/base/losses.h"

#include "ops/torch.h"

#include "core/error.h"

namespace tessera::tasks {
namespace {

torch::Tensor raised(const torch::Tensor& logits) {
  check(logits.dim() == 2, "loss: logits have shape ", logits.sizes(), ", must be [batch, classes]");
  const bool half = logits.scalar_type() == torch::kBFloat16 || logits.scalar_type() == torch::kFloat16;
  return half ? logits.to(torch::kFloat32) : logits;
}

void check_labels(const torch::Tensor& logits, const torch::Tensor& labels) {
  check(labels.dim() == 1 && labels.size(0) == logits.size(0) && labels.scalar_type() == torch::kInt64,
        "loss: labels are ", labels.scalar_type(), " ", labels.sizes(), ", must be int64 [", logits.size(0),
        "]");
}

void check_targets(const torch::Tensor& logits, const torch::Tensor& targets) {
  check(targets.sizes() == logits.sizes(), "loss: targets have shape ", targets.sizes(), ", must be ",
        logits.sizes());
}

}  // namespace

torch::Tensor cross_entropy(const torch::Tensor& logits, const torch::Tensor& labels,
                            const CrossEntropyOptions& options) {
  const torch::Tensor x = raised(logits);
  check_labels(x, labels);
  const torch::Tensor weights =
      options.class_weights.defined() ? options.class_weights.to(x.options()) : torch::Tensor();
  return at::cross_entropy_loss(x, labels, weights, options.sum ? at::Reduction::Sum : at::Reduction::Mean,
                                options.ignore_index, options.label_smoothing);
}

torch::Tensor soft_cross_entropy_each(const torch::Tensor& logits, const torch::Tensor& targets,
                                      const torch::Tensor& class_weights) {
  const torch::Tensor x = raised(logits);
  check_targets(x, targets);
  torch::Tensor t = targets.to(x.scalar_type());
  if (class_weights.defined()) t = t * class_weights.to(x.options());
  return -(t * torch::log_softmax(x, 1)).sum(1);
}

torch::Tensor soft_cross_entropy(const torch::Tensor& logits, const torch::Tensor& targets,
                                 const torch::Tensor& class_weights) {
  return soft_cross_entropy_each(logits, targets, class_weights).mean();
}

torch::Tensor sigmoid_cross_entropy(const torch::Tensor& logits, const torch::Tensor& targets,
                                    const SigmoidOptions& options) {
  const torch::Tensor x = raised(logits);
  torch::Tensor t;
  if (targets.dim() == 1) {
    check_labels(x, targets);
    const double off = options.label_smoothing / static_cast<double>(x.size(1));
    t = torch::full(x.sizes(), off, x.options().requires_grad(false));
    t.scatter_(1, targets.unsqueeze(1), 1 - options.label_smoothing + off);
  } else {
    check_targets(x, targets);
    t = targets.to(x.scalar_type());
  }
  if (options.target_threshold) t = t.gt(*options.target_threshold).to(x.scalar_type());
  const auto like = [&](const torch::Tensor& weight) {
    return weight.defined() ? weight.to(x.options()) : torch::Tensor();
  };
  const torch::Tensor loss = at::binary_cross_entropy_with_logits(
      x, t, like(options.weight), like(options.positive_weight), at::Reduction::None);
  return options.sum_classes ? loss.sum(1).mean() : loss.mean();
}

torch::Tensor distillation(const torch::Tensor& student, const torch::Tensor& teacher, Distillation kind,
                           double tau) {
  check(tau > 0, "distillation: tau is ", tau, ", must be above 0");
  const torch::Tensor x = raised(student), y = raised(teacher).detach().to(x.scalar_type());
  check(x.sizes() == y.sizes(), "distillation: the teacher's logits are ", y.sizes(), ", the student's ",
        x.sizes());
  if (kind == Distillation::hard) return at::cross_entropy_loss(x, y.argmax(1));
  const torch::Tensor divergence = at::kl_div(torch::log_softmax(x / tau, 1), torch::log_softmax(y / tau, 1),
                                              at::Reduction::Sum, /*log_target=*/true);
  const int64_t count = kind == Distillation::soft ? x.numel() : x.size(0);
  return divergence * (tau * tau / static_cast<double>(count));
}

torch::Tensor similarity_distillation(const std::vector<torch::Tensor>& student,
                                      const std::vector<torch::Tensor>& teacher) {
  check(student.size() == teacher.size() && !student.empty(), "distillation: the teacher has ",
        teacher.size(), " layers, the student ", student.size());
  const auto pattern = [](const torch::Tensor& tokens) {
    const torch::Tensor wide = tokens.scalar_type() == torch::kFloat64 ? tokens : tokens.to(torch::kFloat32);
    const torch::Tensor products = wide.matmul(wide.transpose(-2, -1));
    return products / products.norm(2, {-2, -1}, true).clamp_min(1e-12);
  };
  torch::Tensor sum;
  for (size_t i = 0; i < student.size(); ++i) {
    const torch::Tensor &own = student[i], &shown = teacher[i];
    check(own.dim() == 4 && shown.dim() == 4 && own.sizes().slice(0, 3) == shown.sizes().slice(0, 3),
          "distillation: the teacher's tokens are ", shown.sizes(), ", the student's ", own.sizes());
    const torch::Tensor difference =
        (pattern(own) - pattern(shown.detach()).to(own.device())).norm(2, {-2, -1}).sum();
    sum = sum.defined() ? sum + difference : difference;
  }
  return sum / static_cast<double>(student.front().size(0));
}

}  // namespace tessera::tasks
