// components/model_resnet*, model_clip_resnet, model_convnext*: torchvision's ResNet, CLIP's image tower, timm's
// ConvNeXt.

#include "core/error.h"
#include "tests/parity/model_case.h"

namespace tessera::parity::convnet_cases {
namespace {

using Input = std::function<torch::Tensor(const std::string&)>;

models::ModelSpec resnet_spec(const nlohmann::json& config) {
  Value settings;
  for (const auto& [ours, theirs] : {std::pair{"block", "block"},
                                     {"depths", "layers"},
                                     {"dims", "widths"},
                                     {"classes", "num_classes"},
                                     {"output_stride", "output_stride"}})
    settings.set(ours, to_value(config[theirs]));
  return models::resolve_model("resnet", settings);
}

models::ModelSpec clip_spec(const nlohmann::json& config) {
  const auto& vision = config["vision"];
  const int64_t first = 4 * vision["width"].get<int64_t>();
  Value settings;
  settings.set("dims", Value::Array{first, 2 * first, 4 * first, 8 * first});
  settings.set("depths", to_value(vision["layers"]));
  settings.set("image_size", to_value(vision["image_size"]));
  settings.set("heads", to_value(config["heads"]));
  settings.set("embed_dim", to_value(config["embed_dim"]));
  return models::resolve_model("resnet50_clip", settings);
}

models::ModelSpec convnext_spec(const nlohmann::json& config) {
  Value settings;
  settings.set("dims", to_value(config["dims"]));
  settings.set("depths", to_value(config["depths"]));
  settings.set("classes", to_value(config["num_classes"]));
  const bool second = config.value("use_grn", false);
  settings.set("response_norm", second);
  if (second) settings.set("init_values", 0.0);
  return models::resolve_model("convnext", settings);
}

// The scores, the maps that the golden has, and in training the running statistics behind the step.
NamedOutputs outputs_of(const Golden& golden, models::Classifier& model, const Input& input) {
  const torch::Tensor image = input("image");
  NamedOutputs outputs{{"y", model.forward(image)}};
  for (const std::string& stage : golden.names("output.map."))
    outputs["map." + stage] = model.backbone->features(image, {std::stoi(stage)})[0];
  const auto buffers = model.backbone->named_buffers();
  for (const std::string& name : golden.names("output.after.")) outputs["after." + name] = buffers[name];
  return outputs;
}

CaseResult check_resnet(const Golden& golden) {
  return compare_model(
      golden, resnet_spec(golden.config()),
      [&](models::Classifier& model, const Input& input) { return outputs_of(golden, model, input); });
}

CaseResult check_clip_resnet(const Golden& golden) {
  return compare_model(golden, clip_spec(golden.config()), [](models::Classifier& model, const Input& input) {
    return NamedOutputs{{"image_features", model.forward(input("image"))}};
  });
}

CaseResult check_convnext(const Golden& golden) {
  return compare_model(
      golden, convnext_spec(golden.config()),
      [&](models::Classifier& model, const Input& input) { return outputs_of(golden, model, input); });
}

const Registered registered({
    {"resnet", check_resnet, {"components/model_resnet"}},
    {"clip_resnet", check_clip_resnet, {"components/model_clip_resnet"}},
    {"convnext", check_convnext, {"components/model_convnext"}},
});

}  // namespace
}  // namespace tessera::parity::convnet_cases
