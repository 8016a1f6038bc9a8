// Classification losses. Logits are [batch, classes]; half precision is converted to float32 first. Every
// result is a scalar with its graph. Reductions follow torch.nn.functional and timm.loss.
#pragma once

#include <torch/types.h>

#include <optional>
#include <vector>

namespace tessera::tasks {

struct CrossEntropyOptions {
  double label_smoothing = 0;  // share of the target spread over all classes (Szegedy et al. 2016)
  torch::Tensor class_weights =
      {};                       // [classes]; undefined = all 1. The mean is then divided by the weights' sum
  int64_t ignore_index = -100;  // label of ignored samples
  bool sum = false;             // sum over the batch instead of its mean
};
// Labels are int64 [batch].
torch::Tensor cross_entropy(const torch::Tensor& logits, const torch::Tensor& labels,
                            const CrossEntropyOptions& options = {});

// Targets are distributions [batch, classes] (mixup, CutMix). Returns -sum_c w_c t_c log softmax(x)_c for
// each sample, [batch].
torch::Tensor soft_cross_entropy_each(const torch::Tensor& logits, const torch::Tensor& targets,
                                      const torch::Tensor& class_weights = {});
// Returns their mean.
torch::Tensor soft_cross_entropy(const torch::Tensor& logits, const torch::Tensor& targets,
                                 const torch::Tensor& class_weights = {});

struct SigmoidOptions {
  double label_smoothing = 0;              // smoothing of index labels: off = s / classes, on = 1 - s + off
  std::optional<double> target_threshold;  // targets above it count as 1, all others as 0 (DeiT III uses 0)
  bool sum_classes = false;                // sum over classes, mean over the batch; else the mean over both
  torch::Tensor weight = {};               // broadcast over [batch, classes]; undefined = all 1
  torch::Tensor positive_weight = {};      // [classes] factor on the positive part; undefined = all 1
};
// Binary cross entropy of the logits, one decision per class. Targets are int64 [batch] (one class each) or
// [batch, classes] in [0, 1].
torch::Tensor sigmoid_cross_entropy(const torch::Tensor& logits, const torch::Tensor& targets,
                                    const SigmoidOptions& options = {});

// Knowledge distillation from a teacher's logits of the same shape (Touvron et al. 2021).
//   hard       cross entropy with the teacher's best class
//   soft       tau^2 KL(softmax(teacher / tau) || softmax(student / tau)) / (batch * classes), as DeiT's code
//              divides
//   batchmean  the same divided by the batch
enum class Distillation { hard, soft, batchmean };
torch::Tensor distillation(const torch::Tensor& student, const torch::Tensor& teacher, Distillation kind,
                           double tau = 1);

// Distillation of the similarities among tokens (Li et al. 2022, Q-ViT, eq. 10 to 12). For each layer and head
//   G = t t^T / ||t t^T||,   loss = sum over layers and heads of ||G_student - G_teacher||,   Frobenius norms,
// t are the queries, or the keys, [batch, heads, tokens, d] of a layer; d may differ. Returns the mean over the
// batch. The teacher has no gradient.
torch::Tensor similarity_distillation(const std::vector<torch::Tensor>& student,
                                      const std::vector<torch::Tensor>& teacher);

}  // namespace tessera::tasks
