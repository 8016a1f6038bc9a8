// components/loss_detr_set, loss_hungarian, loss_focal_dice: predictions matched with objects, and the losses of detectors.
#include "eval/numerics.h"
#include "nn/boxes.h"
#include "tasks/base/losses.h"
#include "tasks/dense/set_loss.h"
#include "tests/parity/detr_tolerance.h"
#include "tests/parity/model_case.h"

namespace tessera::parity::matching_cases {
namespace {

using Json = nlohmann::json;
using torch::Tensor;

CaseResult check_detr_set(const Golden& golden) {
  const Json& config = golden.config();
  const tasks::SetCosts costs{.label = config["class_cost"],
                              .box = config["bbox_cost"],
                              .overlap = config["giou_cost"],
                              .no_object = config["eos_coef"]};
  const Json& weights = config["weights"];
  const Allowed allowed(golden);
  Comparison comparison;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
    const Tensor logits = golden.tensor("input.logits", dtype).requires_grad_(),
                 boxes = golden.tensor("input.boxes", dtype).requires_grad_();
    std::vector<tasks::SetTargets> targets;
    for (size_t i = 0; golden.has("input.target" + std::to_string(i) + ".boxes"); ++i) {
      const std::string key = "input.target" + std::to_string(i);
      targets.push_back({golden.tensor(key + ".class_labels"), golden.tensor(key + ".boxes", dtype)});
    }
    const auto matches = tasks::match_sets(logits, boxes, targets, costs);
    for (size_t i = 0; i < matches.size(); ++i) {
      const std::string key = "output.match" + std::to_string(i);
      comparison.equal(key, matches[i].queries, golden.tensor(key + ".query"));
      comparison.equal(key, matches[i].objects, golden.tensor(key + ".target"));
    }
    const tasks::SetLoss loss = tasks::set_loss(logits, boxes, targets, matches, costs);
    const Tensor total = weights["loss_ce"].get<double>() * loss.mean_label() +
                         weights["loss_bbox"].get<double>() * loss.mean_box() +
                         weights["loss_giou"].get<double>() * loss.mean_overlap();
    for (const auto& [name, value] : {std::pair<std::string, Tensor>{"loss_ce", loss.mean_label()},
                                      {"loss_bbox", loss.mean_box()},
                                      {"loss_giou", loss.mean_overlap()},
                                      {"cardinality_error", loss.cardinality_error},
                                      {"total", total}})
      allowed.output(comparison, name, value, golden.tensor("output." + name));
    total.backward();
    comparison.close("grad.logits", logits.grad(), golden.tensor("grad.logits"), allowed.relative,
                     allowed.absolute);
    comparison.close("grad.boxes", boxes.grad(), golden.tensor("grad.boxes"), allowed.relative,
                     allowed.absolute);
    if (!golden.has("output.xyxy")) continue;
    const Tensor corners = nn::corners_of_centres(boxes.detach()[0]);
    const Tensor others = golden.tensor("output.giou.boxes_b_xyxy", dtype);
    allowed.output(comparison, "xyxy", corners, golden.tensor("output.xyxy"));
    allowed.output(comparison, "iou", nn::pairwise_iou(corners, others), golden.tensor("output.iou"));
    allowed.output(comparison, "giou", nn::pairwise_generalised_iou(corners, others),
                   golden.tensor("output.giou"));
  }
  return comparison.result();
}

CaseResult check_hungarian(const Golden& golden) {
  Comparison comparison;
  for (const Json& one : golden.config()["cases"]) {
    const auto name = one["name"].get<std::string>();
    const auto rows = static_cast<int64_t>(one["cost"].size());
    const auto columns = rows > 0 ? static_cast<int64_t>(one["cost"][0].size()) : 0;
    std::vector<double> cost;
    for (const Json& row : one["cost"])
      for (const Json& value : row)
        cost.push_back(one["maximize"].get<bool>() ? -value.get<double>() : value.get<double>());
    const eval::Assignment pairs = eval::cheapest_assignment(cost, rows, columns);
    double total = 0;
    for (size_t i = 0; i < pairs.rows.size(); ++i)
      total += one["cost"][static_cast<size_t>(pairs.rows[i])][static_cast<size_t>(pairs.columns[i])]
                   .get<double>();
    comparison.close(name, torch::tensor(total, torch::kFloat64),
                     torch::tensor(one["total"].get<double>(), torch::kFloat64), 1e-12, 1e-9);
    if (one["compare"] != "indices") continue;
    comparison.equal(name + " rows", torch::tensor(pairs.rows, torch::kInt64),
                     torch::tensor(one["row"].get<std::vector<int64_t>>(), torch::kInt64));
    comparison.equal(name + " columns", torch::tensor(pairs.columns, torch::kInt64),
                     torch::tensor(one["col"].get<std::vector<int64_t>>(), torch::kInt64));
  }
  return comparison.result();
}

// The loss of that name and the leaf that it is differentiated by.
struct NamedLoss {
  Tensor loss, leaf;
};

NamedLoss focal_dice_loss(const Golden& golden, const std::string& name, torch::ScalarType dtype) {
  const Json& config = golden.config();
  const double alpha = config["alpha"], gamma = config["gamma"], boxes = config["num_boxes"];
  const auto leaf = [&](const char* key) {
    return golden.tensor(std::string("input.") + key, dtype).requires_grad_();
  };
  if (name.starts_with("seg_ce")) {
    const Tensor logits = leaf("seg_logits"), labels = golden.tensor("input.seg_target");
    const Tensor rows = logits.permute({0, 2, 3, 1}).flatten(0, 2), flat = labels.flatten();
    const int64_t ignored = config.value("ignore_index", int64_t{255});
    if (name == "seg_ce") return {tasks::cross_entropy(rows, flat, {.ignore_index = ignored}), logits};
    return {tasks::cross_entropy(rows, flat, {.ignore_index = ignored, .sum = true}) /
                static_cast<double>(flat.numel()),
            logits};
  }
  for (const auto& [kind_name, kind] : {std::pair("giou_loss_", nn::BoxLoss::generalised),
                                        {"ciou_loss_", nn::BoxLoss::complete},
                                        {"diou_loss_", nn::BoxLoss::distance}})
    if (name.starts_with(kind_name)) {
      const Tensor a = leaf("boxes1"), each = nn::box_loss(a, golden.tensor("input.boxes2", dtype), kind);
      return {name.ends_with("_mean") ? each.mean() : each.sum(), a};
    }
  const Tensor logits = leaf("logits"), target = golden.tensor("input.target", dtype);
  if (name == "dice_hf") return {tasks::dice_loss(logits, target).sum() / boxes, logits};
  if (name == "focal_hf")
    return {tasks::sigmoid_focal_loss(logits, target, alpha, gamma).mean(1).sum() / boxes, logits};
  if (name == "focal_tv_noalpha")
    return {tasks::sigmoid_focal_loss(logits, target, -1, gamma).mean(), logits};
  if (name == "focal_tv_mean")
    return {tasks::sigmoid_focal_loss(logits, target, alpha, gamma).mean(), logits};
  if (name == "focal_tv_sum") return {tasks::sigmoid_focal_loss(logits, target, alpha, gamma).sum(), logits};
  const auto number = [&](const std::string& prefix) { return std::stod(name.substr(prefix.size())); };
  if (name.starts_with("smooth_l1_beta"))
    return {torch::smooth_l1_loss(logits, target, at::Reduction::Mean, number("smooth_l1_beta")), logits};
  if (name == "l1") return {torch::l1_loss(logits, target), logits};
  if (name.starts_with("huber_"))
    return {torch::huber_loss(logits, target, at::Reduction::Mean, number("huber_")), logits};
  return {};
}

CaseResult check_focal_dice(const Golden& golden) {
  const Allowed allowed(golden);
  Comparison comparison;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32})
    for (const std::string& name : golden.names("output.")) {
      const NamedLoss found = focal_dice_loss(golden, name, dtype);
      comparison.holds(name, found.loss.defined(), "not a loss of ours");
      if (!found.loss.defined()) continue;
      found.loss.backward();
      allowed.output(comparison, name, found.loss, golden.tensor("output." + name));
      comparison.close("grad." + name, found.leaf.grad(), golden.tensor("grad." + name), allowed.relative,
                       allowed.absolute);
    }
  return comparison.result();
}

const Registered registered({
    {"detr_set", check_detr_set, {"components/loss_detr_set"}},
    {"hungarian", check_hungarian, {"components/loss_hungarian"}},
    {"focal_dice", check_focal_dice, {"components/loss_focal_dice"}},
});

}  // namespace
}  // namespace tessera::parity::matching_cases
