// training/*: whole short runs of published models: loss, gradient norm and rate of every step, the weights
// at the end.
#include <cmath>
#include <cstdio>
#include <optional>

#include "core/error.h"
#include "optim/clip.h"
#include "optim/optimiser.h"
#include "optim/schedule.h"
#include "tasks/base/losses.h"
#include "tests/parity/case.h"
#include "tests/parity/model_case.h"
#include "weights/name_tables.h"

namespace tessera::parity::training_cases {
namespace {

using Json = nlohmann::json;

struct Recipe {
  int64_t steps = 0;
  double label_smoothing = 0, mean = 0, deviation = 1;
  train::ClipConfig clip;
  std::unique_ptr<train::Schedule> schedule;
  train::OptimiserSpec optimiser;
};

// What the metadata's recipe and optimiser say, or why it cannot be run.
std::optional<std::string> read_recipe(const Golden& golden, Recipe& recipe) {
  const Json &given = golden.meta.at("recipe"), &optimiser = golden.meta.at("optimizer");
  recipe.steps = given.at("steps").get<int64_t>();
  recipe.label_smoothing = given.value("label_smoothing", 0.0);
  if (given.value("clip_grad_norm", 0.0) > 0)
    recipe.clip = {"norm", given["clip_grad_norm"].get<double>(), 2};
  const auto normalise = given.at("normalise").get<std::string>();
  if (std::sscanf(normalise.c_str(), "(u8/255 - %lf)/%lf", &recipe.mean, &recipe.deviation) != 2)
    return "normalisation '" + normalise + "' is not known";
  if (given.value("dropout", 0.0) != 0 || given.value("drop_path", 0.0) != 0) return "random parts are on";

  Value settings(Value::Table{{"name", optimiser.at("name").get<std::string>()}});
  for (const auto& [key, value] : optimiser.items())
    if (key != "name" && key != "no_decay") settings.set(key, to_value(value));
  if (optimiser.value("no_decay", "parameters with ndim <= 1") != "parameters with ndim <= 1")
    return "rule of no decay '" + optimiser["no_decay"].get<std::string>() + "' is not known";
  recipe.optimiser = train::resolve_optimiser(settings);

  const auto formula = given.at("schedule").get<std::string>();
  if (formula != "lr(s) = lr*(s+1)/warm for s < warm else lr*0.5*(1+cos(pi*(s-warm)/(steps-warm)))")
    return "schedule '" + formula + "' is not known";
  const Value schedule(
      Value::Table{{"name", "cosine"}, {"warmup_steps", given.value("warmup_steps", int64_t{0})}});
  recipe.schedule = train::make_schedule(schedule, {recipe.optimiser.common.lr, recipe.steps, 1});
  return std::nullopt;
}

std::optional<models::ModelSpec> model_spec(const Golden& golden) {
  const Json& family = golden.meta.at("family");
  if (family == "vit") return vit_spec(golden.config());
  if (family == "vision_lstm") return vision_lstm_spec(golden.config());
  if (family == "vision_llama_plain") return visionllama_spec(golden);
  if (family == "vision_llama_pyramid") return pyramid_spec(golden.config());
  if (family == "illama") return illama_spec(golden.config());
  if (family == "swin") return swin_spec(golden.config());
  if (family == "twins") return twins_spec(golden.config());
  return std::nullopt;
}

struct Trace {
  std::vector<double> losses, norms, rates;
};

Trace train_model(models::Classifier& model, const Golden& golden, const Recipe& recipe,
                  torch::ScalarType dtype) {
  const torch::Tensor images = golden.tensor("input.images_uint8"), labels = golden.tensor("input.labels");
  const auto optimiser = train::make_optimiser(
      recipe.optimiser,
      train::make_parameter_groups(*model.backbone, {.weight_decay = recipe.optimiser.common.weight_decay}));
  Trace trace;
  for (int64_t step = 0; step < recipe.steps; ++step) {
    const torch::Tensor input = (images[step].to(dtype) / 255 - recipe.mean) / recipe.deviation;
    const torch::Tensor loss =
        tasks::cross_entropy(model.forward(input), labels[step], {.label_smoothing = recipe.label_smoothing});
    optimiser->zero_grad();
    loss.backward();
    const train::Clipped clipped = train::clip_gradients(recipe.clip, optimiser->parameters());
    trace.rates.push_back(recipe.schedule->rate(step));
    optimiser->step(trace.rates.back(), clipped.scale);
    trace.losses.push_back(loss.item<double>());
    trace.norms.push_back(clipped.norm);
  }
  return trace;
}

CaseResult check_trajectory(const Golden& golden) {
  const auto spec = model_spec(golden);
  if (!spec) return CaseResult::skip("this family comes with the other backbones");
  Recipe recipe;
  if (const auto reason = read_recipe(golden, recipe)) return CaseResult::fail(*reason);
  const models::Family& family = models::find_family(spec->family);
  Comparison comparison;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
    const bool sharp = dtype == torch::kFloat64;
    const auto model = models::build_classifier(*spec, 0);
    model->backbone->to(dtype);
    load_parameters(*model->backbone, family, golden, dtype);
    model->backbone->train();
    const Trace trace = train_model(*model, golden, recipe, dtype);
    const auto compare = [&](const char* key, const std::vector<double>& got, double relative) {
      comparison.close(std::string(sharp ? "float64 " : "float32 ") + key,
                       torch::tensor(got, torch::kFloat64), golden.tensor(key), relative, 0);
    };
    compare("output.loss", trace.losses, sharp ? 1e-6 : 1e-4);
    if (!sharp) continue;
    compare("output.lr", trace.rates, 1e-12);
    compare("output.grad_norm", trace.norms, 1e-5);
    const auto parameters = model->backbone->named_parameters();
    for (const std::string& name : golden.names("final.")) {
      const torch::Tensor want = golden.tensor("final." + name, torch::kFloat64);
      comparison.close("final." + name, parameters[train::our_name(name, family.name)], want, 0,
                       1e-5 * want.abs().max().item<double>());
    }
  }
  return comparison.result();
}

const Registered registered({
    {"trajectory", check_trajectory, {"training/"}},
});

}  // namespace
}  // namespace tessera::parity::training_cases
