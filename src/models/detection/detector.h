// Mask R-CNN (He et al. 2017) and Cascade R-CNN (Cai & Vasconcelos 2018) on a pyramid of maps:
//
//   RPN        classifies and moves the anchors of every cell: proposals (Ren et al. 2015)
//   box head   pools proposals by RoIAlign, classifies and moves them again. A cascade has three, each with
//              the boxes of the previous one and a stricter threshold
//   mask head  predicts a small mask for each class of a detected box
//
//   loss = CE(anchor) + smooth L1(anchor) + CE(box) + smooth L1(box) + BCE(mask)
//
// The three published implementations differ in a dozen details. Each difference is an option here.
// `published` returns the options of an implementation, with which its weights give the published results.
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
  int64_t batch = 256;  // sampled anchors per image
  double positives = 0.5;
  bool inside_only = false;                                 // anchors beyond the image are not sampled
  int64_t before_nms_train = 2000, before_nms_test = 1000;  // per level
  int64_t after_nms_train = 1000, after_nms_test = 1000;
  double nms = 0.7;
  double beta = 0;      // smooth L1's beta; 0 = L1
  double min_side = 0;  // smaller proposals are dropped; 0: only those without area
  BoxCoder coder = {};
};

// A box head: a detector has one, a cascade three.
struct BoxStage {
  BoxCoder coder = {.weights = {10, 10, 5, 5}};
  double iou = 0.5;   // minimum IoU of a box with its ground truth
  double low = -1;    // below it a box is background, in between it is ignored; -1 = as iou
  double weight = 1;  // factor of its losses
  double beta = 0;
};

struct BoxHeadOptions {
  std::vector<BoxStage> stages = {{}};
  int64_t pool = 7, sampling = 0, convs = 0, fcs = 2, width = 1024;
  ConvNormKind norm = ConvNormKind::none;
  bool per_class = true;  // one set of deltas per class, else one for all
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

// Level = floor(log2(sqrt(area) / side + inner) + level + outer), clamped to the existing levels; level 2 has
// stride 4.
struct LevelRule {
  double side = 224, level = 4, inner = 1e-8, outer = 0;
};

struct DetectorOptions {
  DetectorCode code = DetectorCode::detectron2;
  int64_t classes = 80;
  bool background_first = false;  // background comes first in scores, deltas and masks
  bool aligned = true;            // RoIAlign shifts boxes by half a cell
  int64_t pooled_levels = 4;      // maps that RoIAlign reads, finest first
  LevelRule levels = {};
  RpnOptions rpn = {};
  BoxHeadOptions box = {};
  MaskHeadOptions mask = {};
};
DetectorOptions published(DetectorCode code, int64_t classes, bool cascade = false);

// The ground truth of an image, in pixels of the input image.
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

// Chooses `count` candidates. `purpose` separates independent draws ("anchors", "boxes 0").
using Chooser = std::function<std::vector<int64_t>(const std::vector<int64_t>& candidates, int64_t count,
                                                   int64_t image, const std::string& purpose)>;
// Returns a chooser that takes the first candidates in their order.
Chooser choose_first();
// Returns a chooser that draws from a stream keyed by (seed, step, image).
Chooser choose_at_random(uint64_t seed, uint64_t step, int64_t first_image);

// Losses by name, in a fixed order; training minimises their sum.
using NamedLosses = std::vector<std::pair<std::string, torch::Tensor>>;

// The anchors of one image that are trained to find objects, and the object of each.
struct AnchorMatches {
  torch::Tensor anchors;       // [n, 4] on the host
  std::vector<int64_t> truth;  // the object's number, 0 … objects - 1
  int64_t all = 0;             // anchors of the image, including background and those between
};

// Intermediate results, for tests and images.
struct DetectorTrace {
  std::vector<torch::Tensor> objectness, deltas;          // per level, [batch, rows, columns, …]
  std::vector<torch::Tensor> proposals, proposal_logits;  // per image
  std::vector<std::vector<int64_t>> positive_anchors, negative_anchors;
  struct Stage {
    std::vector<torch::Tensor> boxes, labels,
        matched;                     // per image: boxes, class (background: classes), truth
    std::vector<int64_t> positives;  // per image: number of positive boxes, which come first unless sorted
    torch::Tensor logits, deltas;
  };
  std::vector<Stage> stages;
  torch::Tensor mask_logits;
};

class Detector final : public torch::nn::Module {
 public:
  // Has the modules neck, rpn, roi_heads.
  Detector(const DetectorOptions& options, std::shared_ptr<PyramidNeck> neck);
  void initialise(uint64_t seed);

  // Maps the backbone's maps [batch, channels, rows, columns] to the pyramid, channels last.
  std::vector<torch::Tensor> pyramid(const std::vector<torch::Tensor>& maps);
  // `images` are the sizes of the images within the batch, which is padded to `padded`.
  NamedLosses losses(const std::vector<torch::Tensor>& pyramid, Extent padded,
                     const std::vector<Extent>& images, const std::vector<DetectionTarget>& targets,
                     const Chooser& choose, DetectorTrace* trace = nullptr);
  std::vector<Detections> detect(const std::vector<torch::Tensor>& pyramid, Extent padded,
                                 const std::vector<Extent>& images, DetectorTrace* trace = nullptr);

  // Returns the anchors trained to find objects, for an image in a batch padded to `padded`; `truths` [k, 4].
  AnchorMatches match_anchors(Extent padded, Extent image, const torch::Tensor& truths) const;

  // Adds masks to given boxes, one entry per image of the pyramid; needs a mask head.
  void add_masks(const std::vector<torch::Tensor>& pyramid, std::vector<Detections>& found);

  const DetectorOptions& options() const { return options_; }
  // Sets the options that may change at detection.
  void set_limits(double score, int64_t most) { options_.box.score = score, options_.box.most = most; }
  int64_t macs(Extent image) const;  // per image, with the number of proposals of detection
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

// Returns the detections with their boxes scaled by these factors, to the image before resizing. `clip`
// (detectron2): boxes are clipped to that image, and dropped if they have no area.
Detections rescaled(const Detections& found, double across, double down,
                    std::optional<Extent> clip = std::nullopt);

// Returns the target of the mask head for each box: RoIAlign of its ground truth's mask. `masks` [n, height,
// width] uint8, `boxes` [k, 4], `matched` [k] -> [k, side, side] float; thresholded at a half if `binary`.
torch::Tensor mask_targets(const torch::Tensor& masks, const torch::Tensor& boxes,
                           const std::vector<int64_t>& matched, int64_t side, bool aligned, bool binary,
                           torch::ScalarType type);
// Returns the mean binary cross-entropy over the pixels of the class's own channel: logits [k, channels,
// side, side].
torch::Tensor mask_loss(const torch::Tensor& logits, const torch::Tensor& channels,
                        const torch::Tensor& targets);
// Returns the levels of the pyramid for these boxes, counted from its first level.
std::vector<int64_t> pooled_levels(const torch::Tensor& boxes, const LevelRule& rule, int64_t first_level,
                                   int64_t count);
// Pools boxes [n, 5] (image first) by RoIAlign on the maps of their levels, channels last: [n, channels,
// side, side].
torch::Tensor pool_boxes(const std::vector<torch::Tensor>& maps, const std::vector<int64_t>& strides,
                         const torch::Tensor& boxes, const std::vector<int64_t>& levels,
                         ops::RoiAlignOptions options);

}  // namespace tessera::models
