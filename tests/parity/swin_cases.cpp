// components/model_swin*: timm's Swin Transformer.
#include "core/error.h"
#include "tests/parity/model_case.h"

namespace tessera::parity {

models::ModelSpec swin_spec(const nlohmann::json& config) {
  static const std::map<std::string, std::string> names = {
      {"in_chans", "in_channels"},    {"img_size", "image_size"}, {"patch_size", "patch_size"},
      {"window_size", "window_size"}, {"depths", "depths"},       {"num_heads", "heads"},
      {"num_classes", "classes"},     {"mlp_ratio", "mlp_ratio"}, {"qkv_bias", "qkv_bias"},
      {"drop_path_rate", "drop_path"}};
  Value settings;
  for (const auto& [key, value] : config.items()) {
    if (key == "blocks") continue;  // what the others lead to
    if (key == "embed_dim") {
      Value::Array dims;
      for (size_t stage = 0; stage < config["depths"].size(); ++stage)
        dims.emplace_back(value.get<int64_t>() << stage);
      settings.set("dims", dims);
      continue;
    }
    const auto found = names.find(key);
    check(found != names.end(), "Swin config key '", key, "' is not known");
    settings.set(found->second, to_value(value));
  }
  return models::resolve_model("swin", settings);
}

namespace {

CaseResult check_swin(const Golden& golden) {
  return compare_model(golden, swin_spec(golden.config()), [](models::Classifier& model, const auto& input) {
    const auto parameters = model.backbone->named_parameters();
    const torch::Tensor last =
        model.backbone->features(input("x"), {model.backbone->block_count() - 1})[0].permute({0, 2, 3, 1});
    NamedOutputs outputs{{"y", model.forward(input("x"))},
                         {"features", torch::layer_norm(last, {last.size(3)}, parameters["norm.weight"],
                                                        parameters["norm.bias"], 1e-5)}};
    outputs["relative_position_index.stage0"] = outputs["attn_mask.layers.0.blocks.1.attn_mask"] =
        torch::Tensor();
    return outputs;
  });
}

const Registered registered({
    {"swin", check_swin, {"components/model_swin"}},
});

}  // namespace
}  // namespace tessera::parity
