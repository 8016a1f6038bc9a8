// Mask R-CNN (He et al. 2017) and Cascade R-CNN (Cai & Vasconcelos 2018) on a pyramid of maps:
//
//   RPN      anchors of every cell are told from background and moved: proposals (Ren et al. 2015)
//   box head proposals are pooled by RoIAlign, classified and moved again; a cascade does so three times, each time
//            with boxes of the time before and a stricter threshold
//   mask head  a small mask for each class of a found box
//
//   loss = CE(anchor) + smooth L1(anchor) + CE(box) + smooth L1(box) + BCE(mask)
//
// The three published codes differ in a dozen places. What differs is an option here; `published` gives the set of
// each of them, with which its weights compute what they were trained for.
#pragma once

#include "ops/torch.h"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/base/pyramid_neck.h"
#include "models/detection/boxes.h"
#include "nn/init.h"
#include "ops/roi_align.h"

namespace tessera::models {

enum class DetectorCode { torchvision, detectron2, mmdet };

struct RpnOptions {
  AnchorOptions anchors = {};
  int64_t convs = 1;
  MatchOptions match = {.low = 0.3, .high = 0.7, .weak = WeakMatches::keep_own};
  int64_t batch = 256;  // anchors of an image that are trained on
  double positives = 0.5;
  bool inside_only = false;                                 // anchors that leave the image are not trained on
  int64_t before_nms_train = 2000, before_nms_test = 1000;  // a level
  int64_t after_nms_train = 1000, after_nms_test = 1000;
  double nms = 0.7;
  double beta = 0;      // of the smooth L1; 0 = L1
  double min_side = 0;  // proposals below it are dropped; 0: those without area
  BoxCoder coder = {};
};

// One box head: a detector has one, a cascade three.
struct BoxStage {
  BoxCoder coder = {.weights = {10, 10, 5, 5}};
  double iou = 0.5;   // from which on a box belongs to a ground truth
  double low = -1;    // below which it is background, between the two neither; -1 = as iou
  double weight = 1;  // of its losses
  double beta = 0;
};

struct BoxHeadOptions {
  std::vector<BoxStage> stages = {{}};
  int64_t pool = 7, sampling = 0, convs = 0, fcs = 2, width = 1024;
  ConvNormKind norm = ConvNormKind::none;
  bool per_class = true;  // deltas for each class, else one set
  WeakMatches weak = WeakMatches::none;
  int64_t batch = 512;
  double positives = 0.25;
  double min_side = 0;
  double score = 0.05, nms = 0.5;
  int64_t most = 100;
};

struct MaskHeadOptions {
  bool on = true;
  int64_t pool = 14, sampling = 0, convs = 4, width = 256, upsampled = 0;  // 0 = as width
  ConvNormKind norm = ConvNormKind::none;
};

// Level = floor(log2(sqrt(area) / side + inner) + level + outer), cut to those that there are; level 2 has stride 4.
struct LevelRule {
  double side = 224, level = 4, inner = 1e-8, outer = 0;
};

struct DetectorOptions {
  DetectorCode code = DetectorCode::detectron2;
  int64_t classes = 80;
  bool background_first = false;  // scores, deltas and masks have an entry of the background in front
  bool aligned = true;            // RoIAlign moves boxes by half a cell
  int64_t pooled_levels = 4;      // maps that RoIAlign reads, finest first
  LevelRule levels = {};
  RpnOptions rpn = {};
  BoxHeadOptions box = {};
  MaskHeadOptions mask = {};
};
DetectorOptions published(DetectorCode code, int64_t classes, bool cascade = false);

// What is to be found in an image, in pixels of the image that goes in.
struct DetectionTarget {
  torch::Tensor boxes;   // [n, 4] on the host
  torch::Tensor labels;  // [n] int64, 0 … classes - 1
  torch::Tensor masks;   // [n, height, width] uint8 on the host; undefined without a mask head
};
struct Detections {
  torch::Tensor boxes;   // [n, 4]
  torch::Tensor scores;  // [n], best first
  torch::Tensor labels;  // [n] int64, 0 … classes - 1
  torch::Tensor masks;   // [n, side, side] probabilities; undefined without a mask head
};

// Which of the candidates are taken, `count` of them: `purpose` tells draws apart ("anchors", "boxes 0").
using Chooser = std::function<std::vector<int64_t>(const std::vector<int64_t>& candidates, int64_t count,
                                                   int64_t image, const std::string& purpose)>;
// The first ones by their number.
Chooser choose_first();
// Drawn from (seed, step, image).
Chooser choose_at_random(uint64_t seed, uint64_t step, int64_t first_image);

// Scalars by name, in a fixed order; their sum is what is learned.
using NamedLosses = std::vector<std::pair<std::string, torch::Tensor>>;

// The anchors of one image that are trained as an object, and the object of each.
struct AnchorMatches {
  torch::Tensor anchors;       // [n, 4] on the host
  std::vector<int64_t> truth;  // the object's number, 0 … objects - 1
  int64_t all = 0;             // anchors of the image, those of background and those between included
};

// What happened on the way, for tests and pictures.
struct DetectorTrace {
  std::vector<torch::Tensor> objectness, deltas;          // a level each, [batch, rows, columns, …]
  std::vector<torch::Tensor> proposals, proposal_logits;  // an image each
  std::vector<std::vector<int64_t>> positive_anchors, negative_anchors;
  struct Stage {
    std::vector<torch::Tensor> boxes, labels,
        matched;                     // an image each: boxes, class (background: classes), truth
    std::vector<int64_t> positives;  // an image each: the first so many boxes, where they stand first
    torch::Tensor logits, deltas;
  };
  std::vector<Stage> stages;
  torch::Tensor mask_logits;
};

class Detector final : public torch::nn::Module {
 public:
  // Modules neck, rpn, roi_heads.
  Detector(const DetectorOptions& options, std::shared_ptr<PyramidNeck> neck);
  void initialise(uint64_t seed);

  // Backbone maps [batch, channels, rows, columns] -> the pyramid, channels last.
  std::vector<torch::Tensor> pyramid(const std::vector<torch::Tensor>& maps);
  // `images` are the sizes of the images within the batch, which is padded to `padded`.
  NamedLosses losses(const std::vector<torch::Tensor>& pyramid, Extent padded,
                     const std::vector<Extent>& images, const std::vector<DetectionTarget>& targets,
                     const Chooser& choose, DetectorTrace* trace = nullptr);
  std::vector<Detections> detect(const std::vector<torch::Tensor>& pyramid, Extent padded,
                                 const std::vector<Extent>& images, DetectorTrace* trace = nullptr);

  // Which anchors an image within a batch padded to `padded` is trained on as objects; `truths` [k, 4].
  AnchorMatches match_anchors(Extent padded, Extent image, const torch::Tensor& truths) const;

  // The masks of boxes that were found elsewhere, an entry an image of the pyramid; with a mask head only.
  void add_masks(const std::vector<torch::Tensor>& pyramid, std::vector<Detections>& found);

  const DetectorOptions& options() const { return options_; }
  // The options that may be changed when detecting.
  void set_limits(double score, int64_t most) { options_.box.score = score, options_.box.most = most; }
  int64_t macs(Extent image) const;  // of one image, as many proposals as detecting takes
  ops::PasteRule paste_rule() const {
    return options_.code == DetectorCode::torchvision ? ops::PasteRule::resized : ops::PasteRule::grid;
  }

 private:
  class Rpn;
  class RoiHeads;
  DetectorOptions options_;
  std::shared_ptr<PyramidNeck> neck_;
  std::shared_ptr<Rpn> rpn_;
  std::shared_ptr<RoiHeads> roi_heads_;
};

// The same detections with their boxes times these factors: of the image as it was before it was resized. `clip`
// (detectron2): cut at that image's border, those without area dropped.
Detections rescaled(const Detections& found, double across, double down,
                    std::optional<Extent> clip = std::nullopt);

// The mask of each box's own ground truth as its mask head should give it: RoIAlign of the masks [n, height, width]
// uint8 at boxes [k, 4] of truths `matched` [k]: [k, side, side] float. At least a half where `binary`.
torch::Tensor mask_targets(const torch::Tensor& masks, const torch::Tensor& boxes,
                           const std::vector<int64_t>& matched, int64_t side, bool aligned, bool binary,
                           torch::ScalarType type);
// Mean binary cross-entropy over the pixels of the class's own channel: logits [k, channels, side, side].
torch::Tensor mask_loss(const torch::Tensor& logits, const torch::Tensor& channels,
                        const torch::Tensor& targets);
// Boxes of a pyramid's levels, counted from its first.
std::vector<int64_t> pooled_levels(const torch::Tensor& boxes, const LevelRule& rule, int64_t first_level,
                                   int64_t count);
// RoIAlign of boxes [n, 5] (image first) on the maps of their levels, channels last: [n, channels, side, side].
torch::Tensor pool_boxes(const std::vector<torch::Tensor>& maps, const std::vector<int64_t>& strides,
                         const torch::Tensor& boxes, const std::vector<int64_t>& levels,
                         ops::RoiAlignOptions options);

// The name of a tensor of a published detector in ours: "neck.…", "rpn.…", "roi_heads.…". Empty for one of the
// backbone, which keeps its own.
std::string detector_name(const std::string& published);

}  // namespace tessera::models
