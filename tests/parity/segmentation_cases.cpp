// components/seg_*: UperNet's heads, necks for plain backbones, whole segmenters.

#include <numeric>

#include "core/error.h"
#include "core/text.h"
#include "models/heads/feature_pyramid.h"
#include "models/heads/segmentation_heads.h"
#include "tasks/dense/pixel_scores.h"
#include "tests/parity/dense_case.h"
#include "weights/name_tables.h"

namespace tessera::parity::segmentation_cases {
namespace {

using Json = nlohmann::json;
using models::FcnHead;
using models::UperHead;

constexpr int64_t kIgnored = 255;

std::string same(const std::string& name) {
  return name.ends_with("num_batches_tracked") ? std::string() : name;
}

std::vector<torch::Tensor> inputs_of(DenseCase& dense) {
  std::vector<torch::Tensor> maps;
  while (dense.has_input(text("feat.", maps.size()))) maps.push_back(dense.input(text("feat.", maps.size())));
  return maps;
}

// transformers' names of the heads as mmseg's.
std::string head_name(std::string name) {
  if (const size_t at = name.find(".batch_norm."); at != std::string::npos) name.replace(at, 12, ".bn.");
  if (const size_t at = name.find(".classifier."); at != std::string::npos)
    name.replace(at, 12, ".conv_seg.");
  return same(name);
}

models::FcnHeadOptions auxiliary_options(const Json& aux, const std::vector<int64_t>& in, int64_t classes,
                                         const nn::BatchNorm2dOptions& norm = {}) {
  int64_t index = aux.value("in_index", int64_t{2});
  if (index < 0) index += std::ssize(in);
  return {.in = in.at(static_cast<size_t>(index)),
          .channels = aux.at("channels"),
          .classes = classes,
          .index = index,
          .convolutions = aux.value("num_convs", int64_t{1}),
          .kernel = aux.value("kernel_size", int64_t{3}),
          .dilation = aux.value("dilation", int64_t{1}),
          .concat_input = aux.value("concat_input", false),
          .dropout = 0,
          .norm = norm};
}

nn::BatchNorm2dOptions norm_of(const Json& config) {
  const nn::BatchNorm2dOptions usual;
  return {.eps = config.value("bn_eps", usual.eps), .momentum = config.value("bn_momentum", usual.momentum)};
}

struct Losses {
  torch::Tensor loss, accuracy;
};

// A head's loss by mmseg's rules: over all pixels, over those that are labelled, or over the sum of their weights.
Losses losses_of(const torch::Tensor& small, const torch::Tensor& labels, const Json& options,
                 int64_t ignored, bool align_corners) {
  const torch::Tensor scores = tasks::resize_scores(small, labels.size(1), labels.size(2), align_corners);
  torch::Tensor weights;
  if (const auto given = options.find("class_weight"); given != options.end() && given->is_array())
    weights = torch::tensor(given->get<std::vector<double>>(), scores.options().requires_grad(false));
  const torch::Tensor each = tasks::pixel_cross_entropy(scores, labels, ignored, weights);
  const tasks::PixelCounts counts = tasks::count_right_pixels(scores, labels, ignored);
  torch::Tensor divisor =
      torch::tensor(static_cast<double>(labels.numel()), each.options().requires_grad(false));
  if (weights.defined())
    divisor = weights.index_select(0, labels.flatten().masked_select(labels.flatten() != ignored)).sum();
  else if (options.value("avg_non_ignore", false))
    divisor = counts.labelled.to(each.options().requires_grad(false));
  return {each.sum() / divisor, counts.right.to(torch::kFloat64) * 100 / counts.labelled};
}

void check_head_case(const Golden& golden, const std::string& prefix, torch::ScalarType dtype, bool gathered,
                     Comparison& comparison) {
  const Json& config = golden.config();
  const std::string name = prefix.substr(0, prefix.find('/'));
  const auto in = config.at("in_channels").get<std::vector<int64_t>>();
  const int64_t classes = config.at("num_classes");
  const auto head = std::make_shared<UperHead>(
      models::UperHeadOptions{.in = in,
                              .channels = config.at("channels"),
                              .classes = classes,
                              .pool_sides = config.at("pool_scales").get<std::vector<int64_t>>(),
                              .dropout = 0,
                              .align_corners = config.value("align_corners", false),
                              .norm = norm_of(config)});
  const auto auxiliary =
      std::make_shared<FcnHead>(auxiliary_options(config.at("aux"), in, classes, norm_of(config)));
  DenseCase dense(golden, prefix, {"eval/", "train/"}, dtype);
  dense.add("decode_head.", head);
  dense.add("auxiliary_head.", auxiliary);
  dense.load(same);
  const bool training = name.starts_with("train");
  head->train(training), auxiliary->train(training);
  const models::GatherRows gather =
      gathered ? [](const torch::Tensor& rows) { return rows; } : models::GatherRows();
  const std::vector<torch::Tensor> maps = inputs_of(dense);
  NamedOutputs outputs{
      {"logits", static_cast<models::SegmentationHead&>(*head).forward(maps, {}, gather)},
      {"aux_logits", static_cast<models::SegmentationHead&>(*auxiliary).forward(maps, {}, gather)}};
  torch::Tensor loss;
  if (training) {
    const Json options = config.value(name, Json::object());
    const int64_t ignored = config.value("ignore_index", kIgnored);
    const torch::Tensor labels = dense.input("label");
    const bool align = config.value("align_corners", false);
    const Losses main = losses_of(outputs["logits"], labels, options, ignored, align),
                 aux = losses_of(outputs["aux_logits"], labels, options, ignored, align);
    const torch::Tensor weighted = aux.loss * config.at("aux").value("loss_weight", 0.4);
    loss = main.loss + weighted;
    outputs.insert({{"decode.loss_ce", main.loss},
                    {"decode.acc_seg", main.accuracy},
                    {"aux.loss_ce", weighted},
                    {"aux.acc_seg", aux.accuracy},
                    {"loss", loss}});
    for (const std::string& key : golden.names(prefix + "output.after."))
      outputs["after." + key] = dense.buffer(key);
  }
  dense.compare_outputs(comparison, outputs);
  dense.compare_gradients(comparison, outputs, loss);
}

// The factors of a neck in the order of its maps.
std::vector<double> factors_of(const Json& config) {
  return config.at("rescales").get<std::vector<double>>();
}

// Our settings for the Swin of either program.
models::ModelSpec segmenter_trunk(const Json& config, const char* form) {
  const int64_t width = config.contains("embed_dims") ? config.at("embed_dims") : config.at("embed_dim");
  Value::Array dims;
  for (size_t stage = 0; stage < config.at("depths").size(); ++stage) dims.emplace_back(width << stage);
  Value settings;
  settings.set("dims", dims);
  settings.set("depths", to_value(config.at("depths")));
  settings.set("heads", to_value(config.at("num_heads")));
  settings.set("window_size", to_value(config.at("window_size")));
  settings.set("mlp_ratio", config.at("mlp_ratio").get<double>());
  if (config.contains("qkv_bias")) settings.set("qkv_bias", config.at("qkv_bias").get<bool>());
  settings.set("patch_norm", config.value("patch_norm", true));
  settings.set("block_norm_eps", config.value("layer_norm_eps", 1e-5));
  if (config.contains("patch_size")) settings.set("patch_size", to_value(config.at("patch_size")));
  settings.set("image_size", to_value(config.at("input")));
  settings.set("form", form);
  settings.set("stage_norms", true);
  settings.set("classes", 0);
  return models::resolve_model("swin", settings);
}

// The auxiliary head as the golden's tensors tell it; null where it has none (transformers may leave it out).
std::shared_ptr<FcnHead> stored_auxiliary(const Golden& golden, const std::vector<int64_t>& dims,
                                          int64_t classes) {
  Json aux = golden.config().value("aux", Json::object());
  const auto convolution = [](int64_t i) { return text("param.auxiliary_head.convs.", i, ".conv.weight"); };
  if (!golden.has(convolution(0))) return nullptr;
  aux["channels"] = golden.view(convolution(0)).shape.at(0);
  if (!aux.contains("num_convs")) {
    int64_t count = 1;
    while (golden.has(convolution(count))) ++count;
    aux["num_convs"] = count;
  }
  aux["concat_input"] = golden.has("param.auxiliary_head.conv_cat.conv.weight");
  return std::make_shared<FcnHead>(auxiliary_options(aux, dims, classes));
}

void check_segmenter_as(const Golden& golden, torch::ScalarType dtype, Comparison& comparison) {
  const Json& config = golden.config();
  const bool mmseg = golden.has("param.decode_head.conv_seg.weight");
  const models::ModelSpec spec = segmenter_trunk(config, mmseg ? "mmseg" : "original");
  const models::Family& family = models::find_family(spec.family);
  const auto backbone = models::build_backbone(spec, 0);
  const std::vector<int64_t> dims = [&] {
    std::vector<int64_t> widths;
    for (const Value& width : spec.settings.find("dims")->as_array()) widths.push_back(width.as_int());
    return widths;
  }();
  const int64_t classes = mmseg ? config.at("num_classes") : config.at("num_labels");
  const bool align = config.value("align_corners", false);
  const auto head = std::make_shared<UperHead>(
      models::UperHeadOptions{.in = dims,
                              .channels = mmseg ? config.at("channels") : config.at("hidden_size"),
                              .classes = classes,
                              .pool_sides = config.value("pool_scales", std::vector<int64_t>{1, 2, 3, 6}),
                              .dropout = 0,
                              .align_corners = align});
  const std::shared_ptr<FcnHead> auxiliary = stored_auxiliary(golden, dims, classes);
  DenseCase dense(golden, "", {}, dtype);
  dense.add("backbone.", backbone);
  dense.add("decode_head.", head);
  if (auxiliary) dense.add("auxiliary_head.", auxiliary);
  dense.load([&](const std::string& name) -> std::string {
    if (!name.starts_with("backbone.")) return head_name(name);
    const std::string ours = train::our_name(name.substr(9), family.name);
    return ours.empty() ? ours : "backbone." + ours;
  });
  for (const auto& module : std::vector<std::shared_ptr<torch::nn::Module>>{backbone, head, auxiliary})
    if (module) module->eval();
  const torch::Tensor images = dense.input("x");
  std::vector<int64_t> stages(dims.size());
  std::iota(stages.begin(), stages.end(), 0);
  const std::vector<torch::Tensor> maps = backbone->features(images, stages);
  const auto sized = [&](const torch::Tensor& scores) {
    return tasks::resize_scores(scores, images.size(2), images.size(3), align);
  };
  NamedOutputs outputs;
  for (size_t i = 0; i < maps.size(); ++i) outputs[text("feat", i)] = maps[i];
  outputs["logits_small"] = static_cast<models::SegmentationHead&>(*head).forward(maps);
  outputs["logits"] = sized(outputs["logits_small"]);
  torch::Tensor loss;
  if (golden.has("input.label")) {
    const torch::Tensor labels = dense.input("label");
    const Json honest = {{"avg_non_ignore", true}};
    const int64_t ignored = config.value("loss_ignore_index", config.value("ignore_index", kIgnored));
    loss = losses_of(outputs["logits"], labels, honest, ignored, align).loss;
    if (auxiliary)
      loss = loss + losses_of(static_cast<models::SegmentationHead&>(*auxiliary).forward(maps), labels,
                              honest, ignored, align)
                            .loss *
                        config.value("auxiliary_loss_weight", 0.4);
    outputs["loss"] = loss;
  }
  dense.compare_outputs(comparison, outputs);
  dense.compare_gradients(comparison, outputs, golden.names("loss_weight.").empty() ? loss : torch::Tensor());
}

CaseResult check_segmentation_head(const Golden& golden) {
  Comparison comparison;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32})
    for (const std::string& prefix : case_prefixes(golden)) {
      check_head_case(golden, prefix, dtype, /*gathered=*/false, comparison);
      if (prefix.starts_with("train")) check_head_case(golden, prefix, dtype, /*gathered=*/true, comparison);
    }
  return comparison.result();
}

CaseResult check_map_necks(const Golden& golden) {
  Comparison comparison;
  const Json& config = golden.config();
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32})
    for (const std::string& prefix : case_prefixes(golden)) {
      DenseCase dense(golden, prefix, {"feature2pyramid/"}, dtype);
      const std::vector<torch::Tensor> maps = inputs_of(dense);
      std::vector<int64_t> widths;
      for (const torch::Tensor& map : maps) widths.push_back(map.size(1));
      std::shared_ptr<models::MapNeck> neck;
      if (prefix.starts_with("feature2pyramid"))
        neck = std::make_shared<models::Feature2Pyramid>(widths.at(0), factors_of(config));
      else
        neck = std::make_shared<models::MultiLevelNeck>(
            widths, config.at("multilevelneck_out").get<int64_t>(), factors_of(config));
      dense.add("", neck);
      dense.load(same);
      neck->train(prefix.find("train") != std::string::npos);
      NamedOutputs outputs;
      const std::vector<torch::Tensor> made = neck->forward(maps);
      for (size_t i = 0; i < made.size(); ++i) outputs[text("p", i)] = made[i];
      dense.compare_outputs(comparison, outputs);
      dense.compare_gradients(comparison, outputs);
    }
  return comparison.result();
}

CaseResult check_segmenter(const Golden& golden) {
  Comparison comparison;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32})
    check_segmenter_as(golden, dtype, comparison);
  return comparison.result();
}

const Registered registered({
    {"segmentation_head", check_segmentation_head, {"components/seg_upernet_head"}},
    {"map_necks", check_map_necks, {"components/seg_feature_pyramid"}},
    {"segmenter", check_segmenter, {"components/seg_upernet"}},
});

}  // namespace
}  // namespace tessera::parity::segmentation_cases
