// models/diffusion_*, components/model_diffusion_*, loss_diffusion_weights.
#include <cmath>

#include "core/error.h"
#include "diffusion/discrete_sampler.h"
#include "diffusion/guidance.h"
#include "diffusion/sampler.h"
#include "tests/parity/config_reader.h"
#include "tests/parity/model_case.h"

namespace tessera::parity::diffusion_cases {
namespace {

using namespace tessera::diffusion;
using Json = nlohmann::json;

// --- as create_diffusion of DiT takes them

ScheduleOptions published_schedule(const Json& config) {
  ScheduleOptions options;
  const std::string kind = config.value("noise_schedule", "linear");
  check(kind == "linear" || kind == "squaredcos_cap_v2", "noise_schedule '", kind, "' is not known");
  if (kind == "squaredcos_cap_v2") options.kind = ScheduleKind::cosine;
  options.steps = config.value("diffusion_steps", int64_t{1000});
  return options;
}

// "250", "10,15,20", [10] or nothing.
std::string spacing_text(const Json& spacing) {
  if (spacing.is_string()) return spacing.get<std::string>();
  if (spacing.is_number()) return std::to_string(spacing.get<int64_t>());
  std::string joined;
  if (spacing.is_array())
    for (const Json& one : spacing)
      joined += (joined.empty() ? "" : ",") + std::to_string(one.get<int64_t>());
  return joined;
}

GaussianOptions published_options(const Json& config) {
  GaussianOptions options;
  options.variance = config.value("learn_sigma", true)    ? Variance::learned
                     : config.value("sigma_small", false) ? Variance::fixed_small
                                                          : Variance::fixed_large;
  if (config.value("predict_xstart", false)) options.prediction = Prediction::x0;
  options.variational_only = config.value("use_kl", false);
  options.rescale_variational = config.value("rescale_learned_sigmas", false);
  return options;
}

// Even the full process is a respaced one there.
GaussianDiffusion published_diffusion(const Json& config, const Json& spacing) {
  const Schedule schedule(make_betas(published_schedule(config)));
  return {schedule.respaced(respace(schedule.steps(), spacing_text(spacing))), published_options(config)};
}

torch::Tensor doubles(const std::vector<double>& values) { return torch::tensor(values, torch::kFloat64); }

torch::Tensor table_of(const Schedule& schedule, const std::string& name) {
  if (name == "betas") return doubles(schedule.betas);
  if (name == "alphas_cumprod") return doubles(schedule.alphas_cumprod);
  if (name == "alphas_cumprod_prev") return doubles(schedule.alphas_cumprod_prev);
  if (name == "alphas_cumprod_next") return doubles(schedule.alphas_cumprod_next);
  if (name == "sqrt_alphas_cumprod") return doubles(schedule.sqrt_alphas_cumprod);
  if (name == "sqrt_one_minus_alphas_cumprod") return doubles(schedule.sqrt_one_minus_alphas_cumprod);
  if (name == "log_one_minus_alphas_cumprod") return doubles(schedule.log_one_minus_alphas_cumprod);
  if (name == "sqrt_recip_alphas_cumprod") return doubles(schedule.sqrt_recip_alphas_cumprod);
  if (name == "sqrt_recipm1_alphas_cumprod") return doubles(schedule.sqrt_recipm1_alphas_cumprod);
  if (name == "posterior_variance") return doubles(schedule.posterior_variance);
  if (name == "posterior_log_variance_clipped") return doubles(schedule.posterior_log_variance_clipped);
  if (name == "posterior_mean_coef1") return doubles(schedule.posterior_mean_coef1);
  if (name == "posterior_mean_coef2") return doubles(schedule.posterior_mean_coef2);
  if (name == "timestep_map") return torch::tensor(schedule.timestep_map, torch::kInt64);
  fail("the golden has a table '", name, "' that the schedule has not");
}

// --- as diffusers' schedulers take them

ScheduleOptions diffusers_schedule(ConfigReader& config) {
  static const std::map<std::string, ScheduleKind> kinds = {
      {"linear", ScheduleKind::linear},   {"scaled_linear", ScheduleKind::scaled_linear},
      {"exp", ScheduleKind::exponential}, {"squaredcos_cap_v2", ScheduleKind::cosine},
      {"sigmoid", ScheduleKind::sigmoid}, {"laplace", ScheduleKind::laplace}};
  const bool heun = config.value("class", "") == "HeunDiscreteScheduler";
  const std::string kind = config.value("beta_schedule", "linear");
  check(kinds.contains(kind), "beta_schedule '", kind, "' is not known");
  const auto betas = config.value("trained_betas", std::vector<double>());
  const int64_t steps = config.value("num_train_timesteps", int64_t{1000});
  return {.kind = kinds.at(kind),
          .steps = betas.empty() ? steps : std::ssize(betas),
          .beta_start = config.value("beta_start", heun ? 0.00085 : 0.0001),
          .beta_end = config.value("beta_end", heun ? 0.012 : 0.02),
          .betas = betas,
          .zero_terminal_snr = config.value("rescale_betas_zero_snr", false)};
}

Prediction diffusers_prediction(ConfigReader& config) {
  const std::string name = config.value("prediction_type", "epsilon");
  check(name == "epsilon" || name == "sample" || name == "v_prediction", "prediction_type '", name,
        "' is not known");
  return name == "v_prediction" ? Prediction::v : name == "sample" ? Prediction::x0 : Prediction::epsilon;
}

SigmaSpacing diffusers_sigmas(ConfigReader& config) {
  const bool karras = config.value("use_karras_sigmas", false), lu = config.value("use_lu_lambdas", false),
             exponential = config.value("use_exponential_sigmas", false),
             beta = config.value("use_beta_sigmas", false);
  return karras        ? SigmaSpacing::karras
         : lu          ? SigmaSpacing::log_snr
         : exponential ? SigmaSpacing::exponential
         : beta        ? SigmaSpacing::beta
                       : SigmaSpacing::schedule;
}

DiscreteOptions diffusers_options(ConfigReader& config, const std::string& golden, int64_t steps) {
  DiscreteOptions options{.steps = steps};
  const bool ddim = golden.starts_with("model_diffusion_ddim");
  options.spacing = parse_enum<Spacing>(config.value("timestep_spacing", ddim ? "leading" : "linspace"),
                                        "timestep_spacing");
  options.next_level = NextLevel::diffusers;
  options.steps_offset = config.value("steps_offset", int64_t{0});
  options.sigmas = diffusers_sigmas(config);
  if (config.value("thresholding", false)) {
    options.threshold = config.value("dynamic_thresholding_ratio", 0.995);
    options.threshold_most = config.value("sample_max_value", 1.0);
  }
  config.pass_over({"dynamic_thresholding_ratio", "sample_max_value", "clip_sample_range"});
  if (config.value("final_sigmas_type", "zero") == "sigma_min") options.final_sigma = FinalSigma::minimum;
  if (ddim) {
    options.method = Method::ddim;
    options.eta = config.value("eta", 0.0);
    options.noise_of_clean = config.value("use_clipped_model_output", false);
    options.alpha_one_at_end = config.value("set_alpha_to_one", true);
    if (config.value("clip_sample", true)) options.clip = config.value("clip_sample_range", 1.0);
    return options;
  }
  if (golden.starts_with("model_diffusion_dpm")) {
    const std::string kind = config.value("algorithm_type", "dpmsolver++");
    options.method = kind.starts_with("sde-") ? Method::dpm_sde : Method::dpm;
    options.solver_of = kind.ends_with("++") ? SolverOf::clean : SolverOf::noise;
    options.least_log_snr = config.value("lambda_min_clipped", options.least_log_snr);
    check(!config.value("use_flow_sigmas", false) && !config.value("use_dynamic_shifting", false),
          "DPM-Solver of flows is not ours");
    config.pass_over({"flow_shift", "time_shift_type", "variance_type"});
    options.order = config.value("solver_order", int64_t{2});
    options.form = parse_enum<SolverForm>(config.value("solver_type", "midpoint"), "solver_type");
    options.lower_order_final = config.value("lower_order_final", true);
    options.euler_at_final = config.value("euler_at_final", false);
    return options;
  }
  const std::string name = config.at("class");
  check(name == "HeunDiscreteScheduler" || name == "EulerAncestralDiscreteScheduler" ||
            name == "EulerDiscreteScheduler",
        "class '", name, "' is not known");
  check(config.value("s_churn", 0.0) == 0, "s_churn is not ours");
  config.pass_over({"s_tmin", "s_tmax", "s_noise"});
  options.method = name == "HeunDiscreteScheduler"             ? Method::heun
                   : name == "EulerAncestralDiscreteScheduler" ? Method::euler_ancestral
                                                               : Method::euler;
  options.sigma_min = config.value("sigma_min", 0.0), options.sigma_max = config.value("sigma_max", 0.0);
  options.log_linear = config.value("interpolation_type", "linear") == "log_linear";
  options.log_time = config.value("timestep_type", "discrete") == "continuous" &&
                     config.value("prediction_type", "epsilon") == "v_prediction";
  if (config.value("clip_sample", false)) options.clip = config.value("clip_sample_range", 1.0);
  return options;
}

// DDIM with eta (Song et al. 2021, eq. 12) in the published form; x_{t+1} by the same equation backwards. Our
// sampler in alpha and sigma is compared in check_diffusers_samplers.
torch::Tensor noise_in(const GaussianDiffusion& diffusion, const torch::Tensor& clean, const torch::Tensor& x,
                       const torch::Tensor& t) {
  return (entries(diffusion.schedule().sqrt_recip_alphas_cumprod, t, x) * x - clean) /
         entries(diffusion.schedule().sqrt_recipm1_alphas_cumprod, t, x);
}

torch::Tensor ddim_step(const GaussianDiffusion& diffusion, const torch::Tensor& output,
                        const torch::Tensor& x, const torch::Tensor& t, const torch::Tensor& noise,
                        double eta) {
  const torch::Tensor clean = diffusion.predicted(output, x, t, /*clip=*/false).clean;
  const torch::Tensor left = entries(diffusion.schedule().alphas_cumprod, t, x),
                      before = entries(diffusion.schedule().alphas_cumprod_prev, t, x);
  const torch::Tensor sigma = eta * torch::sqrt((1 - before) / (1 - left)) * torch::sqrt(1 - left / before);
  const torch::Tensor mean =
      clean * torch::sqrt(before) +
      torch::sqrt((1 - before - sigma.square()).clamp_min(0)) * noise_in(diffusion, clean, x, t);
  return mean + (t != 0).to(mean.scalar_type()).view({-1, 1, 1, 1}) * sigma * noise;
}

torch::Tensor ddim_reverse_step(const GaussianDiffusion& diffusion, const torch::Tensor& output,
                                const torch::Tensor& x, const torch::Tensor& t) {
  const torch::Tensor clean = diffusion.predicted(output, x, t, /*clip=*/false).clean;
  const torch::Tensor after = entries(diffusion.schedule().alphas_cumprod_next, t, x);
  return clean * torch::sqrt(after) + torch::sqrt(1 - after) * noise_in(diffusion, clean, x, t);
}

CaseResult check_diffusion_schedules(const Golden& golden) {
  Comparison comparison;
  for (const auto& [name, config] : golden.config().items()) {
    const Schedule schedule =
        published_diffusion(config, config.value("timestep_respacing", Json(""))).schedule();
    for (const std::string& table : golden.names("output." + name + ".")) {
      const std::string key = "output." + name + "." + table;
      const torch::Tensor got = table_of(schedule, table), want = golden.tensor(key);
      // The published code leaves the clipped variance of a single step empty.
      if (schedule.steps() == 1 && want.numel() == 0 && table.starts_with("posterior_log_variance")) continue;
      if (table == "timestep_map")
        comparison.equal(key, got, want);
      else  // 1 - a loses digits where a is close to 1
        comparison.close(key, got, want, 1e-10, 1e-14);
    }
  }
  return comparison.result();
}

CaseResult check_diffusion_losses(const Golden& golden) {
  const Json& config = golden.config();
  const GaussianDiffusion diffusion =
      published_diffusion(config, config.value("timestep_respacing", Json("")));
  return compare_function(golden, [&](const Leaves& leaves) {
    const torch::Tensor clean = leaves.at("input.x_start"), noise = leaves.at("input.noise"),
                        t = leaves.at("input.t"), output = leaves.at("input.model_output"),
                        x = diffusion.noised(clean, t, noise);
    const Moments posterior = diffusion.posterior(clean, x, t);
    const GaussianLoss loss = diffusion.loss(output, clean, noise, t);
    NamedOutputs out = {{"loss", loss.total},
                        {"x_t", x},
                        {"posterior_mean", posterior.mean},
                        {"posterior_variance", posterior.variance},
                        {"posterior_log_variance_clipped", posterior.log_variance},
                        {"prior_bpd", diffusion.prior_bits(clean)}};
    if (loss.square.defined()) out["mse"] = loss.square;
    if (loss.variational.defined()) out["vb"] = loss.variational;
    for (const bool clip : {true, false}) {
      const Moments p = diffusion.predicted(output, x, t, clip);
      const std::string name = clip ? "p_clip_" : "p_noclip_";
      out[name + "mean"] = p.mean, out[name + "variance"] = p.variance;
      out[name + "log_variance"] = p.log_variance, out[name + "pred_xstart"] = p.clean;
    }
    return out;
  });
}

CaseResult check_diffusion_sampling(const Golden& golden) {
  const Json& config = golden.config();
  const GaussianDiffusion diffusion =
      published_diffusion(config, config.value("timestep_respacing", Json("")));
  const GaussianDiffusion looped = published_diffusion(config, config.at("loop_respacing"));
  const bool learns_variance = config.value("learn_sigma", true);
  // Analytic, of the step of the process that the network was trained on.
  const auto output_at = [&](const GaussianDiffusion& process, const torch::Tensor& x,
                             const torch::Tensor& t) {
    const torch::Tensor original =
        torch::tensor(process.schedule().timestep_map, torch::kInt64).index_select(0, t);
    const torch::Tensor at = original.to(x.scalar_type()).view({-1, 1, 1, 1});
    const torch::Tensor mean = 0.8 * x + 0.0005 * at;
    return learns_variance ? torch::cat({mean, torch::tanh(0.3 * x - 0.1)}, 1) : mean;
  };
  return compare_function(golden, [&](const Leaves& leaves) {
    const torch::NoGradGuard no_grad;
    const torch::Tensor x = leaves.at("input.x"), t = leaves.at("input.t"), noise = leaves.at("input.noise"),
                        loop_noise = leaves.at("input.loop_noise"), output = output_at(diffusion, x, t);
    NamedOutputs out;
    for (const std::string& name : golden.names("output.")) {
      if (name.starts_with("p_sample_clip") || name.starts_with("p_sample_noclip")) {
        const bool clip = name.starts_with("p_sample_clip");
        out[name] = name.ends_with("pred_xstart") ? diffusion.predicted(output, x, t, clip).clean
                                                  : diffusion.ancestral_step(output, x, t, noise, clip);
      } else if (name.starts_with("ddim_sample_eta")) {
        out[name] = ddim_step(diffusion, output, x, t, noise, std::stod(name.substr(15)));
      } else if (name == "ddim_reverse_sample") {
        out[name] = ddim_reverse_step(diffusion, output, x, t);
      } else if (name.ends_with("_loop")) {
        torch::Tensor at = loop_noise[0];
        std::vector<torch::Tensor> all;
        for (int64_t step = looped.schedule().steps() - 1, i = 1; step >= 0; --step, ++i) {
          const torch::Tensor index = torch::full({at.size(0)}, step, torch::kInt64);
          const torch::Tensor said = output_at(looped, at, index);
          at = name.starts_with("ddim") ? ddim_step(looped, said, at, index, loop_noise[i], 0)
                                        : looped.ancestral_step(said, at, index, loop_noise[i], false);
          all.push_back(at);
        }
        out[name] = torch::stack(all);
      }
    }
    return out;
  });
}

CaseResult check_diffusers_samplers(const Golden& golden) {
  const Json& config = golden.config();
  const Json tolerance = golden.meta.value("tolerance", Json::object());
  const auto steps = config.at("steps").get<int64_t>();
  Comparison comparison;
  for (const auto& [name, one] : config.at("cases").items()) {
    ConfigReader config_of_one(one, name);
    const ScheduleOptions schedule = diffusers_schedule(config_of_one);
    const DiscreteOptions options = diffusers_options(config_of_one, golden.name, steps);
    const Prediction prediction = diffusers_prediction(config_of_one);
    config_of_one.finish();
    const std::vector<double> alphas = cumulative_alphas(make_betas(schedule));
    const auto compare_table = [&, &name = name](const char* key, const torch::Tensor& got) {
      const std::string full = name + "/output." + key;
      if (golden.has(full)) comparison.close(full, got, golden.tensor(full).to(torch::kFloat64), 1e-7, 1e-7);
    };
    compare_table("alphas_cumprod", doubles(alphas));
    const auto sampler = make_discrete_sampler(
        schedule, {.prediction = prediction, .variance = Variance::fixed_small}, options);
    compare_table("init_noise_sigma", doubles({sampler->start_scale()}));
    for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
      // The state before every call of the network, and the last.
      std::vector<torch::Tensor> states;
      std::vector<double> times, sigmas;
      const bool by_sigma = options.method >= Method::euler;
      const SigmaPlan plan = plan_sigmas(alphas, schedule.kind, options);
      const Network network = [&](const torch::Tensor& x, const torch::Tensor& t) {
        const size_t call = states.size();
        times.push_back(t[0].item<double>());
        if (options.method >= Method::dpm) {
          sigmas.push_back(plan.sigmas[options.method == Method::heun ? (call + 1) / 2 : call]);
          states.push_back(by_sigma ? x * std::sqrt(sigmas.back() * sigmas.back() + 1) : x);
        } else {
          states.push_back(x);
        }
        return 0.5 * x + 0.1 * torch::sin(0.01 * t).to(x.scalar_type()).view({-1, 1, 1, 1});
      };
      const torch::Tensor noise = golden.tensor("input.noise", dtype);
      Walk walk;
      walk.noise = [&](int64_t step) { return noise[step]; };
      states.push_back(
          sampler->run(network, golden.tensor("input.init", dtype) * sampler->start_scale(), walk));
      if (options.method == Method::heun)
        sigmas.push_back(plan.sigmas.back());
      else
        sigmas = plan.sigmas;
      compare_table("timesteps", doubles(times));
      compare_table("sigmas", doubles(sigmas));
      const std::string key = name + "/output.trajectory";
      comparison.close((dtype == torch::kFloat64 ? "float64 " : "float32 ") + key, torch::stack(states),
                       golden.tensor(key), dtype == torch::kFloat64 ? tolerance.value("rtol", 1e-6) : 1e-4,
                       dtype == torch::kFloat64 ? tolerance.value("atol", 1e-6) : 1e-4);
    }
  }
  return comparison.result();
}

CaseResult check_diffusion_weights(const Golden& golden) {
  const Json& config = golden.config();
  const Json tolerance = golden.meta.value("tolerance", Json::object());
  Comparison comparison;
  const auto compare = [&](const std::string& key, const torch::Tensor& got) {
    comparison.close(key, got, golden.tensor(key), tolerance.value("rtol", 1e-6),
                     tolerance.value("atol", 1e-7));
  };
  for (const auto& [name, one] : config.at("schedules").items()) {
    ConfigReader reader(one, name);
    const std::vector<double> betas = make_betas(diffusers_schedule(reader));
    reader.pass_over({"clip_sample", "prediction_type", "variance_type", "timestep_spacing", "steps_offset"});
    reader.finish();
    const std::vector<double> alphas = cumulative_alphas(betas), snr = signal_to_noise(alphas);
    compare(name + "/output.alphas_cumprod", doubles(alphas));
    compare(name + "/output.snr", doubles(snr));
    compare(name + "/output.zero_snr.betas", doubles(zero_terminal_snr(betas)));
    for (const std::string& key : golden.names(name + "/output.min_snr.")) {
      const size_t dot = key.rfind('.');
      const double gamma = std::stod(key.substr(0, dot));
      compare(name + "/output.min_snr." + key,
              doubles(min_snr_weights(snr, gamma, parse_enum<Prediction>(key.substr(dot + 1), key))));
    }
    const GaussianDiffusion diffusion(Schedule(betas), {.prediction = Prediction::v});
    const torch::Tensor t = golden.tensor("input.t"), x0 = golden.tensor("input.x0", torch::kFloat64),
                        eps = golden.tensor("input.eps", torch::kFloat64);
    compare(name + "/output.x_t", diffusion.noised(x0, t, eps));
    compare(name + "/output.v", diffusion.target(x0, t, eps));
  }
  const Json& guidance = config.at("guidance");
  const torch::Tensor with = golden.tensor("input.cond", torch::kFloat64),
                      without = golden.tensor("input.uncond", torch::kFloat64);
  const double scale = guidance.at("scale"), rescale = guidance.at("rescale");
  compare("output.guided", guided(with, without, {.scale = scale}, with.size(1)));
  compare("output.guided_rescaled",
          guided(with, without, {.scale = scale, .rescale = rescale}, with.size(1)));
  return comparison.result();
}

const Registered registered({
    {"diffusion_schedules", check_diffusion_schedules, {"models/diffusion_schedules"}},
    {"diffusion_losses", check_diffusion_losses, {"models/diffusion_losses"}},
    {"diffusion_sampling", check_diffusion_sampling, {"models/diffusion_sampling"}},
    {"diffusers_samplers", check_diffusers_samplers, {"components/model_diffusion_"}},
    {"diffusion_weights", check_diffusion_weights, {"components/loss_diffusion_weights"}},
});

}  // namespace
}  // namespace tessera::parity::diffusion_cases
