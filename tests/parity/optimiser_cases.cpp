// components/opt_*: optimisers, schedules, clipping, moving average, parameter groups.
#include <cmath>
#include <set>

#include "core/error.h"
#include "optim/clip.h"
#include "optim/ema.h"
#include "optim/optimiser.h"
#include "optim/schedule.h"
#include "tests/parity/case.h"
#include "tests/parity/model_case.h"

namespace tessera::parity::optimiser_cases {
namespace {

using Json = nlohmann::json;

double relative(const Golden& golden, double standard) {
  return golden.meta.value("tolerance", Json::object()).value("rtol", standard);
}
double absolute(const Golden& golden, double standard) {
  return golden.meta.value("tolerance", Json::object()).value("atol", standard);
}

torch::Tensor scalar(double value) { return torch::tensor(value, torch::kFloat64); }

std::string precision_name(torch::ScalarType dtype) {
  return dtype == torch::kFloat64 ? "float64 " : "float32 ";
}

// An option that the published optimiser has and ours has not, switched on; "" if there is none.
std::string unknown_option(const Json& config, const Value& known) {
  // The last ones choose how PyTorch computes, not what.
  static const std::set<std::string> ours = {
      "lr_per_step", "param_order",    "maximize",  "decoupled_weight_decay", "lr", "foreach",
      "fused",       "differentiable", "capturable"};
  for (const auto& [key, value] : config.items()) {
    const bool off = value.is_null() || value == false || value == 0;
    if (!ours.contains(key) && !known.find(key) && !off) return key;
  }
  return "";
}

Value optimiser_settings(const std::string& kind, const Json& config) {
  Value settings = train::resolve_optimiser(Value(Value::Table{{"name", kind}})).settings;
  for (const auto& [key, value] : config.items())
    if (settings.find(key))
      settings.set(key, value.is_null() ? Value(0) : to_value(value));  // null: no bound
  return settings;
}

// param.X[t] is the value after t steps with the gradients grad.X[0…t-1].
CaseResult check_steps(const Golden& golden, const std::string& published) {
  const Json& config = golden.config();
  const bool decoupled = published == "adam" && config.value("decoupled_weight_decay", false);
  const std::string kind = decoupled ? "adamw" : published;
  const Value settings = optimiser_settings(kind, config);
  if (const std::string key = unknown_option(config, settings); !key.empty())
    return CaseResult::fail("'" + key + "' is a setting unknown here");
  const train::OptimiserSpec spec = train::resolve_optimiser(settings);
  const double sign =
      config.value("maximize", false) ? -1 : 1;  // to climb is to descend against the gradient
  const auto names = config.at("param_order").get<std::vector<std::string>>();
  const auto rates = config.at("lr_per_step").get<std::vector<double>>();
  Comparison comparison;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
    NamedTensors parameters;
    for (const std::string& name : names)
      parameters.emplace_back(name, golden.tensor("param." + name, dtype)[0].clone().requires_grad_());
    const auto optimiser = train::make_optimiser(
        spec, train::make_parameter_groups(parameters, {.weight_decay = spec.common.weight_decay}));
    for (size_t step = 0; step < rates.size(); ++step) {
      const auto at = static_cast<int64_t>(step);
      for (auto& [name, parameter] : parameters)
        parameter.mutable_grad() = golden.tensor("grad." + name, dtype)[at] * sign;
      optimiser->step(rates[step]);
      for (const auto& [name, parameter] : parameters)
        comparison.close(text(precision_name(dtype), name, " after step ", step + 1), parameter,
                         golden.tensor("param." + name)[at + 1], relative(golden, 1e-5),
                         absolute(golden, 1e-6));
    }
  }
  return comparison.result();
}

// One of timm's cosine schedules: the rate at t = 0, 1, …, a number for each group.
void check_timm_cosine(Comparison& comparison, const Golden& golden, const std::string& name,
                       const Json& wanted) {
  static const std::map<std::string, std::string> keys = {{"t_initial", "cycle_epochs"},
                                                          {"lr_min", "min_lr"},
                                                          {"warmup_t", "warmup_epochs"},
                                                          {"warmup_lr_init", "warmup_lr"},
                                                          {"warmup_prefix", "warmup_prefix"},
                                                          {"cycle_mul", "cycle_mul"},
                                                          {"cycle_decay", "cycle_decay"},
                                                          {"cycle_limit", "cycle_limit"},
                                                          {"k_decay", "k_decay"}};
  const bool per_epoch = wanted.at("mode") == "epoch";
  Value settings(Value::Table{{"name", "timm_cosine"}, {"per_epoch", per_epoch}});
  for (const auto& [key, value] : wanted.at("kw").items()) {
    check(keys.contains(key), name, ": schedule option '", key, "' is not known");
    settings.set(keys.at(key), to_value(value));
  }
  const Json& rates = wanted.at("lr");
  const auto length = static_cast<int64_t>(rates.size());
  const int64_t steps_per_epoch = per_epoch ? 3 : 1;
  const double base = wanted.at("base_lr").get<double>();
  const auto schedule = train::make_schedule(settings, {base, length * steps_per_epoch, steps_per_epoch});
  for (int64_t t = 0; t < length; ++t) {
    const Json& groups = rates[static_cast<size_t>(t)];
    for (size_t group = 0; group < groups.size(); ++group) {
      const double scale = wanted.at("lr_scales").is_null() ? 1 : wanted["lr_scales"][group].get<double>();
      comparison.close(text(name, " at ", t),
                       scalar(scale * schedule->rate(t * steps_per_epoch + t % steps_per_epoch)),
                       scalar(groups[group].get<double>()), relative(golden, 1e-9), absolute(golden, 1e-15));
    }
  }
}

// MAE's cosine in fractional epochs: pairs of epoch and rate.
void check_mae_cosine(Comparison& comparison, const Golden& golden, const std::string& name,
                      const Json& wanted) {
  constexpr int64_t kStepsPerEpoch = 10;  // the listed epochs are tenths
  const Value settings(Value::Table{{"name", "mae_cosine"},
                                    {"warmup_epochs", to_value(wanted.at("warmup_epochs"))},
                                    {"min_lr", to_value(wanted.at("min_lr"))}});
  const auto schedule = train::make_schedule(
      settings,
      {wanted.at("lr").get<double>(), wanted.at("epochs").get<int64_t>() * kStepsPerEpoch, kStepsPerEpoch});
  for (const Json& pair : wanted.at("epoch_lr")) {
    const double epoch = pair[0].get<double>(), step = epoch * kStepsPerEpoch;
    check(std::abs(step - std::round(step)) < 1e-9, name, ": epoch ", epoch, " is no multiple of a tenth");
    comparison.close(text(name, " at epoch ", epoch), scalar(schedule->rate(std::lround(step))),
                     scalar(pair[1].get<double>()), relative(golden, 1e-9), absolute(golden, 1e-15));
  }
}

CaseResult check_schedule(const Golden& golden) {
  Comparison comparison;
  for (const auto& [name, wanted] : golden.config().items()) {
    if (wanted.contains("kw"))
      check_timm_cosine(comparison, golden, name, wanted);
    else if (wanted.contains("epoch_lr"))
      check_mae_cosine(comparison, golden, name, wanted);
    else
      comparison.holds(name, false, "neither timm's nor MAE's cosine");
  }
  return comparison.result();
}

CaseResult check_clip(const Golden& golden) {
  const auto names = golden.config().at("param_order").get<std::vector<std::string>>();
  Comparison comparison;
  for (const Json& wanted : golden.config().at("cases"))
    for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
      std::vector<torch::Tensor> parameters;
      for (const std::string& name : names) {
        parameters.push_back(golden.tensor("input.param." + name, dtype).requires_grad_());
        parameters.back().mutable_grad() = golden.tensor("input.grad." + name, dtype);
      }
      const Json& type = wanted.at("norm_type");
      const train::ClipConfig config = {wanted.at("mode").get<std::string>(),
                                        wanted.at("value").get<double>(),
                                        type.is_string() ? HUGE_VAL : type.get<double>()};
      const train::Clipped clipped = train::clip_gradients(config, parameters);
      const std::string place = text(precision_name(dtype), "case ", wanted.at("case").get<int64_t>(), " ");
      if (!wanted.at("total_norm").is_null())
        comparison.close(place + "norm", scalar(clipped.norm), scalar(wanted["total_norm"].get<double>()),
                         relative(golden, 1e-6), absolute(golden, 1e-7));
      for (size_t i = 0; i < names.size(); ++i)
        comparison.close(place + names[i], parameters[i].grad() * clipped.scale,
                         golden.tensor(text("output.case", wanted["case"].get<int64_t>(), ".", names[i])),
                         relative(golden, 1e-6), absolute(golden, 1e-7));
    }
  return comparison.result();
}

// model.X[t] before update t+1, ema.X[t] after t updates.
CaseResult check_ema(const Golden& golden) {
  const auto updates = golden.config().at("updates").get<int64_t>();
  const train::EmaConfig config = {.decay = golden.config().at("decay").get<double>()};
  for (const auto& [key, value] : golden.config().items())
    if (key != "decay" && key != "updates")
      return CaseResult::fail("'" + key + "' is a setting unknown here");
  Comparison comparison;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
    const auto model_at = [&](int64_t t) {
      NamedTensors model;
      for (const std::string& name : golden.names("model."))
        model.emplace_back(name, golden.tensor("model." + name, dtype)[t].clone());
      return model;
    };
    train::Ema ema(config, model_at(0));
    for (int64_t t = 0; t <= updates; ++t) {
      if (t > 0) ema.update(model_at(t));
      for (const auto& [name, average] : ema.tensors())
        comparison.close(text(precision_name(dtype), name, " after update ", t), average,
                         golden.tensor("ema." + name)[t], relative(golden, 1e-6), absolute(golden, 1e-7));
    }
  }
  return comparison.result();
}

// Rate, decay and company of every parameter of a model, from its names and numbers of dimensions alone. Published
// groups of equal rate and decay, such as two layers at the least scale, are one group of ours.
void check_groups(Comparison& comparison, const Golden& golden, const std::string& model,
                  const Json& wanted) {
  NamedTensors parameters;
  for (const auto& [name, dims] : wanted.at("ndim").items())
    parameters.emplace_back(name, torch::zeros(std::vector<int64_t>(dims.get<size_t>(), 1)));
  train::GroupOptions options = {.weight_decay = wanted.at("weight_decay").get<double>(),
                                 .layer_decay = wanted.at("layer_decay").get<double>(),
                                 .min_scale = wanted.at("min_scale").get<double>(),
                                 .no_decay = wanted.at("no_weight_decay").get<std::vector<std::string>>()};
  const auto groups = train::make_parameter_groups(parameters, options);
  std::map<int64_t, size_t> ours_of;              // published group -> ours
  std::set<std::pair<double, double>> different;  // rates and decays
  for (size_t group = 0; group < groups.size(); ++group)
    for (const auto& [name, tensor] : groups[group].parameters) {
      const Json& want = wanted.at("params").at(name);
      const auto close = [&](const char* what, double got, double value) {
        comparison.close(text(model, " ", name, " ", what), scalar(got), scalar(value),
                         relative(golden, 1e-7), 0);
      };
      close("lr_scale", groups[group].lr_scale, want.at("lr_scale").get<double>());
      close("weight_decay", groups[group].weight_decay, want.at("weight_decay").get<double>());
      different.emplace(want.at("lr_scale").get<double>(), want.at("weight_decay").get<double>());
      const auto [entry, fresh] = ours_of.emplace(want.at("group").get<int64_t>(), group);
      comparison.holds(text(model, " ", name), entry->second == group,
                       "is in another group than its fellows");
    }
  comparison.holds(model, different.size() == groups.size(), "has another number of groups");

  options.layer_decay = 1;
  for (const train::ParameterGroup& group : train::make_parameter_groups(parameters, options))
    for (const auto& [name, tensor] : group.parameters)
      comparison.close(text(model, " ", name, " plain weight_decay"), scalar(group.weight_decay),
                       scalar(wanted.at("plain_weight_decay").at(name).get<double>()), relative(golden, 1e-7),
                       0);
}

CaseResult check_layer_decay(const Golden& golden) {
  Comparison comparison;
  for (const auto& [model, wanted] : golden.config().items()) check_groups(comparison, golden, model, wanted);
  return comparison.result();
}

HandlerRow steps(const std::string& kind) {
  return {
      kind, [kind](const Golden& golden) { return check_steps(golden, kind); }, {"components/opt_" + kind}};
}

const Registered registered({
    steps("adamw"),
    steps("adam"),
    steps("lamb"),
    steps("lars"),
    steps("muon"),
    steps("sgd"),
    {"rate_schedule", check_schedule, {"components/opt_cosine_schedule"}},
    {"gradient_clipping", check_clip, {"components/opt_grad_clip"}},
    {"parameter_averages", check_ema, {"components/opt_model_ema"}},
    {"layer_decay", check_layer_decay, {"components/opt_layer_decay"}},
});

}  // namespace
}  // namespace tessera::parity::optimiser_cases
