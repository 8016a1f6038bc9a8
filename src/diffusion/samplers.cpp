#include "diffusion/samplers.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"

namespace tessera::diffusion {
namespace {

template <Method method, int64_t order = 2>
std::unique_ptr<Sampler> discrete(const TrainedProcess& process, const SamplerConfig& config) {
  return make_discrete_sampler(process.schedule, process.network,
                               {.method = method,
                                .steps = config.steps.value_or(1),  // not read with `respacing`
                                .respacing = config.respacing.value_or(""),
                                .eta = config.eta,
                                .order = order,
                                .spacing = config.spacing,
                                .next_level = config.next_level,
                                .sigmas = config.karras ? SigmaSpacing::karras : SigmaSpacing::schedule,
                                .clip = config.clip.value_or(0),
                                .threshold = config.threshold.value_or(0)});
}

// Each step of the config is one step of the method.
template <OdeMethod method>
std::unique_ptr<Sampler> ode(const TrainedProcess& process, const SamplerConfig& config) {
  return make_ode_sampler(*process.interpolant, {.method = method, .points = *config.steps + 1});
}

// Chooses its own steps: more points would only split them.
std::unique_ptr<Sampler> dopri5(const TrainedProcess& process, const SamplerConfig&) {
  return make_ode_sampler(*process.interpolant, {.method = OdeMethod::dopri5, .points = 9});
}

// With a network that predicts velocity, the published code starts at t = 0, where the coefficient of sbdm is
// infinite. Here sbdm starts where published code starts networks that predict score or noise.
Interpolant stochastic(const Interpolant& interpolant, DiffusionForm form) {
  constexpr double kSampleEnd = 1e-3;
  InterpolantOptions options = interpolant.options();
  if (form == DiffusionForm::sbdm) options.sample_end = std::max(options.sample_end, kSampleEnd);
  return Interpolant(options);
}

template <SdeMethod method>
std::unique_ptr<Sampler> sde(const TrainedProcess& process, const SamplerConfig& config) {
  return make_sde_sampler(stochastic(*process.interpolant, config.diffusion),
                          {.method = method,
                           .form = config.diffusion,
                           .last = config.last_step,
                           .last_size = config.last_step_size,
                           .points = *config.steps});
}

std::vector<SamplerRow>& table() {
  using enum ProcessKind;
  using Keys = std::vector<std::string>;
  const Keys solver = {"steps", "spacing", "karras", "threshold"};
  const Keys stochastic_equation = {"steps", "diffusion", "last_step", "last_step_size"};
  static std::vector<SamplerRow> rows = {
      {"ddpm", diffusion, {"steps", "respacing", "clip"}, 1, 250, true, discrete<Method::ddpm>},
      {"ddim",
       diffusion,
       {"steps", "spacing", "next_level", "eta", "clip", "threshold"},
       1,
       50,
       true,
       discrete<Method::ddim>},
      {"dpmpp", diffusion, solver, 1, 50, false, discrete<Method::dpm, 1>},
      {"dpmpp_2m", diffusion, solver, 1, 50, false, discrete<Method::dpm, 2>},
      {"dpmpp_3m", diffusion, solver, 1, 50, false, discrete<Method::dpm, 3>},
      {"dpmpp_2m_sde", diffusion, solver, 1, 50, false, discrete<Method::dpm_sde>},
      {"euler", diffusion, {"steps", "spacing", "karras"}, 1, 50, false, discrete<Method::euler>},
      {"euler_ancestral", diffusion, {"steps", "spacing"}, 1, 50, false, discrete<Method::euler_ancestral>},
      {"heun", diffusion, {"steps", "spacing", "karras", "clip"}, 2, 50, false, discrete<Method::heun>},
      {"dopri5", interpolant, {}, 0, 0, false, dopri5},
      {"heun", interpolant, {"steps"}, 2, 50, false, ode<OdeMethod::heun>},
      {"euler", interpolant, {"steps"}, 1, 50, false, ode<OdeMethod::euler>},
      {"sde", interpolant, stochastic_equation, 1, 250, false, sde<SdeMethod::euler>},
      {"sde_heun", interpolant, stochastic_equation, 2, 250, false, sde<SdeMethod::heun>}};
  return rows;
}

// The names of the rows for which `wanted` is true, each once.
template <class Wanted>
std::vector<std::string> names_where(const Wanted& wanted) {
  std::vector<std::string> names;
  for (const SamplerRow& row : samplers())
    if (wanted(row) && std::ranges::find(names, row.name) == names.end()) names.push_back(row.name);
  return names;
}

}  // namespace

bool SamplerRow::reads_key(const std::string& key) const {
  return std::ranges::find(reads, key) != reads.end();
}

const std::vector<SamplerRow>& samplers() { return table(); }

void add_sampler(SamplerRow row) { table().push_back(std::move(row)); }

std::vector<std::string> sampler_names() {
  std::vector<std::string> names = names_where([](const SamplerRow&) { return true; });
  names.insert(names.begin(), "auto");
  return names;
}

std::string sampler_readers(const std::string& key) {
  return join(names_where([&](const SamplerRow& row) { return row.reads_key(key); }), ", ");
}

const SamplerRow& sampler_row(ProcessKind kind, const std::string& name) {
  for (const SamplerRow& row : samplers())
    if (row.kind == kind && (row.name == name || name == "auto")) return row;
  fail_usage("sampler ", printable(name), " is not for ",
             kind == ProcessKind::diffusion ? "diffusion" : "interpolants",
             ", by which these weights were trained: must be ",
             join(names_where([&](const SamplerRow& row) { return row.kind == kind; }), ", "));
}

std::string unread(const SamplerRow& row, const std::string& key) {
  if (key == "sampler" || row.reads_key(key)) return "";
  auto readers =
      names_where([&](const SamplerRow& other) { return other.kind == row.kind && other.reads_key(key); });
  if (readers.empty()) readers = names_where([&](const SamplerRow& other) { return other.reads_key(key); });
  return readers.empty() ? "" : text("is for ", join(readers, ", "), ", not for ", row.name);
}

void refuse_unread(const SamplerRow& row, const SamplerConfig& config) {
  SamplerConfig given = config, standard;
  const std::vector<OptionField> fields = option_fields(given), defaults = option_fields(standard);
  for (size_t i = 0; i < fields.size(); ++i) {
    const std::optional<Value> value = fields[i].get();
    const std::string why = unread(row, fields[i].key);
    if (!why.empty() && value && *value != defaults[i].get().value_or(Value(0.0)))
      fail_usage(fields[i].key, " ", why);
  }
}

}  // namespace tessera::diffusion
