// models/pyramid_*, components/model_twins_svt: pyramid VisionLLaMA and Twins-SVT.
#include "core/error.h"
#include "tests/parity/model_case.h"

namespace tessera::parity {
namespace {

using Json = nlohmann::json;

// Settings that both published classes name alike.
Value stage_settings(const Json& config) {
  static const std::map<std::string, std::string> names = {
      {"img_size", "image_size"}, {"patch_size", "patch_size"},  {"num_classes", "classes"},
      {"embed_dims", "dims"},     {"depths", "depths"},          {"num_heads", "heads"},
      {"wss", "windows"},         {"sr_ratios", "sub_sampling"}, {"qkv_bias", "qkv_bias"}};
  Value settings;
  for (const auto& [key, ours] : names)
    if (config.contains(key)) settings.set(ours, to_value(config[key]));
  return settings;
}

}  // namespace

models::ModelSpec pyramid_spec(const Json& config) {
  Value settings = stage_settings(config);
  settings.set("auto_scale", config.value("auto_scale", false));
  if (!config.contains("num_classes")) {  // the segmentation backbone
    settings.set("stage_norms", true);
    settings.set("classes", 0);
  }
  return models::resolve_model("visionllama_pyramid", settings);
}

CaseResult check_pyramid(const Golden& golden) {
  return compare_model(golden, pyramid_spec(golden.config()),
                       [&](models::Classifier& model, const auto& input) {
                         if (golden.has("output.out"))
                           return NamedOutputs{{"out", model.forward(input("x"))}};
                         const auto maps = model.backbone->features(input("x"), {0, 1, 2, 3});
                         NamedOutputs outputs;
                         for (size_t i = 0; i < maps.size(); ++i)
                           outputs["feat" + std::to_string(i)] = maps[i];
                         return outputs;
                       });
}

models::ModelSpec twins_spec(const Json& config) {
  Value settings = stage_settings(config);
  const Json& ratios = config["mlp_ratios"];
  for (const Json& ratio : ratios)
    check(ratio == ratios[0], "Twins has one MLP ratio for all stages, the case has several");
  settings.set("mlp_ratio", to_value(ratios[0]));
  return models::resolve_model("twins_svt", settings);
}

CaseResult check_twins(const Golden& golden) {
  return compare_model(golden, twins_spec(golden.config()), [](models::Classifier& model, const auto& input) {
    return NamedOutputs{{"y", model.forward(input("x"))}};
  });
}

}  // namespace tessera::parity
