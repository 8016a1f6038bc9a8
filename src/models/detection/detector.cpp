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
        // Takes the first `count` of a shuffle, in their original order.
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
  // As detectron2: convolutions by fan-out or fan-in, the predicting layers small.
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

namespace {

// A name cut at its dots, read piece by piece.
class Pieces {
 public:
  explicit Pieces(const std::string& name) : pieces_(split(name, '.')) {}
  bool take(std::string_view piece) {
    if (at_ >= pieces_.size() || pieces_[at_] != piece) return false;
    ++at_;
    return true;
  }
  // "7" -> 7, or with a prefix "conv7" -> 7; -1 if the piece is none.
  int64_t number(std::string_view prefix = "") {
    if (at_ >= pieces_.size() || !pieces_[at_].starts_with(prefix)) return -1;
    const auto value = parse_int(pieces_[at_].substr(prefix.size()));
    if (!value) return -1;
    ++at_;
    return *value;
  }
  std::string rest() const {
    std::vector<std::string> left(pieces_.begin() + static_cast<int64_t>(at_), pieces_.end());
    return join(left, ".");
  }

 private:
  std::vector<std::string> pieces_;
  size_t at_ = 0;
};

// What stands behind a convolution's name: itself, its norm, or a level of modules around both.
std::string conv_rest(Pieces& p) {
  if (p.take("0") || p.take("conv")) return p.rest();
  if (p.take("1") || p.take("bn") || p.take("norm")) return "norm." + p.rest();
  return p.rest();
}

std::string fpn_name(Pieces p) {
  for (const auto& [theirs, ours] : {std::pair{"inner_blocks", "lateral"},
                                     {"layer_blocks", "output"},
                                     {"lateral_convs", "lateral"},
                                     {"fpn_convs", "output"}})
    if (p.take(theirs)) {
      const int64_t number = p.number();
      return text("neck.", ours, ".", number, ".", conv_rest(p));
    }
  if (p.take("extra_blocks")) return "neck." + p.rest();
  for (const auto& [theirs, ours] : {std::pair{"fpn_lateral", "lateral"}, {"fpn_output", "output"}})
    if (const int64_t level = p.number(theirs); level >= 2)
      return text("neck.", ours, ".", level - 2, ".", conv_rest(p));
  if (p.rest().starts_with("simfp_")) return "neck." + p.rest();
  return "";
}

std::string rpn_name(Pieces p) {
  p.take("head");
  if (p.take("conv") || p.take("rpn_conv")) {
    int64_t number = p.number("conv");
    if (number < 0) number = p.number();
    return text("rpn.conv.", std::max<int64_t>(number, 0), ".", conv_rest(p));
  }
  for (const char* theirs : {"cls_logits", "rpn_cls", "objectness_logits"})
    if (p.take(theirs)) return "rpn.objectness." + p.rest();
  for (const char* theirs : {"bbox_pred", "rpn_reg", "anchor_deltas"})
    if (p.take(theirs)) return "rpn.deltas." + p.rest();
  return "";
}

std::string box_head_name(Pieces p) {
  const int64_t stage = std::max<int64_t>(p.number(), 0);
  const auto head = [&](const char* kind, int64_t number) {
    return text("roi_heads.box_head.", stage, ".", kind, ".", number, ".", conv_rest(p));
  };
  if (p.take("fc6")) return head("fc", 0);
  if (p.take("fc7")) return head("fc", 1);
  if (const int64_t n = p.number("fc"); n >= 1) return head("fc", n - 1);
  if (const int64_t n = p.number("conv"); n >= 1) return head("conv", n - 1);
  if (p.take("shared_fcs")) {
    const int64_t n = p.number();
    return head("fc", n);
  }
  if (p.take("shared_convs")) {
    const int64_t n = p.number();
    return head("conv", n);
  }
  for (const auto& [theirs, ours] : {std::pair{"fc_cls", "cls_score"}, {"fc_reg", "bbox_pred"}})
    if (p.take(theirs)) return text("roi_heads.box_predictor.", stage, ".", ours, ".", p.rest());
  return "";
}

std::string mask_head_name(Pieces p) {
  if (p.take("deconv") || p.take("upsample")) return "roi_heads.mask_head.0.deconv." + p.rest();
  if (p.take("predictor") || p.take("conv_logits")) return "roi_heads.mask_head.0.predictor." + p.rest();
  if (const int64_t n = p.number("mask_fcn"); n >= 1)
    return text("roi_heads.mask_head.0.conv.", n - 1, ".", conv_rest(p));
  const int64_t first = p.number();
  const int64_t stage = std::max<int64_t>(first, 0);
  for (const char* own : {"conv", "deconv", "predictor"})
    if (first >= 0 && p.take(own)) return "";
  if (p.take("convs")) {
    const int64_t n = p.number();
    return text("roi_heads.mask_head.", stage, ".conv.", n, ".", conv_rest(p));
  }
  if (p.take("upsample")) return text("roi_heads.mask_head.", stage, ".deconv.", p.rest());
  if (p.take("conv_logits")) return text("roi_heads.mask_head.", stage, ".predictor.", p.rest());
  return first < 0 ? "" : text("roi_heads.mask_head.0.conv.", first, ".", conv_rest(p));
}

}  // namespace

std::string detector_name(const std::string& published) {
  Pieces p(published);
  if (p.take("backbone")) {
    p.take("fpn");
    return fpn_name(p);
  }
  if (p.take("neck")) {
    const std::string name = fpn_name(p);
    return name.empty() ? published : name;
  }
  if (p.take("rpn") || p.take("rpn_head") || p.take("proposal_generator")) {
    p.take("rpn_head");
    const std::string name = rpn_name(p);
    return name.empty() ? published : name;
  }
  if (!p.take("roi_heads") && !p.take("roi_head")) return "";
  if (p.take("box_predictor")) {
    const int64_t stage = std::max<int64_t>(p.number(), 0);
    return text("roi_heads.box_predictor.", stage, ".", p.rest());
  }
  if (p.take("box_head") || p.take("bbox_head")) {
    const std::string name = box_head_name(p);
    return name.empty() ? published : name;
  }
  if (p.take("mask_predictor")) {
    if (p.take("conv5_mask")) return "roi_heads.mask_head.0.deconv." + p.rest();
    if (p.take("mask_fcn_logits")) return "roi_heads.mask_head.0.predictor." + p.rest();
  }
  if (p.take("mask_head")) {
    const std::string name = mask_head_name(p);
    return name.empty() ? published : name;
  }
  return published;
}

}  // namespace tessera::models
