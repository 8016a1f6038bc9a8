// components/det_nms, det_roi_align, det_anchors_coder_matcher, det_masks.
#include "tests/parity/detection_case.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "data/base/outline.h"
#include "io/images/run_lengths.h"
#include "models/detection/boxes.h"
#include "nn/boxes.h"

namespace tessera::parity {
namespace {

using Json = nlohmann::json;
using models::BoxCoder;

constexpr torch::ScalarType kTypes[] = {torch::kFloat64, torch::kFloat32};

// The case itself, or the first whose name begins so and that has the inputs which this one shares.
SubCase with_inputs(const SubCase& at, const std::string& input, const std::string& kind) {
  if (at.has(input)) return at;
  for (const std::string& name : sub_cases(at.golden))
    if (name.starts_with(kind) && at.golden.has(name + "/" + input)) return {at.golden, name + "/", at.dtype};
  fail(at.prefix, ": no case has the inputs that it lacks");
}

torch::Tensor index_of(const std::vector<int64_t>& list) {
  return torch::tensor(at::ArrayRef<int64_t>(list), torch::kInt64);
}

void check_nms_case(Comparison& comparison, const SubCase& at, const Json& config) {
  const torch::Tensor boxes = at.tensor("input.boxes");
  if (at.has("output.clipped")) {
    const std::vector<int64_t> size = numbers(config.at("size_hw"));
    const torch::Tensor clipped = models::clip_boxes(boxes, {size[0], size[1]});
    at.compare(comparison, "output.clipped", clipped);
    for (const std::string& name : at.names("output.keep"))
      at.equal(comparison, "output.keep" + name,
               models::boxes_of_size(clipped, config.at("min_size").get<double>()));
    return;
  }
  const torch::Tensor classes = at.has("input.classes") ? at.tensor("input.classes") : torch::Tensor();
  at.equal(comparison, "output.keep",
           ops::nms(boxes, at.tensor("input.scores"), classes, config.at("iou_threshold").get<double>()));
}

CaseResult check_nms(const Golden& golden) {
  Comparison comparison;
  for (const torch::ScalarType dtype : kTypes)
    for (const std::string& name : sub_cases(golden)) {
      const SubCase at{golden, name + "/", dtype};
      if (at.has("output.iou"))
        at.compare(comparison, "output.iou",
                   nn::pairwise_iou(at.tensor("input.a"), at.tensor("input.b")).nan_to_num(-1));
      else
        check_nms_case(comparison, at, golden.config().at(name));
    }
  return comparison.result();
}

ops::RoiAlignOptions roi_options(const Json& config) {
  ops::RoiAlignOptions options;
  options.aligned = config.value("aligned", false);
  options.sampling = config.at("sampling_ratio");
  const Json& size = config.at("output_size");
  options.height = size.is_array() ? size[0].get<int64_t>() : size.get<int64_t>();
  options.width = size.is_array() ? size[1].get<int64_t>() : size.get<int64_t>();
  return options;
}

void check_levels(Comparison& comparison, const SubCase& at, const Json& config) {
  const SubCase inputs = with_inputs(at, "input.feats.0", "");
  std::vector<torch::Tensor> maps, last, rois;
  std::vector<int64_t> strides;
  for (size_t i = 0; i < config.at("scales").size(); ++i) {
    maps.push_back(inputs.tensor(text("input.feats.", i)).requires_grad_());
    last.push_back(maps.back().permute({0, 2, 3, 1}));
    strides.push_back(std::lround(1 / config.at("scales")[i].get<double>()));
  }
  for (int64_t image = 0; inputs.has(text("input.const_b.", image)); ++image) {
    const torch::Tensor boxes = inputs.tensor(text("input.const_b.", image));
    rois.push_back(
        torch::cat({torch::full({boxes.size(0), 1}, static_cast<double>(image), boxes.options()), boxes}, 1));
  }
  const torch::Tensor all = torch::cat(rois);
  const auto first = static_cast<int64_t>(std::lround(std::log2(strides[0])));
  models::LevelRule rule{
      .side = config.at("canonical_scale"), .level = config.at("canonical_level"), .inner = 0, .outer = 1e-6};
  const auto levels = models::pooled_levels(all.slice(1, 1), rule, first, std::ssize(strides));
  at.equal(comparison, "output.level", index_of(levels));
  rule.inner = 1e-8, rule.outer = 0;
  if (at.has("output.level_detectron2"))
    at.equal(comparison, "output.level_detectron2",
             index_of(models::pooled_levels(all.slice(1, 1), rule, first, std::ssize(strides))));
  const torch::Tensor y = models::pool_boxes(last, strides, all, levels, roi_options(config));
  at.compare(comparison, "output.y", y);
  if (!at.has("loss_weight.y")) return;
  (y * at.tensor("loss_weight.y")).sum().backward();
  for (size_t i = 0; i < maps.size(); ++i)
    if (at.has(text("grad.input.feats.", i)))
      at.compare(comparison, text("grad.input.feats.", i),
                 maps[i].grad().defined() ? maps[i].grad() : torch::zeros_like(maps[i]));
}

CaseResult check_roi_align(const Golden& golden) {
  Comparison comparison;
  const double shared = golden.config().value("spatial_scale", 1.0);
  for (const torch::ScalarType dtype : kTypes)
    for (const std::string& name : sub_cases(golden)) {
      const SubCase at{golden, name + "/", dtype};
      const Json& config = golden.config().at(name);
      if (config.contains("scales")) {
        check_levels(comparison, at, config);
        continue;
      }
      ops::RoiAlignOptions options = roi_options(config);
      options.scale = config.value("spatial_scale", shared);
      const torch::Tensor rois = golden.tensor("input.rois", dtype);
      for (const bool fused : {true, false}) {
        const torch::Tensor x = golden.tensor("input.x", dtype).requires_grad_();
        const torch::Tensor y =
            fused ? ops::roi_align(x, rois, options) : ops::roi_align_unfused(x, rois, options);
        at.compare(comparison, "output.y", y);
        (y * at.tensor("loss_weight.y")).sum().backward();
        at.compare(comparison, "grad.input.x", x.grad());
      }
    }
  return comparison.result();
}

void check_anchors(Comparison& comparison, const SubCase& at, const Json& all, const std::string& name) {
  const std::string kind = name.substr(0, name.find('_'));
  const Json& config = all.contains(name) ? all.at(name) : all.at(kind);
  const Json& maps = config.contains("maps") ? config.at("maps") : all.at("torchvision").at("maps");
  models::AnchorOptions options;
  options.rounded = kind == "torchvision";
  options.ratios_first = kind != "detectron2";
  options.ratios = config.contains("ratios") ? config.at("ratios").get<std::vector<double>>()
                                             : config.at("aspect_ratios").get<std::vector<double>>();
  if (const size_t mark = name.find("offset"); mark != std::string::npos)
    options.offset = std::stod(name.substr(mark + 6));
  options.sizes.clear();
  for (size_t level = 0; level < maps.size(); ++level) {
    if (config.contains("sizes")) {
      options.sizes.push_back(config.at("sizes")[level].get<std::vector<double>>());
      continue;
    }
    options.sizes.emplace_back();
    for (const Json& scale : config.at("scales"))
      options.sizes.back().push_back(scale.get<double>() * config.at("strides")[level].get<double>());
  }
  std::vector<torch::Tensor> levels;
  for (size_t level = 0; level < maps.size(); ++level) {
    const Json& stride = config.at("strides")[level];
    const models::Extent step = stride.is_array()
                                    ? models::Extent{stride[0].get<int64_t>(), stride[1].get<int64_t>()}
                                    : models::Extent{stride.get<int64_t>(), stride.get<int64_t>()};
    const std::vector<int64_t> grid = numbers(maps[level]);
    levels.push_back(options.anchors(static_cast<int64_t>(level), {grid[0], grid[1]}, step, at.dtype));
  }
  at.compare(comparison, "output.anchors", torch::cat(levels));
}

void check_coder(Comparison& comparison, const SubCase& at, const Json& config) {
  const SubCase inputs = with_inputs(at, "input.gt", "coder");
  const torch::Tensor truth = inputs.tensor("input.gt").requires_grad_(),
                      box = inputs.tensor("input.proposal").requires_grad_(),
                      delta = inputs.tensor("input.delta").requires_grad_();
  const auto weights = config.at("weights").get<std::array<double, 4>>();
  const BoxCoder coder{.weights = weights};
  const torch::Tensor deltas = coder.encode(box, truth), boxes = coder.decode(delta, box);
  at.compare(comparison, "output.deltas", deltas);
  at.compare(comparison, "output.boxes", boxes);
  ((deltas * at.tensor("loss_weight.deltas")).sum() + (boxes * at.tensor("loss_weight.boxes")).sum())
      .backward();
  at.compare(comparison, "grad.input.gt", truth.grad());
  at.compare(comparison, "grad.input.proposal", box.grad());
  at.compare(comparison, "grad.input.delta", delta.grad());
}

constexpr double kRpnLow = 0.3;  // the RPN's, where a case does not say

// "match0_0.7_low": the truths of match0, from 0.7 on, those that are best for a truth besides.
void check_matcher(Comparison& comparison, const SubCase& at, const std::string& name) {
  const std::vector<std::string> words = split(name, '_');
  if (words.size() < 3) {  // without ground truth
    const int64_t count = at.tensor("output.detectron2_label").size(0);
    const models::Matches none = models::match_boxes(torch::zeros({count, 4}), torch::zeros({0, 4}), {});
    at.equal(comparison, "output.detectron2_label", index_of(none.truth) + 1);
    return;
  }
  models::MatchOptions options;
  options.high = std::stod(words[1]);
  const bool weak = words[2] == "low";
  const Json& said = at.golden.config().value(name, Json::object());
  options.high = said.value("high", options.high);
  options.low = said.value("low", weak ? kRpnLow : options.high);
  options.weak = weak ? models::WeakMatches::keep_own : models::WeakMatches::none;
  const torch::Tensor anchors = at.golden.tensor("torchvision/output.anchors"),
                      truths = at.golden.tensor(words[0] + "/input.gt");
  const models::Matches found = models::match_boxes(anchors, truths, options);
  at.equal(comparison, "output.matched", index_of(found.truth));
  at.equal(comparison, "output.detectron2_matched", index_of(found.best));
  const torch::Tensor truth = index_of(found.truth);
  at.equal(comparison, "output.detectron2_label",
           torch::where(truth >= 0, torch::ones_like(truth),
                        torch::where(truth == -1, torch::zeros_like(truth), -torch::ones_like(truth))));
}

CaseResult check_anchors_coder_matcher(const Golden& golden) {
  Comparison comparison;
  for (const torch::ScalarType dtype : kTypes)
    for (const std::string& name : sub_cases(golden)) {
      const SubCase at{golden, name + "/", dtype};
      if (at.has("output.anchors"))
        check_anchors(comparison, at, golden.config(), name);
      else if (at.has("output.deltas"))
        check_coder(comparison, at, golden.config().at(name));
      else if (at.has("output.detectron2_label"))
        check_matcher(comparison, at, name);
    }
  return comparison.result();
}

// Equal but where the value is too near to the threshold to tell.
void compare_masks(Comparison& comparison, const SubCase& at, const std::string& name,
                   const torch::Tensor& got, const torch::Tensor& value, double threshold) {
  const torch::Tensor want = at.tensor(name);
  const torch::Tensor unsure = (value.to(torch::kFloat64) - threshold).abs() < 1e-5;
  comparison.equal(at.what(name), torch::where(unsure, want, got), want);
}

CaseResult check_masks(const Golden& golden) {
  Comparison comparison;
  const double threshold = golden.config().at("threshold");
  const std::vector<int64_t> size = numbers(golden.config().at("size_hw"));
  for (const torch::ScalarType dtype : kTypes) {
    const torch::Tensor masks = golden.tensor("input.masks", dtype).squeeze(1),
                        boxes = golden.tensor("input.boxes", dtype);
    for (const std::string code : {"torchvision", "detectron2"}) {
      const SubCase at{golden, code + "/", dtype};
      const ops::PasteRule rule = code == "torchvision" ? ops::PasteRule::resized : ops::PasteRule::grid;
      const torch::Tensor value = ops::paste_masks(masks, boxes, rule, size[0], size[1]);
      comparison.close(at.what("output.prob"), value, at.tensor("output.prob"), 0, 1e-5);
      compare_masks(comparison, at, "output.mask",
                    ops::paste_masks_binary(masks, boxes, rule, threshold, size[0], size[1]), value,
                    threshold);
      if (at.has("output.soft"))
        comparison.close(at.what("output.soft"), (value * 255).to(torch::kUInt8), at.tensor("output.soft"), 0,
                         1);
    }
    const SubCase targets{golden, "targets/", dtype};
    const torch::Tensor index = targets.tensor("input.gt_index");
    const std::vector<int64_t> matched(index.const_data_ptr<int64_t>(),
                                       index.const_data_ptr<int64_t>() + index.numel());
    const auto target = [&](int64_t side, bool torchvision) {
      return models::mask_targets(targets.tensor("input.gt"), targets.tensor("input.boxes"), matched, side,
                                  /*aligned=*/!torchvision, /*binary=*/!torchvision, dtype);
    };
    for (const std::string& name : targets.names("output.")) {
      const bool torchvision = name.starts_with("torchvision");
      const int64_t side = std::stoll(name.substr(torchvision ? 11 : 11));
      if (torchvision)
        targets.compare(comparison, "output." + name, target(side, true));
      else
        compare_masks(comparison, targets, "output." + name, target(side, false).to(torch::kUInt8),
                      models::mask_targets(targets.tensor("input.gt"), targets.tensor("input.boxes"), matched,
                                           side, true, false, torch::kFloat64),
                      0.5);
    }
    const SubCase loss{golden, "loss/", dtype};
    const torch::Tensor logits = loss.tensor("input.logits").requires_grad_();
    const torch::Tensor value = models::mask_loss(
        logits, loss.tensor("input.gt_labels").index_select(0, index), target(logits.size(2), true));
    value.backward();
    loss.compare(comparison, "output.loss_mask", value.view({1}));
    loss.compare(comparison, "grad.input.logits", logits.grad());
  }
  const SubCase polygons{golden, "polygons/", torch::kFloat64};
  const torch::Tensor places = polygons.tensor("input.boxes").contiguous();
  for (const std::string& name : polygons.names("output.")) {
    std::vector<torch::Tensor> planes;
    for (size_t i = 0; i < golden.config().at("polygons").size(); ++i) {
      data::Outline outline;
      outline.polygons = golden.config().at("polygons")[i].get<std::vector<std::vector<double>>>();
      int64_t height = size[0], width = size[1];
      if (name != "bitmask") {
        height = width = std::stoll(name.substr(11));
        const double* box = places.const_data_ptr<double>() + 4 * i;
        outline = data::outline_in_box(outline, {box[0], box[1], box[2], box[3]}, width);
      }
      const std::vector<uint8_t> mask = mask_of_runs(data::runs_of_outline(outline, height, width));
      planes.push_back(torch::tensor(at::ArrayRef<uint8_t>(mask), torch::kUInt8).view({height, width}));
    }
    polygons.equal(comparison, "output." + name, torch::stack(planes));
  }
  return comparison.result();
}

}  // namespace

std::vector<std::string> sub_cases(const Golden& golden) {
  std::set<std::string> found;
  for (const std::string& name : golden.names(""))
    if (const size_t slash = name.find('/'); slash != std::string::npos) found.insert(name.substr(0, slash));
  return {found.begin(), found.end()};
}

std::vector<int64_t> numbers(const Json& list) { return list.get<std::vector<int64_t>>(); }

void SubCase::equal(Comparison& comparison, const std::string& name, const torch::Tensor& got) const {
  comparison.equal(what(name), got, tensor(name));
}

void SubCase::compare(Comparison& comparison, const std::string& name, const torch::Tensor& got) const {
  const torch::Tensor want = golden.tensor(prefix + name).to(torch::kFloat64);
  const double largest = want.numel() ? want.abs().max().item<double>() : 0;
  const Json tolerance = golden.meta.value("tolerance", Json::object());
  const bool gradient = name.starts_with("grad.");
  if (dtype == torch::kFloat64)  // stored as float32; numbers that cancel are zero up to rounding
    return comparison.close(what(name), got, want, gradient ? 1e-5 : 1e-6,
                            gradient ? 1e-5 * largest + 1e-9 : 1e-6 * largest + 1e-7);
  if (gradient) return comparison.close(what(name), got, want, 1e-3, 1e-4 * largest + 1e-6);
  comparison.close(what(name), got, want, tolerance.value("rtol", 1e-4),
                   std::max(tolerance.value("atol", 1e-5), 1e-5 * largest));
}

namespace {

const Registered registered({
    {"nms", check_nms, {"components/det_nms"}},
    {"roi_align", check_roi_align, {"components/det_roi_align"}},
    {"detection_anchors", check_anchors_coder_matcher, {"components/det_anchors"}},
    {"detection_masks", check_masks, {"components/det_masks"}},
});

}  // namespace
}  // namespace tessera::parity
