// models/pyramid_*, components/model_twins_svt: pyramid VisionLLaMA and Twins-SVT.
#include <numeric>

#include "tests/parity/config_reader.h"
#include "tests/parity/model_case.h"

namespace tessera::parity {
namespace {

using Json = nlohmann::json;

// Settings that both published classes name alike.
Value stage_settings(ConfigReader& config) {
  static const std::map<std::string, std::string> names = {
      {"in_chans", "in_channels"}, {"img_size", "image_size"}, {"patch_size", "patch_size"},
      {"num_classes", "classes"},  {"embed_dims", "dims"},     {"depths", "depths"},
      {"num_heads", "heads"},      {"qkv_bias", "qkv_bias"}};
  Value settings;
  for (const auto& [key, ours] : names)
    if (config.has(key)) settings.set(ours, to_value(config.at(key)));
  // The classes read as many entries as there are stages, whose number `depths` tells.
  const size_t stages = config.has("depths") ? config.at("depths").size() : 4;
  const auto of_stages = [&](const char* key, const Json& otherwise, const char* ours) {
    Value::Array entries;
    const Json list = config.value(key, otherwise);
    for (size_t stage = 0; stage < stages; ++stage) {
      // A window of one cell is their sign for global attention in all blocks.
      const bool global = std::string(ours) == "windows" && list.at(stage) == 1;
      entries.push_back(global ? Value(0) : to_value(list.at(stage)));
    }
    settings.set(ours, entries);
  };
  of_stages("wss", Json::array({7, 7, 7, 7}), "windows");
  of_stages("sr_ratios", Json::array({8, 4, 2, 1}), "sub_sampling");
  return settings;
}

}  // namespace

models::ModelSpec pyramid_spec(const Json& table) {
  ConfigReader config(table, "pyramid");
  Value settings = stage_settings(config);
  settings.set("auto_scale", config.value("auto_scale", false));
  settings.set("rope_ratio", config.value("rpe_ratio", 1.0));
  // A factor of the base for the queries, or true for 1; positions are not scaled then.
  if (config.has("use_ntk") && config.at("use_ntk") != false) {
    if (config.at("use_ntk").is_number()) settings.set("rope_ntk", config.at("use_ntk").get<double>());
    settings.set("auto_scale", false);
  }
  if (config.value("norm_layer", "LN") == "RMS") settings.set("norm", "rms");
  if (config.value("blk_cls", "GroupBlock") == "GroupBlockWoLS") settings.set("init_values", 0.0);
  config.expect("mlp_ratio", 4);
  config.expect("use_cls_token", false);
  // Arguments of a base class, the size of the input, and what evaluation does not see.
  config.pass_over({"embed_dim", "depth", "input_hw", "share_rpe", "use_abs", "lr_pe", "rpe_flags", "scale",
                    "drop_rate", "attn_drop_rate", "drop_path_rate", "stochastic_depth_decay",
                    "skip_first_dp"});
  const bool segmentation = !config.has("num_classes"), norms = config.value("norm_after_stage", true);
  config.finish();
  if (segmentation) {  // the segmentation backbone
    settings.set("stage_norms", norms);
    settings.set("final_norm", false);
    settings.set("classes", 0);
  }
  return models::resolve_model("visionllama_pyramid", settings);
}

models::ModelSpec twins_spec(const Json& table) {
  ConfigReader config(table, "twins");
  Value settings = stage_settings(config);
  if (config.has("mlp_ratios")) settings.set("mlp_ratios", to_value(config.at("mlp_ratios")));
  config.expect("global_pool", "avg");
  // Windows and sub-sampled attention in turn, and what evaluation does not see.
  config.pass_over(
      {"attn_types", "drop_path_rate", "drop_rate", "pos_drop_rate", "proj_drop_rate", "attn_drop_rate"});
  config.finish();
  return models::resolve_model("twins_svt", settings);
}

namespace {

CaseResult check_pyramid(const Golden& golden) {
  return compare_model(golden, pyramid_spec(golden.config()),
                       [&](models::Classifier& model, const auto& input) {
                         if (golden.has("output.out"))
                           return NamedOutputs{{"out", model.forward(input("x"))}};
                         std::vector<int64_t> stages(golden.config()["depths"].size());
                         std::iota(stages.begin(), stages.end(), 0);
                         const auto maps = model.backbone->features(input("x"), stages);
                         NamedOutputs outputs;
                         for (size_t i = 0; i < maps.size(); ++i)
                           outputs["feat" + std::to_string(i)] = maps[i];
                         return outputs;
                       });
}

CaseResult check_twins(const Golden& golden) {
  return compare_model(golden, twins_spec(golden.config()), [](models::Classifier& model, const auto& input) {
    const torch::Tensor x = input("x");
    return NamedOutputs{{"y", model.classes() > 0 ? model.forward(x) : model.backbone->embed(x)}};
  });
}

const Registered registered({
    {"pyramid", check_pyramid, {"models/pyramid_"}},
    {"twins", check_twins, {"components/model_twins_svt"}},
});

}  // namespace
}  // namespace tessera::parity
