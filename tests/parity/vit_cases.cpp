// components/model_vit*, model_deit3, model_torchvision_vit: timm's and torchvision's ViT.
#include "core/error.h"
#include "tests/parity/model_case.h"

namespace tessera::parity {

models::ModelSpec vit_spec(const nlohmann::json& config) {
  static const std::map<std::string, std::string> names = {
      {"img_size", "image_size"},     {"image_size", "image_size"},   {"patch_size", "patch_size"},
      {"embed_dim", "dim"},           {"hidden_dim", "dim"},          {"depth", "depth"},
      {"num_layers", "depth"},        {"num_heads", "heads"},         {"num_classes", "classes"},
      {"mlp_ratio", "mlp_ratio"},     {"qkv_bias", "qkv_bias"},       {"qk_norm", "qk_norm"},
      {"init_values", "init_values"}, {"class_token", "class_token"}, {"no_embed_class", "no_embed_class"},
      {"reg_tokens", "reg_tokens"},   {"pre_norm", "pre_norm"},       {"global_pool", "global_pool"},
      {"drop_path_rate", "drop_path"}};
  Value settings;
  for (const auto& [key, value] : config.items()) {
    if (key == "dynamic_img_size") continue;  // ours always takes other sizes
    if (key == "mlp_dim") {                   // torchvision
      settings.set("mlp_ratio", value.get<double>() / config["hidden_dim"].get<double>());
      continue;
    }
    const auto found = names.find(key);
    check(found != names.end(), "ViT config key '", key, "' is not known");
    settings.set(found->second, to_value(value));
  }
  return models::resolve_model("vit", settings);
}

CaseResult check_vit(const Golden& golden) {
  // Two heads are compared one by one, and what evaluation makes of them.
  const bool distilled = golden.has("output.dist");
  models::ModelSpec spec = vit_spec(golden.config());
  if (distilled)
    spec = models::resolve_model("vit", [&] {
      Value settings = spec.settings;
      settings.set("distilled", true);
      return settings;
    }());
  return compare_model(golden, spec, [&](models::Classifier& model, const auto& input) {
    NamedOutputs outputs;
    if (distilled) {
      const auto scores = model.forward_heads(input("x"));
      outputs = {{"cls", scores.at(0)}, {"dist", scores.at(1)}, {"eval", model.forward(input("x"))}};
      return outputs;
    }
    models::Taps taps{.wanted = [](const std::string& name) { return name == "tokens"; }, .kept = {}};
    outputs["y"] = model.forward(input("x"), models::Context{.taps = &taps});
    if (golden.has("output.features")) outputs["features"] = taps.kept.at("tokens");
    return outputs;
  });
}

}  // namespace tessera::parity
