// components/darl_*: the trunk with the next-patch objective, two streams, rotary positions, orders.
#include "models/darl.h"

#include <numbers>

#include "core/error.h"
#include "nn/patch_embed.h"
#include "nn/rope.h"
#include "tests/parity/model_case.h"

namespace tessera::parity {
namespace {

models::ModelSpec darl_spec(const Golden& golden, const Value& overrides) {
  const auto& config = golden.config();
  const auto patch = config["patch"].get<int64_t>();
  Value settings;
  settings.set("image_size", to_value({config["grid"][0].get<int64_t>() * patch,
                                       config["grid"][1].get<int64_t>() * patch}));
  settings.set("patch_size", patch);
  settings.set("rope_theta", config["theta"].get<double>());
  settings.set("classes", 3 * patch * patch);  // the linear patch decoder stands in the head's place
  for (const char* key : {"dim", "depth", "heads", "mlp_ratio"}) settings.set(key, to_value(config[key]));
  merge(settings, overrides);
  return models::resolve_model("darl", settings);
}

torch::Tensor decoded(const models::Classifier& model, const torch::Tensor& z) {
  const auto parameters = model.backbone->named_parameters();
  return torch::linear(z, parameters["head.weight"], parameters["head.bias"]);
}

torch::Tensor targets(const Golden& golden, const torch::Tensor& image, const torch::Tensor& order) {
  return nn::patchify(image, golden.config()["patch"].get<int64_t>()).index_select(1, order);
}

// Tokens of all patches and what the class head would read from them, with and without a causal mask.
void add_readouts(const Golden& golden, const models::Classifier& trained, const torch::Tensor& image,
                  NamedOutputs& outputs) {
  for (const bool causal : {false, true})
    for (const char* pooling : {"last", "mean"}) {
      const auto spec = darl_spec(golden, Value(Value::Table{{"causal", causal}, {"pooling", pooling}}));
      const auto model = models::build_classifier(spec, 0);
      model->backbone->to(image.scalar_type());
      const torch::NoGradGuard no_grad;
      auto parameters = model->backbone->named_parameters();
      for (const auto& entry : trained.backbone->named_parameters())
        parameters[entry.key()].copy_(entry.value());
      const std::string name = std::string("readout.") + (causal ? "causal_" : "noncausal_");
      outputs[name + pooling] = model->backbone->embed(image);
      if (causal) continue;
      nn::Taps taps;
      const auto last = "blocks." + std::to_string(model->backbone->block_count() - 1);
      model->backbone->embed(image, {.taps = &taps});
      outputs[name + "tokens"] = torch::layer_norm(taps.kept.at(last), {model->backbone->embed_width()},
                                                   parameters["norm.weight"], parameters["norm.bias"], 1e-6);
    }
}

}  // namespace

CaseResult check_darl_next_patch(const Golden& golden) {
  // Cases with another order share the parameters of the first.
  const bool own = !golden.names("param.").empty();
  const std::string root = golden.directory.substr(0, golden.directory.rfind('/'));
  const Golden weights = read_golden(root, golden.folder, own ? golden.name : "darl_mse");
  const auto run = [&](models::Classifier& model, const auto& input) {
    const torch::Tensor image = input("image"), order = golden.tensor("input.order");
    const torch::Tensor z = dynamic_cast<models::NextPatch&>(*model.backbone).before_each_patch(image, order);
    const torch::Tensor pred = decoded(model, z), target = targets(golden, image.detach(), order);
    const torch::Tensor error = (pred - target).square();
    NamedOutputs outputs{{"z", z},
                         {"pred", pred},
                         {"target", target},
                         {"loss_per_position", error.mean(-1).mean(0)},
                         {"loss", error.mean().view({1})}};
    if (golden.has("output.readout.causal_last")) add_readouts(golden, model, image, outputs);
    return outputs;
  };
  return compare_model(golden, darl_spec(golden, {}), run, {}, &weights);
}

CaseResult check_darl_two_stream(const Golden& golden) {
  const auto run = [&](models::Classifier& model, const auto& input) {
    NamedOutputs outputs;
    const torch::Tensor image = input("image");
    for (const std::string name : {"raster", "random"}) {
      const torch::Tensor order = golden.tensor("input.order." + name);
      const auto streams = dynamic_cast<models::NextPatch&>(*model.backbone).two_streams(image, order);
      const torch::Tensor pred = decoded(model, streams.query);
      outputs[name + ".query"] = streams.query;
      outputs[name + ".content"] = streams.content;
      outputs[name + ".pred"] = pred;
      outputs[name + ".loss"] = outputs["loss"] =
          (pred - targets(golden, image, order)).square().mean().view({1});
    }
    // What may be seen: content t itself and those before, query t content 0 … t, counted with start.
    outputs["mask_content"] = outputs["mask_query_over_content_with_start"] =
        torch::ones({16, 16}, torch::kBool).tril();
    return outputs;
  };
  return compare_model(golden, darl_spec(golden, Value(Value::Table{{"two_stream", true}})), run);
}

CaseResult check_darl_rope(const Golden& golden) {
  const auto& config = golden.config();
  const int64_t channels = config["dim"].get<int64_t>() / config["heads"].get<int64_t>();
  const auto theta = config["theta"].get<double>();
  return compare_function(golden, [&](const Leaves& leaves) {
    const torch::Tensor q = leaves.at("input.q");
    const torch::Tensor at = leaves.at("input.pos_xy").detach().to(torch::kFloat64);
    const auto places = [&](double scale) {
      return nn::rotation_halves(at.select(1, 0) * scale, at.select(1, 1) * scale, channels, theta);
    };
    const torch::Tensor angles = places(1).angles.to(q.scalar_type());
    const torch::Tensor line = torch::arange(at.size(0), torch::kFloat64);
    return NamedOutputs{{"cos", angles.cos()},
                        {"sin", angles.sin()},
                        {"q_rot", nn::rotate(q, places(1))},
                        {"q_rot_pos_interpolated_half", nn::rotate(q, places(0.5))},
                        {"q_rot_2pi_variant", nn::rotate(q, places(2 * std::numbers::pi))},
                        {"q_rot_1d", nn::rotate(q, nn::rotation_1d(line, channels, theta))}};
  });
}

CaseResult check_darl_orders(const Golden& golden) {
  Comparison comparison;
  for (const std::string& name : golden.names("output.")) {
    if (name.ends_with(".inverse")) continue;
    // "nested_b2.4x4": kind, block, grid.
    const std::string kind = name.substr(0, name.find('.'));
    const size_t block_at = kind.rfind("_b"), cross = name.rfind('x'), dot = name.rfind('.');
    const bool plain = kind == "raster";
    const int64_t rows = std::stoll(name.substr(dot + 1, cross - dot - 1)),
                  columns = std::stoll(name.substr(cross + 1)),
                  block = plain ? 1 : std::stoll(kind.substr(block_at + 2));
    const torch::Tensor order =
        models::patch_order(plain ? kind : kind.substr(0, block_at), rows, columns, block);
    comparison.equal(name, order, golden.tensor("output." + name));
    comparison.equal(name + ".inverse", order.argsort(), golden.tensor("output." + name + ".inverse"));
  }
  return comparison.result();
}

}  // namespace tessera::parity
