// models/vil2_*: Vision-LSTM 2, classifier and features.
#include "core/error.h"
#include "tests/parity/model_case.h"

namespace tessera::parity {

models::ModelSpec vision_lstm_spec(const nlohmann::json& config) {
  Value settings;
  // The published code keeps the convolution's grid of the resolution it was built for, and its kernel is
  // always 3.
  settings.set("conv_grid", "built");
  settings.set("legacy_norm", false);
  for (const auto& [key, value] : config.items()) {
    if (key == "input_shape")
      settings.set("image_size", to_value(nlohmann::json::array({value[1], value[2]})));
    else if (key == "output_shape")
      settings.set("classes", value.is_null() ? Value(0) : to_value(value[0]));
    else if (key == "pooling")
      settings.set("pooling", value.is_null() ? Value("none") : to_value(value));
    else if (key == "stride")
      settings.set("stride", value.is_null() ? Value(0) : to_value(value));
    else if (key == "drop_path_rate")
      settings.set("drop_path", value.get<double>());
    else if (key != "conv_kernel_size" && key != "checkpoint_input_shape")
      settings.set(key, to_value(value));
  }
  return models::resolve_model("vil", settings);
}

CaseResult check_vision_lstm(const Golden& golden) {
  const models::ModelSpec spec = vision_lstm_spec(golden.config());
  const CaseResult result = compare_model(golden, spec, [](models::Backbone& model, const auto& input) {
    return NamedOutputs{{"out", model.forward(input("x"))}};
  });
  if (!golden.has("extra.checkpoint.pos_embed.embed") || result.outcome != Outcome::passed) return result;
  // Loading interpolates the positions of a checkpoint of another resolution.
  Comparison resized;
  const auto model = models::build_model(spec, 0);
  resized.close(
      "pos_embed.embed resized on loading",
      model->fit("pos_embed.embed", golden.tensor("extra.checkpoint.pos_embed.embed", torch::kFloat64)),
      golden.tensor("param.pos_embed.embed"), 1e-6, 1e-6);
  const CaseResult second = resized.result();
  return second.outcome == Outcome::passed ? CaseResult::pass(result.detail + "; resized on loading")
                                           : second;
}

}  // namespace tessera::parity
