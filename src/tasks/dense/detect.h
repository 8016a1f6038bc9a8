// Object detection and instance segmentation: Faster and Mask R-CNN (He et al. 2017), Cascade R-CNN (Cai &
// Vasconcelos 2018) and ViTDet (Li et al. 2022) on any backbone. Backbones with stages get a feature pyramid
// (Lin et al. 2017), others the simple pyramid of ViTDet. models/detection/detector.h has the arithmetic.
//
//   loss = objectness + anchors' boxes + classes + boxes [of every stage] + masks
//
// A sample is an image. The normalisers of the published losses are counted over the samples that a process
// computes at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "models/detection/detector.h"
#include "tasks/base/inputs.h"
#include "tasks/base/registry.h"

namespace tessera::tasks {

enum class DetectorNeck { automatic, fpn, simple };

struct DetectConfig {
  models::DetectorCode code = models::DetectorCode::detectron2;
  bool cascade = false, masks = true;
  DetectorNeck neck = DetectorNeck::automatic;
  int64_t width = 256, rpn_convs = 1, box_convs = 0, box_fcs = 2, box_width = 1024, mask_convs = 4,
          mask_width = 256;
  models::ConvNormKind norm = models::ConvNormKind::none;
  std::vector<double> anchor_sizes = {32, 64, 128, 256, 512};
  std::vector<double> ratios = {0.5, 1, 2};
  double level_side = 0;
  int64_t rpn_batch = 256, box_batch = 512, proposals = 1000;
  std::vector<int64_t> shortest = {};
  int64_t longest = 0;
  std::vector<double> jitter = {};
  double flip = 0.5;
  double score = 0.05, nms = 0.5;
  int64_t most = 100;
  std::vector<double> test_scales = {1.0};
  bool test_flip = false;
  template <class V>
  void visit(V& v);
  void check() const;
};

TaskKind detect_kind();

}  // namespace tessera::tasks

template <>
struct tessera::EnumNames<tessera::tasks::DetectorNeck> {
  static constexpr std::array names = {"auto", "fpn", "simple"};
};
template <>
struct tessera::EnumNames<tessera::models::DetectorCode> {
  static constexpr std::array names = {"torchvision", "detectron2", "mmdet"};
};
template <>
struct tessera::EnumNames<tessera::models::ConvNormKind> {
  static constexpr std::array names = {"none", "layer", "batch"};
};

namespace tessera::tasks {

template <class V>
void DetectConfig::visit(V& v) {
  v("code", code, choice<models::DetectorCode>(), "published code to follow in anchors, matching and losses");
  v("cascade", cascade, "three box heads, each on the boxes of the one before (Cascade R-CNN)");
  v("masks", masks, "a mask head; without it only boxes are learned");
  v("neck", neck, choice<DetectorNeck>(),
    "builds the pyramid: fpn from the backbone's stages, simple from one map");
  v("width", width, between(1, 4096), "channels of the pyramid");
  v("rpn_convs", rpn_convs, between(1, 8), "convolutions before the proposals");
  v("box_convs", box_convs, between(0, 16), "convolutions of a box head");
  v("box_fcs", box_fcs, between(1, 8), "linear layers of a box head");
  v("box_width", box_width, between(1, 65536), "their width");
  v("mask_convs", mask_convs, between(0, 16), "convolutions of the mask head");
  v("mask_width", mask_width, between(1, 4096), "their channels");
  v("norm", norm, choice<models::ConvNormKind>(),
    "after the convolutions of box and mask heads (and of fpn)");
  v("anchor_sizes", anchor_sizes,
    "sides of anchors in pixels, one for each map of the pyramid, the coarsest included");
  v("ratios", ratios, "heights over widths of anchors");
  v("level_side", level_side, from_to_below(0, 1e6),
    "side of a box that is pooled from the published level, 0 = as published (224; mmdet 56 from the "
    "finest)");
  v("rpn_batch", rpn_batch, between(1, 65536), "anchors of an image that are trained on");
  v("box_batch", box_batch, between(1, 65536), "proposals of an image that are trained on");
  v("proposals", proposals, between(1, 65536), "proposals of an image");
  v("shortest", shortest,
    "short sides that an image is resized to, one is drawn, the last at test time; empty: it fits "
    "preprocess.size");
  v("longest", longest, between(0, 65536), "the long side is at most this, 0 = preprocess.size");
  v("jitter", jitter, "large-scale jitter: lowest and highest factor, empty = none");
  v("flip", flip, Range{.low = 0, .high = 1}, "probability of a horizontal flip");
  v("score", score, Range{.low = 0, .high = 1}, "detections below it are left out");
  v("nms", nms, Range{.low = 0, .high = 1}, "of boxes of a class that overlap by more the best stays");
  v("most", most, between(1, 10000), "detections of an image, at most");
  v("test_scales", test_scales, above_to(0, 16),
    "factors on the usual size, one view for each; their detections are merged");
  v("test_flip", test_flip, "each of them mirrored too");
}

// Implemented by tasks that train on anchors: returns the assignment of anchors to objects.

class AnchorMatching {
 public:
  static constexpr const char* kAbility = "anchors: task detect";
  virtual ~AnchorMatching() = default;
  // For each image of a training batch of the first stream; truths are the rows of its field "boxes".
  virtual std::vector<models::AnchorMatches> match_anchors(const Inputs& inputs) const = 0;
};

}  // namespace tessera::tasks
