// models/vil*: Vision-LSTM 2 and 1, classifier and features, and the block stacks of the training source.
#include <cmath>

#include "core/error.h"
#include "models/backbones/vil/backbone.h"
#include "tests/parity/model_case.h"

namespace tessera::parity {
namespace {

// Settings that the published classes of both versions name alike.
Value published_settings(const nlohmann::json& config) {
  Value settings;
  settings.set("legacy_norm", false);
  for (const auto& [key, value] : config.items()) {
    if (key == "input_shape") {
      settings.set("in_channels", to_value(value[0]));
      settings.set("image_size", to_value(nlohmann::json::array({value[1], value[2]})));
    } else if (key == "output_shape")
      settings.set("classes", value.is_null() ? Value(0) : to_value(value[0]));
    else if (key == "pooling")
      settings.set("pooling", value.is_null() ? Value("none") : to_value(value));
    else if (key == "mode")
      settings.set("mode", value.is_null() ? Value("features") : to_value(value));
    else if (key == "stride")
      settings.set("stride", value.is_null() ? Value(0) : to_value(value));
    else if (key == "drop_path_rate")
      settings.set("drop_path", value.get<double>());
    else if (key == "alternation")  // of the directions, in which the published code has this form alone
      check(value == "bidirectional", "Vision-LSTM's 'alternation' = ", value.dump(),
            " is a setting unknown here");
    else if (key == "patch_size" && value.is_array()) {
      check(value[0] == value[1], "patches that are not square are a setting unknown here");
      settings.set(key, to_value(value[0]));
    } else if (key != "conv_kernel_size" && key != "checkpoint_input_shape")
      settings.set(key, to_value(value));
  }
  return settings;
}

// create_block_stack's arguments as settings of version 1.
models::ModelSpec stack_spec(const nlohmann::json& config) {
  Value settings;
  settings.set("classes", 0);
  settings.set("positions", false);
  settings.set("directions", "uni");
  settings.set("inner_multiple", 64);
  const auto directions = [&](const std::string& name) {
    settings.set("directions", name == "quaddirectional" ? "quad" : "bi");
  };
  for (const auto& [key, value] : config.items()) {
    if (value.is_null() || value == false) {  // as if it were not there, but for two that are true else
      if (key == "add_post_blocks_norm") settings.set("legacy_norm", false);
      if (key == "share_conv") settings.set("share_conv", false);
    } else if (key == "dim" || key == "depth")
      settings.set(key, to_value(value));
    else if (key == "num_heads")
      settings.set("heads", to_value(value));
    else if (key == "round_proj_up_to_multiple_of")
      settings.set("inner_multiple", to_value(value));
    else if (key == "conv1d_kernel_size")
      settings.set("conv_kernel", to_value(value));
    else if (key == "layerscale")
      settings.set("init_values", value.get<double>());
    else if (key == "sharedirs")
      settings.set("share_directions", to_value(value));
    else if (key == "use_v_conv")
      settings.set("value_conv", to_value(value));
    else if (key == "share_conv")
      settings.set("share_conv", to_value(value));
    else if (key == "proj_factor")
      settings.set("expansion", value.get<double>());
    else if (key == "add_post_blocks_norm")
      settings.set("legacy_norm", true);
    else if (key == "alternation")
      directions(value.get<std::string>());
    else if (key == "bidirectional" || key == "quaddirectional") {
      directions(key);
      settings.set("traversal", "in_layer");
    } else if (key == "use_conv2d")
      settings.set("conv_kind", value.get<bool>() ? "2d" : "causal1d");
    else if (key == "bias") {
      settings.set("norm_bias", to_value(value));
      settings.set("proj_bias", to_value(value));
    } else
      check(key == "context_length" || (key == "qkv_proj_blocksize" && value == 4), "the stack's argument '",
            key, "' is not known");
  }
  return models::resolve_model("vil1", settings);
}

NamedOutputs scores(models::Classifier& model,
                    const std::function<torch::Tensor(const std::string&)>& input) {
  auto& vil = dynamic_cast<models::VilBackbone&>(*model.backbone);
  const bool features = vil.head_names().empty();
  return {{"out", features ? vil.published_features(input("x")) : model.forward(input("x"))}};
}

}  // namespace

models::ModelSpec vision_lstm_spec(const nlohmann::json& config) {
  Value settings = published_settings(config);
  // The published code keeps the convolution's grid of the resolution it was built for, and its kernel is
  // always 3.
  settings.set("conv_grid", "built");
  return models::resolve_model("vil", settings);
}

namespace {

CaseResult check_vision_lstm_1(const Golden& golden) {
  return compare_model(golden, models::resolve_model("vil1", published_settings(golden.config())), scores);
}

CaseResult check_vision_lstm_stack(const Golden& golden) {
  const auto run = [&](models::Classifier& model, const auto& input) {
    const auto side =
        static_cast<int64_t>(std::lround(std::sqrt(golden.config()["context_length"].get<double>())));
    models::Tokens tokens;
    tokens.rows = tokens.columns = side;
    tokens.x = input("x");
    return NamedOutputs{{"out", dynamic_cast<models::TokenEncoder&>(*model.backbone).encode(tokens).tokens}};
  };
  // The stack knows no image and no head.
  return compare_model(golden, stack_spec(golden.config()), run,
                       {"patch_embed.proj.weight", "patch_embed.proj.bias", "norm.weight", "norm.bias"});
}

CaseResult check_vision_lstm(const Golden& golden) {
  const models::ModelSpec spec = vision_lstm_spec(golden.config());
  const CaseResult result = compare_model(golden, spec, scores);
  if (!golden.has("extra.checkpoint.pos_embed.embed") || result.outcome != Outcome::passed) return result;
  // Loading interpolates the positions of a checkpoint of another resolution.
  Comparison resized;
  const auto model = models::build_backbone(spec, 0);
  resized.close(
      "pos_embed.embed resized on loading",
      model->fit("pos_embed.embed", golden.tensor("extra.checkpoint.pos_embed.embed", torch::kFloat64)),
      golden.tensor("param.pos_embed.embed"), 1e-6, 1e-6);
  const CaseResult second = resized.result();
  return second.outcome == Outcome::passed ? CaseResult::pass(result.detail + "; resized on loading")
                                           : second;
}

const Registered registered({
    {"vision_lstm_1", check_vision_lstm_1, {"models/vil1_"}},
    {"vision_lstm_stack", check_vision_lstm_stack, {"models/vil_stack_"}},
    {"vision_lstm", check_vision_lstm, {"models/vil2_"}},
});

}  // namespace
}  // namespace tessera::parity
