#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <type_traits>

#include "core/config.h"
#include "core/error.h"
#include "core/text.h"

namespace tessera::train {
namespace {

constexpr double kPi = 3.14159265358979323846;

double half_cosine(double share) { return 0.5 * (1 + std::cos(kPi * share)); }

// The keys of every schedule: its name and a linear warm-up, in epochs or in steps.
struct WarmupConfig {
  std::string name;
  double warmup_epochs = 0;
  int64_t warmup_steps = 0;
  double warmup_lr = 0;

  template <class V>
  void visit(V& v) {
    v("name", name, "cosine, mae_cosine, timm_cosine, dino_cosine, step, linear or constant");
    v("warmup_epochs", warmup_epochs, "length of the warm-up in epochs");
    v("warmup_steps", warmup_steps, "or in steps");
    v("warmup_lr", warmup_lr, "rate that the warm-up starts from");
  }
  void check(const std::string& where) const {
    if (!(warmup_epochs >= 0))
      fail_usage(where, ".warmup_epochs is ", shortest(warmup_epochs), ", must not be negative");
    if (warmup_steps < 0) fail_usage(where, ".warmup_steps is ", warmup_steps, ", must not be negative");
    if (!(warmup_lr >= 0)) fail_usage(where, ".warmup_lr is ", shortest(warmup_lr), ", must not be negative");
    if (warmup_epochs > 0 && warmup_steps > 0)
      fail_usage(where, " has both warmup_epochs and warmup_steps, give one of them");
  }
  // Shortens a warm-up that would last as long as the run to a tenth of it. Returns true if it did.
  bool shorten(const ScheduleSpan& span) {
    const bool whole = in_steps(span) > 0 && in_steps(span) >= static_cast<double>(span.steps);
    if (whole) warmup_epochs = 0, warmup_steps = span.steps / 10;
    return whole;
  }
  double in_epochs(const ScheduleSpan& span) const {
    return warmup_steps > 0 ? static_cast<double>(warmup_steps) / static_cast<double>(span.steps_per_epoch)
                            : warmup_epochs;
  }
  double in_steps(const ScheduleSpan& span) const {
    return warmup_steps > 0 ? static_cast<double>(warmup_steps)
                            : std::round(warmup_epochs * static_cast<double>(span.steps_per_epoch));
  }
};

// Time in a schedule's unit: steps or whole epochs.
struct Clock {
  Clock(const ScheduleSpan& s, const WarmupConfig& config, bool in_epochs)
      : span(s), per_epoch(in_epochs), warmup(in_epochs ? config.in_epochs(s) : config.in_steps(s)) {}
  double at(int64_t step) const {
    return static_cast<double>(per_epoch ? step / span.steps_per_epoch : step);
  }
  double length() const {
    return per_epoch ? std::ceil(static_cast<double>(span.steps) / static_cast<double>(span.steps_per_epoch))
                     : static_cast<double>(span.steps);
  }
  double from_epochs(double epochs) const {
    return per_epoch ? epochs : std::round(epochs * static_cast<double>(span.steps_per_epoch));
  }
  ScheduleSpan span;
  bool per_epoch;
  double warmup;
};

// Adds the rate at the end.
struct DecayConfig : WarmupConfig {
  double min_lr = 0;

  template <class V>
  void visit(V& v) {
    WarmupConfig::visit(v);
    v("min_lr", min_lr, "rate at the end");
  }
  void check(const std::string& where) const {
    WarmupConfig::check(where);
    if (!(min_lr >= 0)) fail_usage(where, ".min_lr is ", shortest(min_lr), ", must not be negative");
  }
  void check_end(const ScheduleSpan& span, const std::string& where) const {
    if (min_lr > span.lr)
      fail_usage(where, ".min_lr is ", shortest(min_lr), ", must be at most the learning rate of ",
                 shortest(span.lr), " (optimiser.lr)");
  }
};

struct CosineConfig : DecayConfig {
  bool per_epoch = false;

  template <class V>
  void visit(V& v) {
    DecayConfig::visit(v);
    v("per_epoch", per_epoch, "change the rate between epochs only");
  }
};

class Cosine final : public Schedule {
 public:
  Cosine(const CosineConfig& config, const ScheduleSpan& span)
      : c_(config), clock_(span, config, config.per_epoch) {}
  double rate(int64_t step) const override {
    const double t = clock_.at(step), lr = clock_.span.lr, rest = clock_.length() - clock_.warmup;
    if (t < clock_.warmup) return c_.warmup_lr + (lr - c_.warmup_lr) * std::min(1.0, (t + 1) / clock_.warmup);
    return c_.min_lr +
           (lr - c_.min_lr) * half_cosine(std::min(1.0, (t - clock_.warmup) / std::max(rest, 1.0)));
  }

 private:
  CosineConfig c_;
  Clock clock_;
};

// Linear decay after the warm-up (mmseg's polynomial of power 1).
class Linear final : public Schedule {
 public:
  Linear(const DecayConfig& config, const ScheduleSpan& span) : c_(config), clock_(span, config, false) {}
  double rate(int64_t step) const override {
    const double t = clock_.at(step), lr = clock_.span.lr, rest = clock_.length() - clock_.warmup;
    if (t < clock_.warmup) return c_.warmup_lr + (lr - c_.warmup_lr) * std::min(1.0, (t + 1) / clock_.warmup);
    return c_.min_lr + (lr - c_.min_lr) * (1 - std::min(1.0, (t - clock_.warmup) / std::max(rest, 1.0)));
  }

 private:
  DecayConfig c_;
  Clock clock_;
};

class MaeCosine final : public Schedule {
 public:
  MaeCosine(const DecayConfig& config, const ScheduleSpan& span)
      : c_(config), span_(span), warmup_(config.in_epochs(span)) {}
  double rate(int64_t step) const override {
    const auto epochs = [&](int64_t s) {
      return static_cast<double>(s) / static_cast<double>(span_.steps_per_epoch);
    };
    const double e = epochs(step), rest = epochs(span_.steps) - warmup_;
    if (e < warmup_) return c_.warmup_lr + (span_.lr - c_.warmup_lr) * e / warmup_;
    return c_.min_lr +
           (span_.lr - c_.min_lr) * half_cosine(rest > 0 ? std::min(1.0, (e - warmup_) / rest) : 1);
  }

 private:
  DecayConfig c_;
  ScheduleSpan span_;
  double warmup_;
};

struct DinoCosineConfig : DecayConfig {
  double decay_factor = 1;

  template <class V>
  void visit(V& v) {
    DecayConfig::visit(v);
    v("decay_factor", decay_factor, at_least(0), "last weight decay as a multiple of the first");
  }
};

class DinoCosine final : public Schedule {
 public:
  DinoCosine(const DinoCosineConfig& config, const ScheduleSpan& span)
      : c_(config), clock_(span, config, false) {}
  double rate(int64_t step) const override {
    const double t = clock_.at(step), lr = clock_.span.lr, rest = clock_.length() - clock_.warmup;
    if (t < clock_.warmup) return c_.warmup_lr + (lr - c_.warmup_lr) * t / std::max(clock_.warmup - 1, 1.0);
    return c_.min_lr +
           (lr - c_.min_lr) * half_cosine(std::min(1.0, (t - clock_.warmup) / std::max(rest, 1.0)));
  }
  double decay_factor(int64_t step) const override {
    const double share = clock_.at(step) / std::max(clock_.length(), 1.0);
    return c_.decay_factor + (1 - c_.decay_factor) * half_cosine(std::min(1.0, share));
  }

 private:
  DinoCosineConfig c_;
  Clock clock_;
};

struct TimmCosineConfig : DecayConfig {
  bool per_epoch = true, warmup_prefix = false;
  double cycle_epochs = 0, cycle_mul = 1, cycle_decay = 1, k_decay = 1;
  int64_t cycle_limit = 1;

  template <class V>
  void visit(V& v) {
    DecayConfig::visit(v);
    v("per_epoch", per_epoch, "change the rate between epochs only");
    v("warmup_prefix", warmup_prefix, "start the cosine after the warm-up instead of during it");
    v("cycle_epochs", cycle_epochs, "length of the first cosine; 0 = the whole run");
    v("cycle_mul", cycle_mul, "each cycle's length relative to the previous one");
    v("cycle_decay", cycle_decay, "each cycle's top relative to the previous one");
    v("cycle_limit", cycle_limit, "number of cycles, min_lr after them"),
        v("k_decay", k_decay, "exponent of time");
  }
  void check(const std::string& where) const {
    DecayConfig::check(where);
    if (!(cycle_epochs >= 0))
      fail_usage(where, ".cycle_epochs is ", shortest(cycle_epochs), ", must not be negative");
    if (!(cycle_mul >= 1)) fail_usage(where, ".cycle_mul is ", shortest(cycle_mul), ", must be at least 1");
    if (!(k_decay > 0)) fail_usage(where, ".k_decay is ", shortest(k_decay), ", must be above 0");
    if (!(cycle_decay > 0)) fail_usage(where, ".cycle_decay is ", shortest(cycle_decay), ", must be above 0");
    if (cycle_limit < 1) fail_usage(where, ".cycle_limit is ", cycle_limit, ", must be at least 1");
  }
};

class TimmCosine final : public Schedule {
 public:
  TimmCosine(const TimmCosineConfig& config, const ScheduleSpan& span)
      : c_(config), clock_(span, config, config.per_epoch) {
    first_ = config.cycle_epochs > 0 ? clock_.from_epochs(config.cycle_epochs)
                                     : clock_.length() - (config.warmup_prefix ? clock_.warmup : 0);
    first_ = std::max(first_, 1.0);
  }
  double rate(int64_t step) const override {
    double t = clock_.at(step);
    const double lr = clock_.span.lr;
    if (t < clock_.warmup) return c_.warmup_lr + t * (lr - c_.warmup_lr) / clock_.warmup;
    if (c_.warmup_prefix) t -= clock_.warmup;
    double cycle, length = first_, within;
    if (c_.cycle_mul == 1) {
      cycle = std::floor(t / first_);
      within = t - cycle * first_;
    } else {
      cycle = std::floor(std::log(1 - t / first_ * (1 - c_.cycle_mul)) / std::log(c_.cycle_mul));
      length = std::pow(c_.cycle_mul, cycle) * first_;
      within = t - (1 - std::pow(c_.cycle_mul, cycle)) / (1 - c_.cycle_mul) * first_;
    }
    if (cycle >= static_cast<double>(c_.cycle_limit)) return c_.min_lr;
    const double top = lr * std::pow(c_.cycle_decay, cycle);
    return c_.min_lr +
           (top - c_.min_lr) * half_cosine(std::pow(within, c_.k_decay) / std::pow(length, c_.k_decay));
  }

 private:
  TimmCosineConfig c_;
  Clock clock_;
  double first_;
};

struct StepConfig : WarmupConfig {
  double every_epochs = 30, factor = 0.1;
  std::vector<double> milestones;

  template <class V>
  void visit(V& v) {
    WarmupConfig::visit(v);
    v("every_epochs", every_epochs, "epochs between two drops, unless milestones are given");
    v("milestones", milestones, "epochs of the drops, ascending"), v("factor", factor, "factor of each drop");
  }
  void check(const std::string& where) const {
    WarmupConfig::check(where);
    if (!(every_epochs > 0))
      fail_usage(where, ".every_epochs is ", shortest(every_epochs), ", must be above 0");
    if (!(factor > 0)) fail_usage(where, ".factor is ", shortest(factor), ", must be above 0");
    if (!std::is_sorted(milestones.begin(), milestones.end())) fail_usage(where, ".milestones must ascend");
  }
};

class StepDecay final : public Schedule {
 public:
  StepDecay(const StepConfig& config, const ScheduleSpan& span)
      : c_(config), span_(span), warmup_(config.in_epochs(span)) {}
  double rate(int64_t step) const override {
    const auto epoch = static_cast<double>(step / span_.steps_per_epoch);
    if (epoch < warmup_) return c_.warmup_lr + epoch * (span_.lr - c_.warmup_lr) / warmup_;
    const auto passed =
        std::upper_bound(c_.milestones.begin(), c_.milestones.end(), epoch) - c_.milestones.begin();
    const double drops =
        c_.milestones.empty() ? std::floor(epoch / c_.every_epochs) : static_cast<double>(passed);
    return span_.lr * std::pow(c_.factor, drops);
  }

 private:
  StepConfig c_;
  ScheduleSpan span_;
  double warmup_;
};

class Constant final : public Schedule {
 public:
  Constant(const WarmupConfig& config, const ScheduleSpan& span) : c_(config), clock_(span, config, false) {}
  double rate(int64_t step) const override {
    const double t = clock_.at(step), lr = clock_.span.lr;
    return t < clock_.warmup ? c_.warmup_lr + (lr - c_.warmup_lr) * (t + 1) / clock_.warmup : lr;
  }

 private:
  WarmupConfig c_;
  Clock clock_;
};

struct Kind {
  const char* name;
  std::vector<KeyDescription> keys;
  std::function<Value(const Value&, const std::string&)> resolve;
  std::function<std::unique_ptr<Schedule>(const Value&, const ScheduleSpan&, const std::string&)> make;
};

template <class Config, class Implementation>
Kind kind(const char* name) {
  const auto read = [name](const Value& settings, const std::string& where) {
    Config named;
    named.name = name;
    const Config config = read_config<Config>(settings, where, named);
    config.check(where);
    return config;
  };
  Config named;
  named.name = name;
  return {
      name, describe_config(named, "schedule"),
      [read](const Value& settings, const std::string& where) { return write_config(read(settings, where)); },
      [read](const Value& settings, const ScheduleSpan& span, const std::string& where) {
        Config config = read(settings, where);
        config.shorten(span);
        if constexpr (std::is_base_of_v<DecayConfig, Config>) config.check_end(span, where);
        return std::unique_ptr<Schedule>(std::make_unique<Implementation>(config, span));
      }};
}

// A new schedule needs its config, its class and one line here.
const std::vector<Kind>& schedule_kinds() {
  static const std::vector<Kind> table = {
      kind<CosineConfig, Cosine>("cosine"),
      kind<DecayConfig, MaeCosine>("mae_cosine"),
      kind<TimmCosineConfig, TimmCosine>("timm_cosine"),
      kind<DinoCosineConfig, DinoCosine>("dino_cosine"),
      kind<StepConfig, StepDecay>("step"),
      kind<DecayConfig, Linear>("linear"),
      kind<WarmupConfig, Constant>("constant"),
  };
  return table;
}

const Kind& find_named(const std::string& name, const std::string& where) {
  for (const Kind& entry : schedule_kinds())
    if (entry.name == name) return entry;
  const auto names = schedule_names();
  fail_usage(where, ".name is '", name, "', must be one of ", join(names, ", "), did_you_mean(name, names));
}

const Kind& find_kind(const Value& settings, const std::string& where) {
  if (!settings.is_table()) fail_usage(where, " is ", settings.type_name(), ", must be a table");
  const Value* value = settings.find("name");
  if (value && !value->is_string()) fail_usage(where, ".name is ", value->type_name(), ", must be a string");
  return find_named(value ? value->as_string() : "cosine", where);
}

}  // namespace

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Kind& entry : schedule_kinds()) names.emplace_back(entry.name);
  return names;
}

std::vector<KeyDescription> schedule_keys(const std::string& name) {
  return find_named(name, "schedule").keys;
}

Value resolve_schedule(const Value& settings, const std::string& where) {
  return find_kind(settings, where).resolve(settings, where);
}

std::string warmup_note(const Value& settings, const ScheduleSpan& span) {
  WarmupConfig config;
  if (const Value* epochs = settings.find("warmup_epochs")) config.warmup_epochs = epochs->as_double();
  if (const Value* steps = settings.find("warmup_steps")) config.warmup_steps = steps->as_int();
  const double asked = config.in_steps(span);
  if (!config.shorten(span)) return "";
  return text("the warm-up of ", counted(static_cast<int64_t>(asked), "step"), " is as long as the run of ",
              span.steps, ": shortened to ", config.warmup_steps, " (schedule.warmup_steps)");
}

std::unique_ptr<Schedule> make_schedule(const Value& settings, const ScheduleSpan& span,
                                        const std::string& where) {
  check(span.steps_per_epoch > 0 && span.steps >= 0, where, ": a run of ", span.steps, " steps, ",
        span.steps_per_epoch, " an epoch");
  return find_kind(settings, where).make(settings, span, where);
}

}  // namespace tessera::train
