// Detectors of torchvision, detectron2 and mmdet, without the backbone.
//
// Our names omit the index of a single head or convolution ({0}).
#include "weights/names/tables.h"

namespace tessera::train {
namespace {

// A convolution and its norm.
NameRows with_norm(const std::string& conv, const std::string& norm, const std::string& ours) {
  return {{conv + ".*", ours + ".*"}, {norm + ".*", ours + ".norm.*"}};
}
// The same for modules that contain both as `0` and `1`, or as `conv` and `bn`.
NameRows sequence(const std::string& theirs, const std::string& ours) {
  return with_norm(theirs + ".0", theirs + ".1", ours);
}
NameRows conv_module(const std::string& theirs, const std::string& ours) {
  return with_norm(theirs + ".conv", theirs + ".bn", ours);
}
NameRows conv_layer(const std::string& theirs, const std::string& ours) {
  return with_norm(theirs, theirs + ".norm", ours);
}

// PyTorch's batch norms count batches.
const NameRows kDetectorCounts = {{"**.num_batches_tracked", ""}};

const std::string kBox = "roi_heads.box_head.", kScores = "roi_heads.box_predictor.",
                  kMask = "roi_heads.mask_head.";

NameRows detector_torchvision() {
  const std::string neck = "backbone.fpn.";
  return joined({kDetectorCounts,
                 sequence(neck + "inner_blocks.{}", "neck.lateral.{}"),
                 sequence(neck + "layer_blocks.{}", "neck.output.{}"),
                 older({{neck + "inner_blocks.{}.*", "neck.lateral.{}.*"},
                        {neck + "layer_blocks.{}.*", "neck.output.{}.*"},
                        {"rpn.head.conv.*", "rpn.conv.0.*"}}),
                 {{neck + "extra_blocks.**", "neck.**", {}, "", true}},
                 sequence("rpn.head.conv.{}", "rpn.conv.{}"),
                 {{"rpn.head.cls_logits.*", "rpn.objectness.*"},
                  {"rpn.head.bbox_pred.*", "rpn.deltas.*"},
                  {"roi_heads.box_head.fc6.*", kBox + "{0}.fc.0.*"},
                  {"roi_heads.box_head.fc7.*", kBox + "{0}.fc.1.*"},
                  {"roi_heads.box_predictor.cls_score.*", kScores + "{0}.cls_score.*"},
                  {"roi_heads.box_predictor.bbox_pred.*", kScores + "{0}.bbox_pred.*"},
                  {"roi_heads.mask_predictor.conv5_mask.*", kMask + "{0}.deconv.*"},
                  {"roi_heads.mask_predictor.mask_fcn_logits.*", kMask + "{0}.predictor.*"}},
                 sequence("roi_heads.mask_head.{}", kMask + "{0}.conv.{}"),
                 older({{"roi_heads.mask_head.mask_fcn{+1}.*", kMask + "0.conv.{}.*"}}),
                 {{"backbone.body.**", "**"}}});
}

// Older files contain values that can be computed: anchors and pixel means.
NameRows detector_detectron2() {
  NameRows rows = joined({kDetectorCounts,
                          {{"**.cell_anchors.**", ""}, {"pixel_mean", ""}, {"pixel_std", ""}},
                          conv_layer("backbone.fpn_lateral{+2}", "neck.lateral.{}"),
                          conv_layer("backbone.fpn_output{+2}", "neck.output.{}"),
                          {{"backbone.simfp_**", "neck.simfp_**"}}});
  const std::string rpn = "proposal_generator.rpn_head.";
  rows = joined(
      {rows,
       conv_layer(rpn + "conv", "rpn.conv.{0}"),
       conv_layer(rpn + "conv.conv{}", "rpn.conv.{}"),
       {{rpn + "objectness_logits.*", "rpn.objectness.*"}, {rpn + "anchor_deltas.*", "rpn.deltas.*"}}});
  for (const std::string stage : {"", "{}."}) {
    const std::string ours = stage.empty() ? "{0}." : stage, head = "roi_heads.box_head." + stage,
                      scores = "roi_heads.box_predictor." + stage;
    rows = joined({rows,
                   conv_layer(head + "fc{+1}", kBox + ours + "fc.{}"),
                   conv_layer(head + "conv{+1}", kBox + ours + "conv.{}"),
                   {{scores + "cls_score.*", kScores + ours + "cls_score.*"},
                    {scores + "bbox_pred.*", kScores + ours + "bbox_pred.*"}}});
  }
  return joined({rows,
                 conv_layer("roi_heads.mask_head.mask_fcn{+1}", kMask + "{0}.conv.{}"),
                 {{"roi_heads.mask_head.deconv.*", kMask + "{0}.deconv.*"},
                  {"roi_heads.mask_head.predictor.*", kMask + "{0}.predictor.*"}}});
}

NameRows detector_mmdet() {
  NameRows rows =
      joined({kDetectorCounts,
              conv_module("neck.lateral_convs.{}", "neck.lateral.{}"),
              conv_module("neck.fpn_convs.{}", "neck.output.{}"),
              conv_layer("rpn_head.rpn_conv", "rpn.conv.{0}"),
              conv_module("rpn_head.rpn_conv.{}", "rpn.conv.{}"),
              {{"rpn_head.rpn_cls.*", "rpn.objectness.*"}, {"rpn_head.rpn_reg.*", "rpn.deltas.*"}}});
  for (const std::string stage : {"", "{}."}) {
    const std::string ours = stage.empty() ? "{0}." : stage, head = "roi_head.bbox_head." + stage,
                      mask = "roi_head.mask_head." + stage;
    rows = joined({rows,
                   conv_module(head + "shared_convs.{}", kBox + ours + "conv.{}"),
                   {{head + "shared_fcs.{}.*", kBox + ours + "fc.{}.*"},
                    {head + "fc_cls.*", kScores + ours + "cls_score.*"},
                    {head + "fc_reg.*", kScores + ours + "bbox_pred.*"}},
                   conv_module(mask + "convs.{}", kMask + ours + "conv.{}"),
                   {{mask + "upsample.*", kMask + ours + "deconv.*"},
                    {mask + "conv_logits.*", kMask + ours + "predictor.*"}}});
  }
  return rows;
}

}  // namespace

std::vector<NameTable> detector_names() {
  return {{"torchvision", "detect", detector_torchvision(), "rpn.**"},
          {"detectron2", "detect", detector_detectron2(), "proposal_generator.**"},
          {"mmdet", "detect", detector_mmdet(), "rpn_head.**"},
          {"detectron2", "vitdet", {{"backbone.net.**", "**"}}}};
}

}  // namespace tessera::train
