// components/model_swin*: timm's Swin Transformer.
#include "tests/parity/config_reader.h"
#include "tests/parity/model_case.h"

namespace tessera::parity {

models::ModelSpec swin_spec(const nlohmann::json& table) {
  ConfigReader config(table, "Swin");
  Value settings;
  for (const auto& [theirs, ours] : {std::pair{"in_chans", "in_channels"},
                                     {"img_size", "image_size"},
                                     {"patch_size", "patch_size"},
                                     {"window_size", "window_size"},
                                     {"depths", "depths"},
                                     {"num_heads", "heads"},
                                     {"num_classes", "classes"},
                                     {"mlp_ratio", "mlp_ratio"},
                                     {"qkv_bias", "qkv_bias"},
                                     {"drop_path_rate", "drop_path"}})
    if (config.has(theirs)) settings.set(ours, to_value(config.at(theirs)));
  if (config.has("embed_dim")) {
    Value::Array dims;
    for (size_t stage = 0; stage < config.at("depths").size(); ++stage)
      dims.emplace_back(config.at("embed_dim").get<int64_t>() << stage);
    settings.set("dims", dims);
  }
  config.expect("global_pool", "avg");
  config.expect("always_partition", false);
  config.expect("head_dim", nullptr);
  // A result of the others, first values, and sizes of images, which ours are always free in.
  config.pass_over({"blocks", "weight_init", "strict_img_size"});
  for (const char* rate : {"drop_rate", "proj_drop_rate", "attn_drop_rate"}) config.expect(rate, 0.0);
  config.finish();
  return models::resolve_model("swin", settings);
}

namespace {

CaseResult check_swin(const Golden& golden) {
  return compare_model(golden, swin_spec(golden.config()), [&](models::Classifier& model, const auto& input) {
    const auto parameters = model.backbone->named_parameters();
    const torch::Tensor last =
        model.backbone->features(input("x"), {model.backbone->block_count() - 1})[0].permute({0, 2, 3, 1});
    const bool classes = model.classes() > 0;
    NamedOutputs outputs{{"y", classes ? model.forward(input("x")) : model.backbone->embed(input("x"))},
                         {"features", torch::layer_norm(last, {last.size(3)}, parameters["norm.weight"],
                                                        parameters["norm.bias"], 1e-5)}};
    for (const char* kind : {"relative_position_index.", "attn_mask."})  // seen through the others
      for (const std::string& name : golden.names(std::string("output.") + kind))
        outputs[kind + name] = torch::Tensor();
    return outputs;
  });
}

const Registered registered({
    {"swin", check_swin, {"components/model_swin"}},
});

}  // namespace
}  // namespace tessera::parity
