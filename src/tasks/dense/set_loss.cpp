#include "tasks/dense/set_loss.h"

#include "core/error.h"
#include "eval/numerics.h"
#include "nn/boxes.h"

namespace tessera::tasks {

namespace {

using torch::Tensor;

void check_targets(const Tensor& logits, const Tensor& boxes, const std::vector<SetTargets>& targets) {
  check(logits.dim() == 3 && boxes.dim() == 3 && boxes.size(2) == 4 && boxes.size(0) == logits.size(0) &&
            boxes.size(1) == logits.size(1) && logits.size(0) == std::ssize(targets),
        "a loss of sets: logits ", logits.sizes(), ", boxes ", boxes.sizes(), " and ", targets.size(),
        " sets of targets, must be [batch, queries, classes + 1], [batch, queries, 4] and a set an image");
}

Tensor indices(const std::vector<int64_t>& values) { return torch::tensor(values, torch::kInt64); }

}  // namespace

std::vector<SetMatch> match_sets(const Tensor& logits, const Tensor& boxes,
                                 const std::vector<SetTargets>& targets, const SetCosts& costs) {
  check_targets(logits, boxes, targets);
  const torch::NoGradGuard no_grad;
  std::vector<SetMatch> matches;
  const Tensor shares = logits.detach().softmax(-1);
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto image = static_cast<int64_t>(i);
    const Tensor ours = boxes[image].detach();
    const Tensor theirs = targets[i].boxes.to(ours.options());
    const Tensor labels = targets[i].labels.to(logits.device());
    const Tensor label = -shares[image].index_select(1, labels);
    const Tensor box = (ours.unsqueeze(1) - theirs).abs().sum(-1);
    const Tensor overlap =
        -nn::pairwise_generalised_iou(nn::corners_of_centres(ours), nn::corners_of_centres(theirs));
    const Tensor cost = (costs.box * box + costs.label * label + costs.overlap * overlap)
                            .to(torch::kCPU, torch::kFloat64)
                            .contiguous();
    const eval::Assignment pairs = eval::cheapest_assignment(
        {cost.const_data_ptr<double>(), static_cast<size_t>(cost.numel())}, cost.size(0), cost.size(1));
    matches.push_back({indices(pairs.rows), indices(pairs.columns)});
  }
  return matches;
}

SetLoss set_loss(const Tensor& logits, const Tensor& boxes, const std::vector<SetTargets>& targets,
                 const std::vector<SetMatch>& matches, const SetCosts& costs) {
  check_targets(logits, boxes, targets);
  const int64_t nothing = logits.size(2) - 1;
  std::vector<Tensor> ours, theirs, hits;
  const Tensor wanted = torch::full({logits.size(0), logits.size(1)}, nothing,
                                    logits.options().dtype(torch::kInt64).requires_grad(false));
  const Tensor said = logits.detach().argmax(-1);
  SetLoss out;
  double cardinality = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto image = static_cast<int64_t>(i);
    const Tensor queries = matches[i].queries.to(logits.device()),
                 objects = matches[i].objects.to(logits.device());
    const Tensor labels = targets[i].labels.to(logits.device()).index_select(0, objects);
    wanted[image].index_copy_(0, queries, labels);
    ours.push_back(boxes[image].index_select(0, queries));
    theirs.push_back(targets[i].boxes.to(boxes.options()).index_select(0, objects));
    hits.push_back(said[image].index_select(0, queries) == labels);
    const int64_t count = targets[i].labels.size(0);
    out.objects += count;
    cardinality += std::abs((said[image] != nothing).sum().item<double>() - static_cast<double>(count));
  }
  out.cardinality_error = cardinality / static_cast<double>(targets.size());
  const Tensor hit = torch::cat(hits);
  if (hit.numel() > 0) out.label_error = 100 - 100 * hit.to(torch::kFloat64).mean().item<double>();

  const Tensor weights = torch::ones({nothing + 1}, logits.options().requires_grad(false));
  weights[nothing] = costs.no_object;
  const Tensor weight = weights.index_select(0, wanted.flatten());
  const Tensor chosen =
      logits.flatten(0, 1).log_softmax(-1).gather(1, wanted.flatten().unsqueeze(1)).squeeze(1);
  out.label = -(chosen * weight).sum();
  out.label_weight = weight.sum().item<double>();
  const Tensor a = torch::cat(ours), b = torch::cat(theirs);
  out.box = (a - b).abs().sum();
  const Tensor corners_a = nn::corners_of_centres(a), corners_b = nn::corners_of_centres(b);
  out.overlap = (1 - nn::pairwise_generalised_iou(corners_a, corners_b).diagonal()).sum();
  return out;
}

using torch::Tensor;

Tensor sigmoid_focal_loss(const Tensor& logits, const Tensor& targets, double alpha, double gamma) {
  const Tensor p = logits.sigmoid();
  const Tensor cross_entropy =
      torch::binary_cross_entropy_with_logits(logits, targets, {}, {}, at::Reduction::None);
  const Tensor right = p * targets + (1 - p) * (1 - targets);
  const Tensor loss = cross_entropy * (1 - right).pow(gamma);
  return alpha < 0 ? loss : (alpha * targets + (1 - alpha) * (1 - targets)) * loss;
}

Tensor dice_loss(const Tensor& logits, const Tensor& targets) {
  const Tensor p = logits.sigmoid().flatten(1), t = targets.flatten(1);
  return 1 - (2 * (p * t).sum(1) + 1) / (p.sum(1) + t.sum(1) + 1);
}

}  // namespace tessera::tasks
