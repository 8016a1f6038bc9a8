// components/darl_*: the trunk with the next-patch objective, two streams, rotary positions, orders.
#include "models/backbones/darl.h"

#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numbers>

#include "core/error.h"
#include "models/backbones/next_patch.h"
#include "nn/patch_embed.h"
#include "nn/rope.h"
#include "tasks/pretrain/darl.h"
#include "tests/parity/model_case.h"

namespace tessera::parity::darl_cases {
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
  const torch::Tensor pixels =
      nn::patchify(image, golden.config()["patch"].get<int64_t>()).index_select(1, order);
  if (!golden.config().value("norm_pix", false)) return pixels;
  return (pixels - pixels.mean(-1, true)) / (pixels.var(-1, true, true) + 1e-6).sqrt();
}

// "nested_b2": its kind and the side of a block.
std::pair<std::string, int64_t> order_of(const std::string& name) {
  const size_t mark = name.rfind("_b");
  if (mark == std::string::npos) return {name, 2};
  return {name.substr(0, mark), std::stoll(name.substr(mark + 2))};
}

Golden beside(const Golden& golden, const std::string& name) {
  return read_golden(golden.directory.substr(0, golden.directory.rfind('/')), golden.folder, name);
}

// The case whose parameters a case takes: its own, those that its config names, or those of the case that its name
// goes on from ("darl_mse" of "darl_mse_nested_b2").
std::string holder_of_parameters(const Golden& golden) {
  if (!golden.names("param.").empty()) return golden.name;
  if (golden.config().contains("parameters")) return golden.config()["parameters"].get<std::string>();
  for (std::string name = golden.name; name.find('_') != std::string::npos;) {
    name = name.substr(0, name.rfind('_'));
    if (std::filesystem::exists(golden.directory + "/" + name + ".safetensors") &&
        !beside(golden, name).names("param.").empty())
      return name;
  }
  return "darl_mse";
}

// The task's own trunk, order and decoder for a case of the denoising objective.
struct Denoising {
  tasks::DarlConfig config;
  std::shared_ptr<models::PatchPredictor> predictor;
  std::shared_ptr<models::PatchDecoder> decoder;
  std::shared_ptr<torch::nn::Module> decoder_part;  // with the decoder's names in files
  std::shared_ptr<models::Backbone> trunk;
};

Denoising denoising_case(const Golden& golden, torch::ScalarType dtype) {
  const auto& config = golden.config();
  const models::ModelSpec spec = darl_spec(golden, Value(Value::Table{{"classes", 0}}));
  Denoising out;
  out.config.objective = tasks::DarlObjective::diffusion;
  out.config.decoder_depth = config["decoder_depth"].get<int64_t>();
  out.config.decoder_heads = config["heads"].get<int64_t>();
  out.config.gamma = config["gamma_cond"].get<bool>();
  const auto [order, block] = order_of(config.value("order", "raster"));
  out.config.order = parse_enum<tasks::DarlOrder>(order, "order");
  out.config.block = block;
  out.trunk = models::build_backbone(spec, 0);
  const auto rows = config["grid"][0].get<int64_t>(), columns = config["grid"][1].get<int64_t>();
  out.predictor = std::make_shared<models::PatchPredictor>(
      out.trunk, spec, tasks::darl_order(out.config, rows, columns), "golden");
  models::PatchDecoderOptions options = tasks::darl_decoder(out.config, *out.predictor);
  options.mlp_ratio = config["mlp_ratio"].get<double>();
  out.decoder = std::make_shared<models::PatchDecoder>(options);
  out.decoder_part = std::make_shared<torch::nn::Module>();
  out.decoder_part->register_module("decoder", out.decoder);
  for (const std::shared_ptr<torch::nn::Module>& module :
       {std::shared_ptr<torch::nn::Module>(out.trunk), out.decoder_part}) {
    module->to(dtype);
    module->eval();
  }
  return out;
}

std::string rename_decoder(const std::string& published) {
  static const std::vector<std::pair<std::string, std::string>> names = {{"head.", "decoder.head."},
                                                                         {"dec_blocks.", "decoder.blocks."},
                                                                         {"dec_norm.", "decoder.norm."},
                                                                         {"noisy_embed.", "decoder.embed."}};
  for (const auto& [theirs, ours] : names)
    if (published.starts_with(theirs)) return ours + published.substr(theirs.size());
  return published;
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

// Which content tokens [start, patches in order but the last] each row [batch, patches, dim] depends on, bool [rows,
// tokens].
torch::Tensor seen_by(const torch::Tensor& rows, const torch::Tensor& image, const torch::Tensor& start,
                      const torch::Tensor& order, int64_t patch) {
  std::vector<torch::Tensor> seen;
  for (int64_t t = 0; t < rows.size(1); ++t) {
    const auto gradients =
        torch::autograd::grad({rows.select(1, t).pow(3).sum()}, {image, start}, {}, /*retain_graph=*/true,
                              /*create_graph=*/false, /*allow_unused=*/true);
    const auto strength = [](const torch::Tensor& gradient) { return gradient.abs().sum(-1).amax(0); };
    const torch::Tensor of_patches = gradients[0].defined()
                                         ? strength(nn::patchify(gradients[0], patch)).index_select(0, order)
                                         : torch::zeros({order.size(0)}, image.options());
    const torch::Tensor of_start =
        gradients[1].defined() ? strength(gradients[1]) : torch::zeros({1}, image.options());
    seen.push_back(torch::cat({of_start, of_patches.slice(0, 0, -1)}) > 0);
  }
  return torch::stack(seen);
}

CaseResult check_darl_next_patch(const Golden& golden) {
  // Cases with another order share the parameters of the first.
  const Golden weights = beside(golden, holder_of_parameters(golden));
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

CaseResult check_darl_diffusion(const Golden& golden) {
  Comparison comparison;
  compare_built(comparison, golden, golden, "", rename_decoder, [&](torch::ScalarType dtype) {
    const Denoising built = denoising_case(golden, dtype);
    const auto run = [built, &golden, dtype](const std::function<torch::Tensor(const std::string&)>& input) {
      const tasks::DarlPass pass =
          tasks::darl_pass(built.config, *built.predictor, *built.decoder, input("image"),
                           {.noise = input("noise"), .gamma = input("gamma")}, {});
      const torch::Tensor loss = pass.each().mean().view({1});
      // Sampling of the first patch alone, and the patch after each step.
      const torch::Tensor gammas = golden.tensor("input.reverse.gammas", torch::kFloat64);
      const torch::Tensor init = golden.tensor("input.reverse.init", dtype),
                          noise = golden.tensor("input.reverse.noise", dtype);
      const torch::NoGradGuard no_grad;
      const auto condition = built.decoder->condition(pass.z.slice(1, 0, 1));
      std::vector<torch::Tensor> trajectory = {init};
      for (int64_t s = gammas.size(0) - 1; s > 0; --s)
        trajectory.push_back(models::reverse_step(*built.decoder, *condition, trajectory.back().unsqueeze(1),
                                                  gammas[s].item<double>(), gammas[s - 1].item<double>(),
                                                  false, s > 1 ? noise[s - 1].unsqueeze(1) : torch::Tensor())
                                 .squeeze(1));
      return NamedOutputs{{"z", pass.z},
                          {"noised", pass.noised},
                          {"pred_x0", pass.predicted},
                          {"loss", loss},
                          {"reverse.trajectory", torch::stack(trajectory)}};
    };
    return BuiltCase{{built.trunk, built.decoder_part}, run};
  });
  return comparison.result();
}

CaseResult check_darl_sampling(const Golden& golden) {
  const Golden weights = beside(golden, golden.config()["parameters"]);
  const auto known = golden.config()["given_patches"].get<int64_t>();
  Comparison comparison;
  compare_built(comparison, golden, weights, "", rename_decoder, [&](torch::ScalarType dtype) {
    const Denoising built = denoising_case(golden, dtype);
    const auto run = [built, known, dtype, &golden,
                      &weights](const std::function<torch::Tensor(const std::string&)>&) {
      const torch::Tensor gammas = golden.tensor("input.gammas", torch::kFloat64);
      const torch::Tensor init = golden.tensor("input.init", dtype),
                          noise = golden.tensor("input.noise", dtype);
      const auto draws = [&](int64_t patch, int64_t step) {
        return step + 1 == gammas.size(0) ? init[patch] : noise[patch][step];
      };
      const torch::Tensor given = built.predictor->in_order(golden.tensor("input.image", dtype));
      models::PatchSampling sampling;
      for (int64_t s = 0; s < gammas.size(0); ++s) sampling.gammas.push_back(gammas[s].item<double>());
      NamedOutputs outputs;
      for (const bool noise_predicted : {false, true}) {
        sampling.predicts_noise = noise_predicted;
        const std::string name = noise_predicted ? "eps." : "x0.";
        for (const int64_t first : {int64_t{0}, known})
          outputs[name + (first > 0 ? "completion" : "free") + ".image"] = built.predictor->to_images(
              models::draw_patches(*built.predictor, *built.decoder, given, first, sampling, draws));
      }
      tasks::DarlConfig config = built.config;
      config.predict = tasks::DarlPredict::noise;
      outputs["eps.loss"] =
          tasks::darl_pass(
              config, *built.predictor, *built.decoder, weights.tensor("input.image", dtype),
              {.noise = weights.tensor("input.noise", dtype), .gamma = weights.tensor("input.gamma", dtype)},
              {})
              .each()
              .mean()
              .view({1});
      return outputs;
    };
    return BuiltCase{{built.trunk, built.decoder_part}, run};
  });
  return comparison.result();
}

// Draws against SciPy's quantiles: at none of them the share of draws below is further from u than the
// Kolmogorov-Smirnov distance of one in a hundred.
CaseResult check_darl_schedule(const Golden& golden) {
  constexpr int64_t kDraws = 10000;
  Comparison comparison;
  for (const auto& [name, one] : golden.config()["cases"].items()) {
    RandomStream stream(1, name);
    std::vector<double> draws;
    for (int64_t i = 0; i < kDraws; ++i)
      draws.push_back(tasks::draw_beta(stream, one["a"].get<double>(), one["b"].get<double>()));
    std::sort(draws.begin(), draws.end());
    std::vector<double> shares;
    for (const double quantile : one["quantiles"].get<std::vector<double>>())
      shares.push_back(
          static_cast<double>(std::upper_bound(draws.begin(), draws.end(), quantile) - draws.begin()) /
          kDraws);
    comparison.close(name, torch::tensor(shares, torch::kFloat64),
                     torch::tensor(golden.config()["u"].get<std::vector<double>>(), torch::kFloat64), 0,
                     1.63 / std::sqrt(static_cast<double>(kDraws)));
  }
  return comparison.result();
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
    // What is seen: content t itself and those before, query t content 0 … t, counted with start.
    const torch::Tensor order = golden.tensor("input.order.random");
    const torch::Tensor leaf = image.detach().clone().requires_grad_();
    const auto streams = dynamic_cast<models::NextPatch&>(*model.backbone).two_streams(leaf, order);
    const auto masks_of = [&](const torch::Tensor& rows) {
      const torch::Tensor start = model.backbone->named_parameters()["start_token"];
      return seen_by(rows, leaf, start, order, golden.config()["patch"].get<int64_t>());
    };
    outputs["mask_content"] = masks_of(streams.content);
    outputs["mask_query_over_content_with_start"] = masks_of(streams.query);
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

const Registered registered({
    {"darl_next_patch", check_darl_next_patch, {"components/darl_mse"}},
    {"darl_diffusion", check_darl_diffusion, {"components/darl_diffusion"}},
    {"darl_sampling", check_darl_sampling, {"components/darl_sampling"}},
    {"darl_schedule", check_darl_schedule, {"components/darl_beta_schedule"}},
    {"darl_two_stream", check_darl_two_stream, {"components/darl_two_stream"}},
    {"darl_rope", check_darl_rope, {"components/darl_rope2d"}},
    {"darl_orders", check_darl_orders, {"components/darl_patch_orders"}},
});

}  // namespace
}  // namespace tessera::parity::darl_cases
