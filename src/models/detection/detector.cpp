#include "models/detection/detector.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/random.h"
#include "core/text.h"
#include "models/detection/detector_parts.h"

namespace tessera::models {

DetectorOptions published(DetectorCode code, int64_t classes, bool cascade) {
  DetectorOptions o;
  o.code = code, o.classes = classes;
  if (code == DetectorCode::torchvision) {
    o.background_first = true, o.aligned = false;
    o.levels = {.side = 224, .level = 4, .inner = 0, .outer = 1e-6};
    o.rpn.anchors.ratios_first = o.rpn.anchors.rounded = true;
    o.rpn.after_nms_train = 2000;
    o.rpn.beta = 1.0 / 9, o.rpn.min_side = 1e-3;
    o.box.sampling = o.mask.sampling = 2;
    o.box.stages[0].beta = 1.0 / 9, o.box.min_side = 0.01;
  }
  if (code == DetectorCode::mmdet) {
    o.levels = {.side = 56, .level = 2, .inner = 1e-6};
    o.rpn.anchors.ratios_first = true;
    o.rpn.match.weak = o.box.weak = WeakMatches::given;
    o.rpn.match.weakest = 0.3;
    o.rpn.coder.both_sides = o.box.stages[0].coder.both_sides = true;
  }
  if (!cascade) return o;
  const BoxStage first = o.box.stages[0];
  o.box.stages.clear();
  o.box.per_class = false;
  const bool is_mmdet = code == DetectorCode::mmdet;
  for (const double iou : {0.5, 0.6, 0.7}) {
    BoxStage stage = first;
    stage.iou = iou;
    const double times = std::round((iou - 0.5) * 10) + 1;
    stage.coder.weights = {10 * times, 10 * times, 5 * times, 5 * times};
    if (is_mmdet) stage.weight = std::pow(0.5, times - 1), stage.beta = 1;
    o.box.stages.push_back(stage);
  }
  if (is_mmdet) {  // written as deviations in mmdet
    o.box.stages[2].coder.weights = {1 / 0.033, 1 / 0.033, 1 / 0.067, 1 / 0.067};
    o.box.weak = WeakMatches::none;
    o.rpn.inside_only = true, o.rpn.beta = 1.0 / 9;
    o.rpn.after_nms_train = 2000;
  }
  return o;
}

Chooser choose_first() {
  return [](const std::vector<int64_t>& candidates, int64_t count, int64_t, const std::string&) {
    return std::vector<int64_t>(candidates.begin(), candidates.begin() + count);
  };
}

Chooser choose_at_random(uint64_t seed, uint64_t step, int64_t first_image) {
  return
      [=](const std::vector<int64_t>& candidates, int64_t count, int64_t image, const std::string& purpose) {
        if (count == std::ssize(candidates)) return candidates;
        RandomStream stream(seed, "detector " + purpose, step, static_cast<uint64_t>(first_image + image));
        // Takes the first `count` elements of a shuffle, in their original order.
        std::vector<int64_t> all = candidates;
        for (int64_t i = 0; i < count; ++i)
          std::swap(all[static_cast<size_t>(i)],
                    all[static_cast<size_t>(stream.integer(i, static_cast<int64_t>(all.size()) - 1))]);
        all.resize(static_cast<size_t>(count));
        std::sort(all.begin(), all.end());
        return all;
      };
}

Detector::Detector(const DetectorOptions& options, std::shared_ptr<PyramidNeck> neck) : options_(options) {
  neck_ = register_module("neck", std::move(neck));
  int64_t width = 0;  // channels of the pyramid: the outputs of the neck's last convolution
  for (const auto& parameter : neck_->parameters())
    if (parameter.dim() == 4) width = parameter.size(0);
  const std::vector<int64_t> strides = neck_->strides();
  rpn_ = register_module("rpn", std::make_shared<Rpn>(options_, width, strides));
  roi_heads_ = register_module("roi_heads", std::make_shared<RoiHeads>(options_, width, strides));
}

void Detector::initialise(uint64_t seed) {
  // Initialises as detectron2: convolutions by fan-out or fan-in, predicting layers with small values.
  nn::initialise(
      *this, seed, [](const std::string& name, const torch::Tensor& parameter, const nn::Filler& fill) {
        if (parameter.dim() < 2) return;
        const auto fan_in = static_cast<double>(parameter[0].numel());
        if (name.find("bbox_pred") != std::string::npos)
          fill.normal(0.001);
        else if (name.find("cls_score") != std::string::npos || name.starts_with("rpn."))
          fill.normal(0.01);
        else if (name.find(".predictor.") != std::string::npos && name.find("mask_head") != std::string::npos)
          fill.normal(0.001);
        else if (name.starts_with("roi_heads.mask_head") && name.find("deconv") == std::string::npos)
          fill.normal(std::sqrt(2.0 / static_cast<double>(parameter.select(1, 0).numel())));
        else if (name.starts_with("roi_heads.mask_head"))
          fill.normal(std::sqrt(2.0 / fan_in));
        else
          fill.uniform(std::sqrt(3.0 / fan_in));
      });
}

std::vector<torch::Tensor> Detector::pyramid(const std::vector<torch::Tensor>& maps) {
  std::vector<torch::Tensor> last;
  for (const torch::Tensor& map : maps) last.push_back(map.permute({0, 2, 3, 1}));
  return neck_->forward(last);
}

NamedLosses Detector::losses(const std::vector<torch::Tensor>& pyramid, Extent padded,
                             const std::vector<Extent>& images, const std::vector<DetectionTarget>& targets,
                             const Chooser& choose, DetectorTrace* trace) {
  check(images.size() == targets.size(), "there are ", images.size(), " images, targets of ", targets.size());
  const Rpn::Output output = rpn_->forward(pyramid, padded, trace);
  NamedLosses all = rpn_->losses(output, images, targets, choose, trace);
  const auto proposals = rpn_->proposals(output, images, trace);
  for (auto& loss : roi_heads_->losses(pyramid, images, proposals, targets, choose, trace))
    all.push_back(std::move(loss));
  return all;
}

std::vector<Detections> Detector::detect(const std::vector<torch::Tensor>& pyramid, Extent padded,
                                         const std::vector<Extent>& images, DetectorTrace* trace) {
  const torch::NoGradGuard no_grad;
  const Rpn::Output output = rpn_->forward(pyramid, padded, trace);
  return roi_heads_->detect(pyramid, images, rpn_->proposals(output, images, trace), trace);
}

AnchorMatches Detector::match_anchors(Extent padded, Extent image, const torch::Tensor& truths) const {
  return rpn_->matches(padded, image, truths);
}

void Detector::add_masks(const std::vector<torch::Tensor>& pyramid, std::vector<Detections>& found) {
  check(options_.mask.on, "this detector has no mask head");
  const torch::NoGradGuard no_grad;
  roi_heads_->add_masks(pyramid, found);
}

Detections rescaled(const Detections& found, double across, double down, std::optional<Extent> clip) {
  Detections out = found;
  out.boxes = found.boxes * torch::tensor({across, down, across, down}, found.boxes.options());
  if (!clip) return out;
  out.boxes = clip_boxes(out.boxes, *clip);
  const torch::Tensor keep = boxes_of_size(out.boxes, 0, /*beyond=*/true);
  for (torch::Tensor* values : {&out.boxes, &out.scores, &out.labels, &out.masks})
    if (values->defined()) *values = values->index_select(0, keep);
  return out;
}

int64_t Detector::macs(Extent image) const {
  return neck_->macs(image) + rpn_->macs(image) + roi_heads_->macs();
}

}  // namespace tessera::models
