// components/model_vit*, model_deit3, model_torchvision_vit: timm's and torchvision's ViT.
#include "core/error.h"
#include "tests/parity/model_case.h"

namespace tessera::parity {
namespace {

// Arguments whose values are not ours; false for any other.
bool set_special(Value& settings, const std::string& key, const nlohmann::json& value,
                 const nlohmann::json& config) {
  // Ours always takes other sizes; first values, and what evaluation does not see.
  for (const char* none : {"dynamic_img_size", "weight_init", "drop_rate", "pos_drop_rate", "patch_drop_rate",
                           "proj_drop_rate", "attn_drop_rate", "dropout", "attention_dropout"})
    if (key == none) return true;
  for (const char* off : {"dynamic_img_pad", "scale_attn_norm", "scale_mlp_norm", "pool_include_prefix"})
    if (key == off && value == false) return true;
  if (key == "mlp_dim") {  // torchvision; half a channel more, which is cut off, stands over any rounding
    settings.set("mlp_ratio", (value.get<double>() + 0.5) / config["hidden_dim"].get<double>());
  } else if (key == "fc_norm") {
    settings.set("fc_norm", value.is_null() ? "auto" : value.get<bool>() ? "on" : "off");
  } else if (key == "init_values" && value.is_null()) {
    settings.set("init_values", 0.0);
  } else if (key == "pos_embed") {
    settings.set("positions", value == "learn" ? "learned" : "none");
  } else if (key == "norm_layer") {  // "layernorm" or "rmsnorm", or with another eps {"name": …, "eps": …}
    settings.set("norm", (value.is_object() ? value["name"] : value) == "rmsnorm" ? "rms" : "layer");
    if (value.is_object()) settings.set("norm_eps", value["eps"].get<double>());
  } else if (key == "mlp_layer") {
    check(value == "swiglu_packed", "ViT mlp_layer ", value.dump(), " is not known");
    settings.set("mlp", "swiglu_packed");
  } else {
    return false;
  }
  return true;
}

}  // namespace

models::ModelSpec vit_spec(const nlohmann::json& config) {
  static const std::map<std::string, std::string> names = {{"img_size", "image_size"},
                                                           {"image_size", "image_size"},
                                                           {"patch_size", "patch_size"},
                                                           {"embed_dim", "dim"},
                                                           {"hidden_dim", "dim"},
                                                           {"depth", "depth"},
                                                           {"num_layers", "depth"},
                                                           {"num_heads", "heads"},
                                                           {"num_classes", "classes"},
                                                           {"mlp_ratio", "mlp_ratio"},
                                                           {"qkv_bias", "qkv_bias"},
                                                           {"proj_bias", "proj_bias"},
                                                           {"in_chans", "in_channels"},
                                                           {"qk_norm", "qk_norm"},
                                                           {"init_values", "init_values"},
                                                           {"class_token", "class_token"},
                                                           {"no_embed_class", "no_embed_class"},
                                                           {"reg_tokens", "reg_tokens"},
                                                           {"pre_norm", "pre_norm"},
                                                           {"global_pool", "global_pool"},
                                                           {"drop_path_rate", "drop_path"},

                                                           {"final_norm", "final_norm"},
                                                           {"act_layer", "mlp"}};
  Value settings;
  for (const auto& [key, value] : config.items()) {
    if (set_special(settings, key, value, config)) continue;
    const auto found = names.find(key);
    check(found != names.end(), "ViT config key '", key, "' is not known");
    settings.set(found->second, to_value(value));
  }
  return models::resolve_model("vit", settings);
}

namespace {

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
    const models::Context context{.taps = &taps};
    outputs["y"] =
        model.classes() > 0 ? model.forward(input("x"), context) : model.backbone->embed(input("x"), context);
    if (golden.has("output.features")) outputs["features"] = taps.kept.at("tokens");
    return outputs;
  });
}

const Registered registered({
    {"vit",
     check_vit,
     {"components/model_vit", "components/model_deit_distilled", "components/model_deit3",
      "components/model_torchvision_vit"}},
});

}  // namespace
}  // namespace tessera::parity
