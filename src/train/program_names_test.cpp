#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "core/value.h"
#include "models/base/model.h"
#include "open/open_task.h"
#include "tasks/base/registry.h"
#include "train/setup.h"
#include "weights/name_tables.h"
#include "weights/stored_tensors.h"

namespace tessera::train {
namespace {

// A recipe's weights: their tensors, without memory, and their metadata.
struct Weights {
  NamedTensors tensors;
  WeightsInfo info;
  NamedModel named() const {
    const Value* code = info.task.find("code");
    return {tasks::task_name(info.task), code && code->is_string() ? code->as_string() : "", info.model};
  }
};
Weights weights_of(const std::string& recipe, const std::vector<std::string>& settings) {
  Weights out;
  Recipe read = load_recipe(std::string(TESSERA_TEST_DATA) + "/../../recipes/" + recipe, settings);
  out.info = describe_run(read, {});
  Value::Array names{"a", "b", "c"};
  out.info.task_metadata.set("class_names", names);
  out.tensors = tasks::named_state(meta_task(out.info)->parts());
  return out;
}

std::vector<std::string> names_in(const Weights& weights, const std::string& program) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : as_program(weights.tensors, program, weights.named()))
    names.push_back(name);
  return names;
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// as_program itself compares every tensor it reads back with the written one.
TEST(ProgramNames, DetectorsHaveThoseOfTheCodeThatTheyFollow) {
  const std::string recipe = "mask_rcnn/shapes.toml";
  const auto torchvision = names_in(weights_of(recipe, {"task.code=torchvision"}), "torchvision");
  EXPECT_TRUE(has(torchvision, "backbone.body.layer1.0.bn1.running_mean"));
  EXPECT_TRUE(has(torchvision, "backbone.fpn.inner_blocks.3.0.weight"));
  EXPECT_TRUE(has(torchvision, "rpn.head.conv.0.0.bias"));
  EXPECT_TRUE(has(torchvision, "roi_heads.box_head.fc7.weight"));
  EXPECT_TRUE(has(torchvision, "roi_heads.box_predictor.cls_score.weight"));
  EXPECT_TRUE(has(torchvision, "roi_heads.mask_head.1.0.weight"));
  EXPECT_TRUE(has(torchvision, "roi_heads.mask_predictor.mask_fcn_logits.bias"));
  const auto detectron2 = names_in(weights_of(recipe, {}), "detectron2");
  EXPECT_TRUE(has(detectron2, "backbone.bottom_up.res3.0.shortcut.norm.weight"));
  EXPECT_TRUE(has(detectron2, "backbone.bottom_up.stem.conv1.norm.running_var"));
  EXPECT_TRUE(has(detectron2, "backbone.fpn_output5.bias"));
  EXPECT_TRUE(has(detectron2, "proposal_generator.rpn_head.conv.weight"));
  EXPECT_TRUE(has(detectron2, "roi_heads.mask_head.mask_fcn1.weight"));
  const auto mmdet = names_in(weights_of(recipe, {"task.code=mmdet"}), "mmdet");
  EXPECT_TRUE(has(mmdet, "backbone.layer4.1.conv2.weight"));
  EXPECT_TRUE(has(mmdet, "neck.lateral_convs.0.conv.weight"));
  EXPECT_TRUE(has(mmdet, "rpn_head.rpn_reg.bias"));
  EXPECT_TRUE(has(mmdet, "roi_head.bbox_head.shared_fcs.1.weight"));
  EXPECT_TRUE(has(mmdet, "roi_head.bbox_head.fc_cls.weight"));
  EXPECT_TRUE(has(mmdet, "roi_head.mask_head.conv_logits.bias"));
  EXPECT_THROW(as_program({}, "mmdet", weights_of(recipe, {}).named()), Error);
}

TEST(ProgramNames, CascadesAndViTDetAreDetectron2s) {
  const auto cascade = names_in(weights_of("vitdet/shapes_cascade.toml", {}), "detectron2");
  EXPECT_TRUE(has(cascade, "roi_heads.box_predictor.2.bbox_pred.weight"));
  EXPECT_TRUE(has(cascade, "backbone.simfp_2.0.weight"));
  const auto mmdet =
      names_in(weights_of("mask_rcnn/shapes.toml", {"task.code=mmdet", "task.cascade=true"}), "mmdet");
  EXPECT_TRUE(has(mmdet, "roi_head.bbox_head.2.shared_fcs.0.weight"));
}

TEST(ProgramNames, SegmentersHaveThoseOfMmseg) {
  const std::string recipe = "upernet/swin_tiny.toml";
  const auto mmseg = names_in(weights_of(recipe, {"model.form=mmseg"}), "mmseg");
  EXPECT_TRUE(has(mmseg, "backbone.stages.1.blocks.1.attn.w_msa.qkv.weight"));
  EXPECT_TRUE(has(mmseg, "backbone.stages.0.downsample.reduction.weight"));
  EXPECT_TRUE(has(mmseg, "decode_head.conv_seg.bias"));
  const auto hub = names_in(weights_of(recipe, {"model.form=original"}), "transformers");
  EXPECT_TRUE(has(hub, "backbone.encoder.layers.0.blocks.1.attention.self.value.bias"));
  EXPECT_TRUE(has(hub, "backbone.hidden_states_norms.stage4.weight"));
  EXPECT_TRUE(has(hub, "decode_head.bottleneck.batch_norm.running_mean"));
  EXPECT_TRUE(has(names_in(weights_of("upernet/shapes.toml", {"model.stem=deep_max"}), "mmseg"),
                  "backbone.stem.7.weight"));
  EXPECT_FALSE(names_in(weights_of("upernet/camvid.toml", {}), "mmseg").empty());
  // The three codes differ in the order of merged cells, and in padding.
  EXPECT_THROW(names_in(weights_of(recipe, {"model.form=original"}), "mmseg"), Error);
  EXPECT_THROW(names_in(weights_of(recipe, {"model.form=timm"}), "transformers"), Error);
}

TEST(ProgramNames, DetrHasThoseOfTransformers) {
  const Weights weights = weights_of("detr/shapes.toml", {});
  const auto names = names_in(weights, "transformers");
  EXPECT_TRUE(has(names, "model.decoder.layers.0.encoder_attn.q_proj.weight"));
  EXPECT_TRUE(has(names, "model.encoder.layers.0.final_layer_norm.bias"));
  EXPECT_TRUE(has(names, "model.backbone.conv_encoder.model.layer1.0.conv1.weight"));
  EXPECT_THROW(names_in(weights, "mmdet"), Error);
}

TEST(ProgramNames, ClassifiersHaveThoseOfTheirFamily) {
  const auto torchvision = names_in(weights_of("baselines/deit3_base_192.toml", {}), "torchvision");
  EXPECT_TRUE(has(torchvision, "encoder.layers.encoder_layer_0.self_attention.in_proj_weight"));
  EXPECT_TRUE(has(torchvision, "heads.head.weight"));
}

}  // namespace
}  // namespace tessera::train
