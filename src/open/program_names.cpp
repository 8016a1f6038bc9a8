#include "open/program_names.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "models/base/model.h"
#include "open/load.h"
#include "tasks/base/registry.h"
#include "weights/detr_names.h"

namespace tessera::train {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;

constexpr std::string_view kNorm = "norm.";

bool takes(std::string_view& name, std::string_view beginning) {
  if (!name.starts_with(beginning)) return false;
  name.remove_prefix(beginning.size());
  return true;
}

// "3.weight" -> 3, and "weight" is left.
int64_t taken_number(std::string_view& name) {
  const size_t dot = name.find('.');
  const auto number = parse_int(name.substr(0, dot));
  check(number && dot != std::string_view::npos, "'", name, "' must begin with a number and a dot");
  name.remove_prefix(dot + 1);
  return *number;
}

// Names what stands behind a convolution, its own numbers or those of its norm, by the words of a program that has both in a module.
std::string in_module(std::string_view rest, std::string_view conv, std::string_view norm) {
  return takes(rest, kNorm) ? text(norm, rest) : text(conv, rest);
}

// --- backbones

// "layer1.0.bn2.weight" as "res2.0.conv2.norm.weight".
std::string resnet_of_detectron2(std::string_view name) {
  std::string out = "stem.";
  if (takes(name, "layer")) {
    const int64_t stage = taken_number(name), block = taken_number(name);
    out = text("res", stage + 1, ".", block, ".");
  }
  if (takes(name, "downsample.0.")) return text(out, "shortcut.", name);
  if (takes(name, "downsample.1.")) return text(out, "shortcut.norm.", name);
  if (takes(name, "bn")) {
    const int64_t number = taken_number(name);
    return text(out, "conv", number, ".norm.", name);
  }
  return text(out, name);
}

// OpenMMLab's deep stem is one sequence: "bn2.weight" as "stem.4.weight".
std::string resnet_of_openmmlab(std::string_view name, bool deep_stem) {
  const std::string whole(name);
  for (const auto& [kind, place] : {std::pair{"conv", 0}, {"bn", 1}})
    if (deep_stem && takes(name, kind)) {
      const int64_t number = taken_number(name);
      return text("stem.", 3 * (number - 1) + place, ".", name);
    }
  return whole;
}

std::string with_part(std::string name, const std::vector<Pair>& pairs) {
  for (const auto& [ours, theirs] : pairs)
    if (const size_t at = name.find(ours); at != std::string::npos)
      return name.replace(at, ours.size(), theirs);
  return name;
}

// Swin: cells are merged at the end of the stage before.
std::string swin_of(std::string_view name, const std::string& program) {
  const bool openmmlab = program != "transformers";
  if (takes(name, "patch_embed.proj."))
    return text(openmmlab ? "patch_embed.projection." : "embeddings.patch_embeddings.projection.", name);
  if (takes(name, "patch_embed.norm."))
    return text(openmmlab ? "patch_embed.norm." : "embeddings.norm.", name);
  if (!openmmlab && name.starts_with("norm") && name.size() > 5 && name[5] == '.')
    return text("hidden_states_norms.stage", name[4] - '0' + 1, name.substr(5));
  if (!takes(name, "layers.")) return std::string(name);
  int64_t stage = taken_number(name);
  if (name.starts_with("downsample.")) --stage;
  static const std::vector<Pair> mm = {
      {".attn.", ".attn.w_msa."}, {".mlp.fc1.", ".ffn.layers.0.0."}, {".mlp.fc2.", ".ffn.layers.1."}};
  static const std::vector<Pair> hub = {
      {".norm1.", ".layernorm_before."},           {".norm2.", ".layernorm_after."},
      {".attn.proj.", ".attention.output.dense."}, {".attn.", ".attention.self."},
      {".mlp.fc1.", ".intermediate.dense."},       {".mlp.fc2.", ".output.dense."}};
  return with_part(text(openmmlab ? "stages." : "encoder.layers.", stage, ".", name), openmmlab ? mm : hub);
}

std::string backbone_name(const std::string& ours, const std::string& program,
                          const models::ModelSpec& model) {
  const Value* stem = model.settings.find("stem");
  const bool deep = stem && stem->is_string() && stem->as_string() != "conv7";
  const bool resnet = model.family == "resnet";
  if (program == "torchvision") return "backbone.body." + ours;
  if (program == "detectron2")
    return resnet ? "backbone.bottom_up." + resnet_of_detectron2(ours) : "backbone.net." + ours;
  if (model.family == "swin") return "backbone." + swin_of(ours, program);
  return "backbone." + (resnet ? resnet_of_openmmlab(ours, deep) : ours);
}

// --- detectors

// How many of what a detector has: a cascade's heads and the RPN's convolutions are counted in names where there are several.
struct Counted {
  bool box_heads = false, mask_heads = false, rpn_convs = false;
};

std::string neck_name(std::string_view rest, const std::string& program) {
  const bool lateral = takes(rest, "lateral.");
  if (!lateral && !takes(rest, "output.")) return text(program == "detectron2" ? "backbone." : "neck.", rest);
  const int64_t level = taken_number(rest);
  if (program == "torchvision")
    return text("backbone.fpn.", lateral ? "inner_blocks." : "layer_blocks.", level, ".",
                in_module(rest, "0.", "1."));
  if (program == "detectron2")
    return text("backbone.", lateral ? "fpn_lateral" : "fpn_output", level + 2, ".", rest);
  return text("neck.", lateral ? "lateral_convs." : "fpn_convs.", level, ".",
              in_module(rest, "conv.", "bn."));
}

std::string rpn_name_of(std::string_view rest, const std::string& program, const Counted& counted) {
  const bool torchvision = program == "torchvision", detectron2 = program == "detectron2";
  const std::string head = torchvision  ? "rpn.head."
                           : detectron2 ? "proposal_generator.rpn_head."
                                        : "rpn_head.";
  if (takes(rest, "objectness."))
    return text(head, torchvision ? "cls_logits." : detectron2 ? "objectness_logits." : "rpn_cls.", rest);
  if (takes(rest, "deltas."))
    return text(head, torchvision ? "bbox_pred." : detectron2 ? "anchor_deltas." : "rpn_reg.", rest);
  takes(rest, "conv.");
  const int64_t number = taken_number(rest);
  if (torchvision) return text(head, "conv.", number, ".", in_module(rest, "0.", "1."));
  if (detectron2) return text(head, counted.rpn_convs ? text("conv.conv", number, ".") : "conv.", rest);
  return text(head, counted.rpn_convs ? text("rpn_conv.", number, ".conv.") : "rpn_conv.", rest);
}

// Behind "roi_heads.box_head.": the stage, "fc" or "conv", its number.
std::string box_head_of(std::string_view rest, const std::string& program, const Counted& counted) {
  const std::string stage = text(taken_number(rest), ".");
  const bool conv = takes(rest, "conv.");
  if (!conv) takes(rest, "fc.");
  const int64_t number = taken_number(rest);
  if (program == "torchvision") return text("roi_heads.box_head.fc", 6 + number, ".", rest);
  if (program == "detectron2")
    return text("roi_heads.box_head.", counted.box_heads ? stage : "", conv ? "conv" : "fc", number + 1, ".",
                rest);
  return text("roi_head.bbox_head.", counted.box_heads ? stage : "", conv ? "shared_convs." : "shared_fcs.",
              number, ".", conv ? in_module(rest, "conv.", "bn.") : std::string(rest));
}

std::string box_predictor_of(std::string_view rest, const std::string& program, const Counted& counted) {
  const int64_t number = taken_number(rest);
  const std::string stage = counted.box_heads ? text(number, ".") : "";
  if (program != "mmdet") return text("roi_heads.box_predictor.", stage, rest);
  const bool scores = takes(rest, "cls_score.");
  if (!scores) takes(rest, "bbox_pred.");
  return text("roi_head.bbox_head.", stage, scores ? "fc_cls." : "fc_reg.", rest);
}

std::string mask_head_of(std::string_view rest, const std::string& program, const Counted& counted) {
  const std::string stage = text(taken_number(rest), ".");
  const bool torchvision = program == "torchvision", detectron2 = program == "detectron2";
  const std::string head =
      detectron2 ? "roi_heads.mask_head." : text("roi_head.mask_head.", counted.mask_heads ? stage : "");
  if (takes(rest, "deconv."))
    return torchvision ? text("roi_heads.mask_predictor.conv5_mask.", rest)
                       : text(head, detectron2 ? "deconv." : "upsample.", rest);
  if (takes(rest, "predictor."))
    return torchvision ? text("roi_heads.mask_predictor.mask_fcn_logits.", rest)
                       : text(head, detectron2 ? "predictor." : "conv_logits.", rest);
  takes(rest, "conv.");
  const int64_t number = taken_number(rest);
  if (torchvision) return text("roi_heads.mask_head.", number, ".", in_module(rest, "0.", "1."));
  if (detectron2) return text(head, "mask_fcn", number + 1, ".", rest);
  return text(head, "convs.", number, ".", in_module(rest, "conv.", "bn."));
}

std::string detector_name_of(const std::string& ours, const std::string& program, const Counted& counted,
                             const models::ModelSpec& model) {
  std::string_view rest = ours;
  if (takes(rest, "neck.")) return neck_name(rest, program);
  if (takes(rest, "rpn.")) return rpn_name_of(rest, program, counted);
  if (takes(rest, "roi_heads.box_head.")) return box_head_of(rest, program, counted);
  if (takes(rest, "roi_heads.box_predictor.")) return box_predictor_of(rest, program, counted);
  if (takes(rest, "roi_heads.mask_head.")) return mask_head_of(rest, program, counted);
  return backbone_name(ours, program, model);
}

Counted counted_in(const NamedTensors& tensors) {
  Counted counted;
  for (const auto& [name, tensor] : tensors) {
    counted.box_heads = counted.box_heads || name.starts_with("roi_heads.box_predictor.1.");
    counted.mask_heads = counted.mask_heads || name.starts_with("roi_heads.mask_head.1.");
    counted.rpn_convs = counted.rpn_convs || name.starts_with("rpn.conv.1.");
  }
  return counted;
}

// --- segmenters

std::string segmenter_name_of(const std::string& ours, const std::string& program,
                              const models::ModelSpec& model) {
  const bool head = ours.starts_with("decode_head.") || ours.starts_with("auxiliary_head.");
  if (head && program == "transformers")
    return with_part(ours, {{".bn.", ".batch_norm."}, {".conv_seg.", ".classifier."}});
  return head || ours.starts_with("neck.") ? ours : backbone_name(ours, program, model);
}

// --- all

using Naming = std::function<std::string(const std::string&)>;

// Every tensor under its new name, which load.h must read as the old one.
NamedTensors renamed_to(const NamedTensors& ours, const Naming& naming, const std::string& program,
                        const models::ModelSpec& model) {
  NamedTensors out;
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : ours) {
    out.emplace_back(naming(name), tensor);
    views.push_back({out.back().first, DType::f32, tensor.sizes().vec(), {}});
  }
  const std::vector<std::string> read = our_names(views, models::find_family(model.family));
  for (size_t i = 0; i < ours.size(); ++i)
    check(read[i] == ours[i].first, "'", ours[i].first, "' of ", model.name, " has no name in ", program);
  return out;
}

// A backbone's weights compute in a program what they do here only where it follows that program's code.
void check_backbone(const models::ModelSpec& model, const std::string& program) {
  const Value *form = model.settings.find("form"), *first = model.settings.find("stride_first");
  if (model.family == "swin" && program != "detectron2") {
    const std::string is = form && form->is_string() ? form->as_string() : "timm",
                      must = program == "transformers" ? "original" : "mmseg";
    if (is != must)
      fail_usage("model.form is '", is, "', whose weights compute something else in ", program, ", must be '",
                 must, "'");
  }
  if (program == "torchvision" && first && first->is_bool() && first->as_bool())
    fail_usage("model.stride_first is true, torchvision's ResNet halves the grid in its 3x3 convolutions");
}

// Lists the programs that weights of a task may be written for.
std::vector<std::string> programs_of(const WeightsInfo& info) {
  const std::string task = tasks::task_name(info.task);
  if (task == "detr") return {"detr", "transformers"};
  if (task == "segment" && info.model.family == "swin") return {"mmseg", "transformers"};
  if (task == "segment") return {"mmseg"};
  if (task != "detect") return {};
  const Value* code = info.task.find("code");
  return {code && code->is_string() ? code->as_string() : "detectron2"};
}

}  // namespace

const std::vector<std::string>& named_programs() {
  static const std::vector<std::string> all = {"torchvision", "detectron2", "mmdet",
                                               "detr",        "mmseg",      "transformers"};
  return all;
}

NamedTensors as_program(const NamedTensors& ours, const std::string& program, const WeightsInfo& info) {
  const std::vector<std::string> possible = programs_of(info);
  if (std::find(possible.begin(), possible.end(), program) == possible.end())
    fail_usage("weights of task ", tasks::task_name(info.task), " of this recipe have no form of ", program,
               possible.empty() ? "" : ", must be " + join(possible, " or "));
  const models::ModelSpec& model = info.model;
  check_backbone(model, program);
  if (program == "detr") return ours;
  if (tasks::task_name(info.task) == "detr") return transformers_of_detr(ours);
  const Counted counted = counted_in(ours);
  const Naming naming = [&](const std::string& name) {
    return tasks::task_name(info.task) == "segment" ? segmenter_name_of(name, program, model)
                                                    : detector_name_of(name, program, counted, model);
  };
  NamedTensors named = renamed_to(ours, naming, program, model);
  if (program != "transformers") return named;
  return split_projections(named, ".attention.self.qkv.",
                           {".attention.self.query.", ".attention.self.key.", ".attention.self.value."});
}

}  // namespace tessera::train
