// The samplers by name: one table and one config for tasks and commands.
//
// A new sampler is a row of the table in samplers.cpp and a test.
#pragma once

#include "ops/torch.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/options.h"
#include "diffusion/discrete_sampler.h"
#include "diffusion/gaussian.h"
#include "diffusion/interpolant_sampler.h"

namespace tessera::diffusion {

// The names of all samplers, and "auto".
std::vector<std::string> sampler_names();
// The samplers that read a key of SamplerConfig: "ddpm, ddim, heun".
std::string sampler_readers(const std::string& key);

// "auto" is the first sampler of the table for the kind of process. Each sampler reads some of the other keys.
struct SamplerConfig {
  std::string sampler = "auto";
  std::optional<int64_t> steps = {};
  std::optional<std::string> respacing = {};  // replaces `steps`, in the form of respace()
  double eta = 0;
  bool karras = false;
  Spacing spacing = Spacing::trailing;
  NextLevel next_level = NextLevel::listed;
  DiffusionForm diffusion = DiffusionForm::sigma;
  LastStep last_step = LastStep::mean;
  double last_step_size = 0.04;
  std::optional<double> clip = {}, threshold = {};

  template <class V>
  void visit(V& v) {
    v("sampler", sampler, {.choices = sampler_names()}, "sampler (default: ddpm, for interpolants dopri5)");
    v("steps", steps, between(1, 1'000'000), "steps (default: 250 for ddpm and sde, else 50)");
    const auto option = [&](const char* key, auto& field, OptionRules rules, const char* meaning) {
      rules.readers = sampler_readers(key);
      v(key, field, rules, meaning);
    };
    option("respacing", respacing, {},
           "steps of each part of the schedule, 10,15,20, or every n-th step, ddim50");
    option("eta", eta, {.range = at_least(0)}, "share of the chain's noise");
    option("karras", karras, {}, "Karras' spacing of the noise levels");
    option("spacing", spacing, {}, "selection of the schedule's steps");
    option("next_level", next_level, {},
           "noise after a step: the next step's, or N / steps below (diffusers)");
    option("diffusion", diffusion, {}, "diffusion coefficient");
    option("last_step", last_step, {}, "last step");
    option("last_step_size", last_step_size,
           {.range = {.low = 0, .high = 1, .without_low = true, .without_high = true}},
           "length of the last step");
    option("clip", clip, {.range = at_least(0)},
           "clip clean images to +- this, 0 = no (default: 1 for pixels)");
    option("threshold", threshold, {.range = between(0, 1)},
           "clip clean images to this quantile of their magnitudes (0.995), and divide by it");
  }
};

enum class ProcessKind { diffusion, interpolant };

// The process that a network was trained on.
struct TrainedProcess {
  ScheduleOptions schedule = {};
  GaussianOptions network = {};
  const Interpolant* interpolant = nullptr;  // null: diffusion over the schedule
};

struct SamplerRow {
  std::string name;
  ProcessKind kind = ProcessKind::diffusion;
  std::vector<std::string> reads;  // keys of SamplerConfig, in addition to `sampler`
  int64_t evaluations = 1;         // network evaluations per step; 0: set by the sampler's tolerances
  int64_t steps = 50;              // by default
  bool clips_pixels = false;       // by default
  std::unique_ptr<Sampler> (*make)(const TrainedProcess& process, const SamplerConfig& config) = nullptr;

  bool reads_key(const std::string& key) const;
};

// The table; a kind's first row is its default.
const std::vector<SamplerRow>& samplers();
// Adds a row, for a program with its own sampler. Not while rows are in use.
void add_sampler(SamplerRow row);
// Returns the row of a name or of "auto". Throws a usage error that lists the samplers of the kind.
const SamplerRow& sampler_row(ProcessKind kind, const std::string& name);
// Returns "is for ddim, not for euler" if the sampler does not read that key of SamplerConfig; else "".
std::string unread(const SamplerRow& row, const std::string& key);
// Throws a usage error for a key that is set but that the sampler does not read.
void refuse_unread(const SamplerRow& row, const SamplerConfig& config);

}  // namespace tessera::diffusion
