#include "tasks/dense/set_loss.h"

#include "core/error.h"
#include "eval/numerics.h"
#include "nn/boxes.h"
#include "ops/gpu.h"

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
  const Tensor shares = logits.detach().softmax(-1);
  std::vector<Tensor> of_images;
  for (size_t i = 0; i < targets.size(); ++i) {
    const auto image = static_cast<int64_t>(i);
    const Tensor ours = boxes[image].detach();
    const Tensor theirs = targets[i].boxes.to(ours.options());
    const Tensor labels = targets[i].labels.to(logits.device());
    const Tensor label = -shares[image].index_select(1, labels);
    const Tensor box = (ours.unsqueeze(1) - theirs).abs().sum(-1);
    const Tensor overlap =
        -nn::pairwise_generalised_iou(nn::corners_of_centres(ours), nn::corners_of_centres(theirs));
    of_images.push_back((costs.box * box + costs.label * label + costs.overlap * overlap).flatten());
  }
  // A GPU is read back once.
  const Tensor all = torch::cat(of_images).to(torch::kCPU, torch::kFloat64);
  const double* cost = all.const_data_ptr<double>();
  std::vector<SetMatch> matches;
  for (const SetTargets& target : targets) {
    const int64_t queries = logits.size(1), objects = target.labels.size(0);
    const eval::Assignment pairs =
        eval::cheapest_assignment({cost, static_cast<size_t>(queries * objects)}, queries, objects);
    cost += queries * objects;
    matches.push_back({indices(pairs.rows), indices(pairs.columns)});
  }
  return matches;
}

namespace {

// The matches of all images as places in tensors of the whole batch, and the number of objects of each image.
struct Pairs {
  Tensor queries, objects, counts;
};
Pairs pairs_of(const std::vector<SetTargets>& targets, const std::vector<SetMatch>& matches, int64_t queries,
               torch::Device device) {
  std::vector<Tensor> ours, theirs;
  std::vector<int64_t> counts;
  int64_t objects = 0;
  for (size_t i = 0; i < targets.size(); ++i) {
    ours.push_back(matches[i].queries + static_cast<int64_t>(i) * queries);
    theirs.push_back(matches[i].objects + objects);
    counts.push_back(targets[i].labels.size(0)), objects += counts.back();
  }
  const auto sent = [&](const Tensor& host) { return ops::sent_to(device, host); };
  return {sent(torch::cat(ours)), sent(torch::cat(theirs)), sent(indices(counts))};
}

}  // namespace

SetLoss set_loss(const Tensor& logits, const Tensor& boxes, const std::vector<SetTargets>& targets,
                 const std::vector<SetMatch>& matches, const SetCosts& costs) {
  check_targets(logits, boxes, targets);
  const int64_t nothing = logits.size(2) - 1, queries = logits.size(1);
  std::vector<Tensor> all_labels, all_boxes;
  SetLoss out;
  for (const SetTargets& target : targets) {
    all_labels.push_back(target.labels.to(logits.device()));
    all_boxes.push_back(target.boxes.to(boxes.options()));
    out.objects += target.labels.size(0);
  }
  const Pairs pairs = pairs_of(targets, matches, queries, logits.device());
  const Tensor labels = torch::cat(all_labels).index_select(0, pairs.objects);
  const Tensor said = logits.detach().argmax(-1);
  const Tensor wrong = said.flatten().index_select(0, pairs.queries).ne(labels).to(torch::kFloat64);
  out.label_error = labels.numel() > 0 ? 100 * wrong.mean() : torch::full({}, 100, wrong.options());
  out.cardinality_error = (said.ne(nothing).sum(1) - pairs.counts).abs().to(torch::kFloat64).mean();

  const Tensor wanted =
      torch::full({logits.size(0) * queries}, nothing, labels.options()).index_copy(0, pairs.queries, labels);
  const Tensor weight = torch::where(wanted == nothing, costs.no_object, 1.0).to(logits.scalar_type());
  const Tensor chosen = logits.flatten(0, 1).log_softmax(-1).gather(1, wanted.unsqueeze(1)).squeeze(1);
  out.label = -(chosen * weight).sum();
  const auto matched = static_cast<double>(labels.numel()),
             rest = static_cast<double>(wanted.numel()) - matched;
  out.label_weight = matched + rest * costs.no_object;
  const Tensor a = boxes.flatten(0, 1).index_select(0, pairs.queries),
               b = torch::cat(all_boxes).index_select(0, pairs.objects);
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
