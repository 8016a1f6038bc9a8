// models/sit_paths, sit_training_losses, sit_samplers.
#include "core/error.h"
#include "diffusion/interpolant_sampler.h"
#include "tests/parity/model_case.h"

namespace tessera::parity::interpolant_cases {
namespace {

using namespace tessera::diffusion;
using Json = nlohmann::json;

std::string lower(std::string word) {
  for (char& letter : word) letter = static_cast<char>(std::tolower(letter));
  return word;
}

PathKind path_of(const std::string& name) { return parse_enum<PathKind>(lower(name), name); }
Field field_of(const std::string& name) { return parse_enum<Field>(lower(name), name); }
LossWeight weight_of(const std::string& name) { return parse_enum<LossWeight>(lower(name), name); }
DiffusionForm form_of(const std::string& name) {
  return name == "inccreasing-decreasing" ? DiffusionForm::increasing_decreasing
                                          : parse_enum<DiffusionForm>(lower(name), name);
}

// "a.b.c" -> {a, b, c}.
std::vector<std::string> parts_of(const std::string& name) { return split(name, '.'); }

torch::Tensor pair(const Interpolant::Interval& interval) {
  return torch::tensor({interval.from, interval.to}, torch::kFloat64);
}

CaseResult check_interpolant_paths(const Golden& golden) {
  const Json& config = golden.config();
  const double norm = config.value("diffusion_norm", 1.0);
  return compare_function(golden, [&](const Leaves& leaves) {
    const torch::Tensor t = leaves.at("input.t"), v = leaves.at("input.v"), x0 = leaves.at("input.x0"),
                        x1 = leaves.at("input.x1");
    NamedOutputs out;
    for (const std::string& key : golden.names("output.")) {
      const std::string name = parts_of(key).at(0), what = key.substr(name.size() + 1);
      const Path path(path_of(name), config.value("sigma_min", 0.1), config.value("sigma_max", 20.0));
      const torch::Tensor x = path.noised(x1, x0, t);
      if (what == "alpha") out[key] = path.alpha(t);
      if (what == "d_alpha") out[key] = path.alpha_slope(t);
      if (what == "sigma") out[key] = path.sigma(t);
      if (what == "d_sigma") out[key] = path.sigma_slope(t);
      if (what == "d_alpha_alpha_ratio") out[key] = path.alpha_log_slope(t);
      if (what == "drift_mean") out[key] = path.drift(x, t);
      if (what == "drift_var") out[key] = path.drift_variance(t);
      if (what == "xt") out[key] = x;
      if (what == "ut") out[key] = path.velocity(x1, x0, t);
      if (what == "score_from_velocity") out[key] = path.score_of_velocity(v, x, t);
      if (what == "noise_from_velocity") out[key] = path.noise_of_velocity(v, x, t);
      if (what == "velocity_from_score") out[key] = path.velocity_of_score(v, x, t);
      if (what.starts_with("diffusion.")) out[key] = path.diffusion(t, form_of(what.substr(10)), norm);
    }
    return out;
  });
}

CaseResult check_interpolant_losses(const Golden& golden) {
  const Json& config = golden.config();
  return compare_function(golden, [&](const Leaves& leaves) {
    NamedOutputs out;
    for (const std::string& key : golden.names("output.")) {
      const std::vector<std::string> parts = parts_of(key);
      // The published loss of velocities has no weight, whatever is asked for.
      const Field field = field_of(parts.at(2));
      const Interpolant interpolant(
          {.path = path_of(parts.at(1)),
           .field = field,
           .weight = field == Field::velocity ? LossWeight::none : weight_of(parts.at(3)),
           .train_end = config.value("train_eps", -1.0),
           .sample_end = config.value("sample_eps", -1.0)});
      const Interpolant::Interval interval = interpolant.training_interval();
      if (parts[0] == "interval") {
        out[key] = pair(interval);
        continue;
      }
      const torch::Tensor t = leaves.at("input.u") * (interval.to - interval.from) + interval.from;
      out[key] =
          interpolant.loss(leaves.at("input.model_output"), leaves.at("input.x1"), leaves.at("input.x0"), t);
    }
    return out;
  });
}

CaseResult check_interpolant_samplers(const Golden& golden) {
  const Json& config = golden.config();
  const Json errors = golden.meta.value("errors_fp32_vs_fp64", Json::object());
  const auto points = config.at("num_steps").get<int64_t>();
  // The published code keeps no distance from the ends for velocities but on the VP path, whatever is given.
  const auto options_of = [&](const std::string& path, const std::string& field) {
    const bool whole = field_of(field) == Field::velocity && path_of(path) != PathKind::vp;
    return InterpolantOptions{.path = path_of(path),
                              .field = field_of(field),
                              .train_end = whole ? -1 : config.value("train_eps", -1.0),
                              .sample_end = whole ? -1 : config.value("sample_eps", -1.0)};
  };
  Comparison comparison;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
    const auto compare = [&](const std::string& key, const torch::Tensor& got, double adaptive = 0) {
      const torch::Tensor want = golden.tensor(key).to(torch::kFloat64);
      const double most = want.abs().max().item<double>();
      const double error = errors.contains(key) ? errors[key]["max_abs_err"].get<double>() : 0;
      const bool sharp = dtype == torch::kFloat64;
      comparison.close(
          (sharp ? "float64 " : "float32 ") + key, got, want, sharp ? adaptive : std::max(1e-4, adaptive),
          std::max(adaptive, sharp ? 2e-7 * most : std::max(1e-5 * std::min(1.0, most), 10 * error)));
    };
    const Network network = [&](const torch::Tensor& x, const torch::Tensor& t) {
      return -0.7 * x + torch::sin(3 * beside(t, x));
    };
    for (const std::string& name : golden.names("output.")) {
      const std::string key = "output." + name;
      const std::vector<std::string> parts = parts_of(name);
      if (parts[0] == "interval") {
        const Interpolant interpolant(options_of(parts.at(2), parts.at(3)));
        compare(key, pair(parts[1] == "ode" ? interpolant.ode_interval()
                          : parts[1] == "ode_reverse"
                              ? interpolant.ode_interval(true)
                              : interpolant.sde_interval(DiffusionForm::sbdm,
                                                         config.at("last_step_size").get<double>())));
        continue;
      }
      const Interpolant interpolant(options_of(parts.at(1), parts.at(2)));
      std::unique_ptr<Sampler> sampler;
      std::vector<torch::Tensor> trajectory;
      const torch::Tensor batch = golden.tensor("input.init", dtype);
      // torchdiffeq chooses its steps for the whole batch, ours are each image's own: one image of all, then.
      const bool together = name.ends_with("dopri5");
      const torch::Tensor start = together ? batch.flatten(0, 1).unsqueeze(0) : batch;
      if (parts[0] == "ode") {
        OdeOptions options{
            .method = parse_enum<OdeMethod>(parts.at(3) == "heun2" ? "heun" : parts.at(3), key),
            .points = points};
        if (const auto found = config.find("dopri5"); found != config.end())
          options.absolute = found->value("atol", 1e-6), options.relative = found->value("rtol", 1e-3);
        sampler = make_ode_sampler(interpolant, options);
        trajectory.push_back(start);
      } else {
        const std::string last = lower(parts.at(5));
        sampler = make_sde_sampler(interpolant,
                                   {.method = parse_enum<SdeMethod>(lower(parts.at(3)), key),
                                    .form = form_of(parts.at(4)),
                                    .norm = config.value("diffusion_norm", 1.0),
                                    .last = last.empty() ? LastStep::none : parse_enum<LastStep>(last, key),
                                    .last_size = config.at("last_step_size").get<double>(),
                                    .points = points});
      }
      const torch::Tensor noise = golden.tensor("input.noise", dtype);
      Walk walk;
      walk.noise = [&](int64_t step) { return noise[step]; };
      walk.after = [&](int64_t, torch::Tensor& x) { trajectory.push_back(x); };
      sampler->run(network, start, walk);
      // The controller of its steps decides: 1e-3, as the goldens' README says.
      const torch::Tensor walked = torch::stack(trajectory);
      compare(key, together ? walked.view(golden.tensor(key).sizes()) : walked, together ? 1e-3 : 0);
    }
  }
  return comparison.result();
}

const Registered registered({
    {"interpolant_paths", check_interpolant_paths, {"models/sit_paths"}},
    {"interpolant_losses", check_interpolant_losses, {"models/sit_training_losses"}},
    {"interpolant_samplers", check_interpolant_samplers, {"models/sit_samplers"}},
});

}  // namespace
}  // namespace tessera::parity::interpolant_cases
