// The whole detectors components/det_mask_rcnn_* and det_cascade_*.
#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "core/text.h"
#include "tests/parity/detector_case.h"
#include "tests/parity/model_case.h"

namespace tessera::parity::detector_cases {
namespace {

using Json = nlohmann::json;
using models::Detections;
using models::Detector;
using models::DetectorCode;
using models::Extent;

// Equal but where a value is too near to the threshold to tell.
void compare_found_masks(Comparison& comparison, const SubCase& at, const std::string& name,
                         const Detections& found, ops::PasteRule rule) {
  const torch::Tensor want = at.tensor(name);
  const torch::Tensor value = ops::paste_masks(found.masks, found.boxes, rule, want.size(-2), want.size(-1));
  if (want.is_floating_point())
    return comparison.close(at.what(name), value.view(want.sizes()), want, 0, 2e-4);
  const torch::Tensor unsure = (value - 0.5).abs() < (at.dtype == torch::kFloat64 ? 1e-5 : 2e-4);
  comparison.equal(at.what(name), torch::where(unsure, want, (value >= 0.5).to(torch::kUInt8)), want);
}

void compare_trace(Comparison& comparison, const SubCase& at, const models::DetectorTrace& trace,
                   DetectorCode code) {
  for (size_t i = 0; i < trace.proposals.size(); ++i) {
    const auto close = [&](const std::string& name, const torch::Tensor& got, double allowed) {
      if (at.has(name)) comparison.close(at.what(name), got, at.tensor(name), 0, allowed);
    };
    close(text("output.proposals.", i), trace.proposals[i], 1e-3);
    close(text("output.proposal_scores.", i), trace.proposal_logits[i].sigmoid(), 1e-4);
    if (code == DetectorCode::detectron2)
      close(text("output.objectness.", i), trace.proposal_logits[i], 1e-3);
  }
  for (size_t level = 0; level < trace.objectness.size() && code == DetectorCode::torchvision; ++level) {
    if (at.has(text("output.objectness.", level)))
      at.compare(comparison, text("output.objectness.", level),
                 trace.objectness[level].permute({0, 3, 1, 2}));
    if (at.has(text("output.deltas.", level)))
      at.compare(comparison, text("output.deltas.", level), trace.deltas[level].permute({0, 3, 1, 2}));
  }
  for (size_t stage = 0; stage < trace.stages.size(); ++stage) {
    const auto& kept = trace.stages[stage];
    for (const auto& [name, value] : {std::pair{text("output.stage", stage, ".class_logits"), kept.logits},
                                      {text("output.stage", stage, ".deltas"), kept.deltas},
                                      {std::string("output.class_logits"), kept.logits},
                                      {std::string("output.box_regression"), kept.deltas}})
      if (at.has(name)) comparison.close(at.what(name), value, at.tensor(name), 1e-4, 5e-4);
  }
}

void check_eval(Comparison& comparison, const SubCase& at, WholeDetector& whole) {
  const torch::NoGradGuard no_grad;
  const Json& config = at.golden.config();
  const DetectorCode code = whole.detector->options().code;
  const DetectorInput fed = feed_detector(at, false);
  if (at.has("output.batch")) at.compare(comparison, "output.batch", fed.batch);
  models::DetectorTrace trace;
  const auto pyramid = whole.detector->pyramid(whole.maps(fed.batch));
  for (size_t i = 0; i < pyramid.size(); ++i)
    if (at.has(text("output.p", i + 2)))
      at.compare(comparison, text("output.p", i + 2), pyramid[i].permute({0, 3, 1, 2}));
  const auto found =
      whole.detector->detect(pyramid, {fed.batch.size(2), fed.batch.size(3)}, fed.sizes, &trace);
  compare_trace(comparison, at, trace, code);
  for (size_t i = 0; i < found.size(); ++i) {
    const std::string start = text("output.detections.", i, ".");
    double across = 1, down = 1;
    std::optional<Extent> clip;
    if (code == DetectorCode::torchvision) {
      const torch::Tensor image = at.tensor(text("input.images.", i));
      across = static_cast<double>(image.size(2)) / static_cast<double>(fed.sizes[i].width);
      down = static_cast<double>(image.size(1)) / static_cast<double>(fed.sizes[i].height);
    } else if (code == DetectorCode::detectron2) {
      const std::vector<int64_t> size = numbers(config.at("output_sizes")[i]);
      clip = Extent{size[0], size[1]};
      across = static_cast<double>(size[1]) / static_cast<double>(fed.sizes[i].width);
      down = static_cast<double>(size[0]) / static_cast<double>(fed.sizes[i].height);
    } else {
      across = 1 / config.at("scale_factor_wh")[i][0].get<double>();
      down = 1 / config.at("scale_factor_wh")[i][1].get<double>();
    }
    const Detections placed = models::rescaled(found[i], across, down, clip);
    const bool torchvision = code == DetectorCode::torchvision;
    comparison.close(at.what(start + "boxes"), placed.boxes, at.tensor(start + "boxes"), 0, 1e-3);
    comparison.close(at.what(start + "scores"), placed.scores, at.tensor(start + "scores"), 0, 1e-4);
    at.equal(comparison, start + (torchvision ? "labels" : "classes"), placed.labels + (torchvision ? 1 : 0));
    if (at.has(start + "masks"))
      compare_found_masks(comparison, at, start + "masks", placed, whole.detector->paste_rule());
  }
}

torch::Tensor picked(const torch::Tensor& boxes, int64_t from, int64_t count) {
  return boxes.narrow(0, from, count);
}

void compare_samples(Comparison& comparison, const SubCase& at, const models::DetectorTrace& trace,
                     const models::DetectorOptions& options,
                     const std::vector<models::DetectionTarget>& targets) {
  const auto list = [](const std::vector<int64_t>& values) {
    return torch::tensor(at::ArrayRef<int64_t>(values), torch::kInt64);
  };
  for (size_t i = 0; i < trace.positive_anchors.size(); ++i) {
    if (at.has(text("output.rpn_positive.", i)))
      at.equal(comparison, text("output.rpn_positive.", i), list(trace.positive_anchors[i]));
    if (at.has(text("output.rpn_negative.", i)))
      at.equal(comparison, text("output.rpn_negative.", i), list(trace.negative_anchors[i]));
  }
  for (size_t stage = 0; stage < trace.stages.size(); ++stage) {
    const auto& kept = trace.stages[stage];
    for (size_t i = 0; i < kept.boxes.size(); ++i) {
      const auto near = [&](const std::string& name, const torch::Tensor& got) {
        if (at.has(name)) comparison.close(at.what(name), got, at.tensor(name), 0, 1e-3);
      };
      const auto same = [&](const std::string& name, const torch::Tensor& got) {
        if (at.has(name)) at.equal(comparison, name, got);
      };
      if (stage == 0) {
        near(text("output.sampled.", i, ".boxes"), kept.boxes[i]);
        same(text("output.sampled.", i, ".classes"), kept.labels[i]);
        same(text("output.sampled.", i, ".matched"), kept.matched[i]);
        const torch::Tensor background = kept.labels[i] == options.classes;
        same(text("output.sampled.", i, ".labels"),
             torch::where(background, torch::zeros_like(kept.labels[i]), kept.labels[i] + 1));
        if (at.has(text("output.sampled.", i, ".deltas")) && targets[i].boxes.size(0) > 0) {
          torch::Tensor deltas = options.box.stages[0].coder.encode(
              kept.boxes[i], targets[i].boxes.to(at.dtype).index_select(0, kept.matched[i]));
          deltas.index_put_({background}, 0.0);
          near(text("output.sampled.", i, ".deltas"), deltas);
        }
      }
      near(text("output.stage", stage, ".boxes.", i), kept.boxes[i]);
      same(text("output.stage", stage, ".classes.", i), kept.labels[i]);
      const int64_t positives = kept.positives[i], all = kept.boxes[i].size(0);
      near(text("output.stage", stage, ".positive_boxes.", i), picked(kept.boxes[i], 0, positives));
      same(text("output.stage", stage, ".positive_gt.", i), kept.matched[i].narrow(0, 0, positives));
      near(text("output.stage", stage, ".negative_boxes.", i),
           picked(kept.boxes[i], positives, all - positives));
    }
  }
}

// The golden's name of a loss of ours.
std::string published_loss(const std::string& ours, DetectorCode code) {
  static const std::map<std::string, std::array<const char*, 3>> names = {
      {"rpn_objectness", {"loss_objectness", "loss_rpn_cls", "loss_rpn_cls"}},
      {"rpn_box", {"loss_rpn_box_reg", "loss_rpn_loc", "loss_rpn_bbox"}},
      {"class", {"loss_classifier", "loss_cls", "loss_cls"}},
      {"box", {"loss_box_reg", "loss_box_reg", "loss_bbox"}},
      {"mask", {"loss_mask", "loss_mask", "loss_mask"}}};
  const auto column = static_cast<size_t>(code);
  if (const auto found = names.find(ours); found != names.end()) return found->second[column];
  const size_t mark = ours.rfind('_');
  const int64_t stage = std::stoll(ours.substr(mark + 1)) - 1;
  const std::string name = names.at(ours.substr(0, mark))[column];
  return code == DetectorCode::mmdet ? text("s", stage, ".", name) : text(name, "_stage", stage);
}

void check_train(Comparison& comparison, const SubCase& at, WholeDetector& whole,
                 const std::map<std::string, torch::Tensor>& leaves) {
  const models::DetectorOptions& options = whole.detector->options();
  const DetectorInput fed = feed_detector(at, true);
  models::DetectorTrace trace;
  whole.detector->train();
  const auto pyramid = whole.detector->pyramid(whole.maps(fed.batch));
  const auto losses = whole.detector->losses(pyramid, {fed.batch.size(2), fed.batch.size(3)}, fed.sizes,
                                             fed.targets, models::choose_first(), &trace);
  torch::Tensor total = torch::zeros({}, at.dtype);
  for (const auto& [name, value] : losses) {
    at.compare(comparison, "output." + published_loss(name, options.code), value.view({1}));
    total = total + value;
  }
  at.compare(comparison, "output.loss", total.view({1}));
  for (size_t stage = 0; stage < trace.stages.size(); ++stage) {
    const std::string name = trace.stages.size() > 1 ? text("output.s", stage, ".acc") : "output.acc";
    const torch::Tensor right =
        trace.stages[stage].logits.argmax(1) == torch::cat(trace.stages[stage].labels);
    if (at.has(name)) at.compare(comparison, name, right.to(torch::kFloat64).mean().view({1}) * 100);
  }
  compare_trace(comparison, at, trace, options.code);
  compare_samples(comparison, at, trace, options, fed.targets);
  if (at.has("output.mask_logits"))
    comparison.close(at.what("output.mask_logits"), trace.mask_logits, at.tensor("output.mask_logits"), 1e-4,
                     1e-4);
  total.backward();
  compare_gradients(comparison, at, leaves);
  for (size_t i = 0; i < fed.leaves.size(); ++i)
    if (at.has(text("grad.input.images.", i)))
      at.compare(comparison, text("grad.input.images.", i), gradient_of(fed.leaves[i]));
}

CaseResult check_detector(const Golden& golden) {
  Comparison comparison;
  for (const torch::ScalarType dtype : kDetectorTypes) {
    WholeDetector whole = build_detector(golden);
    whole.body->to(dtype);
    whole.detector->to(dtype);
    whole.body->eval();
    whole.detector->eval();
    const SubCase weights{golden, "eval/", dtype};
    const auto* backbone = dynamic_cast<const models::Backbone*>(whole.body.get());
    auto leaves = load_published(
        *whole.body, weights,
        [&](const std::string& name) {
          if (!name.starts_with(whole.prefix) || !detector_name(name).empty()) return std::string();
          return whole.rename(name.substr(whole.prefix.size()));
        },
        backbone);
    leaves.merge(load_published(*whole.detector, weights, detector_name));
    check_eval(comparison, weights, whole);
    check_train(comparison, {golden, "train/", dtype}, whole, leaves);
  }
  return comparison.result();
}

const Registered registered({
    {"detector", check_detector, {"components/det_mask_rcnn", "components/det_cascade"}},
});

}  // namespace
}  // namespace tessera::parity::detector_cases
