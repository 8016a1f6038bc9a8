// The learning rate as a pure function of the step, so that a resumed run gets the same rates.
//
// Steps count optimiser updates from 0; epochs are steps / steps_per_epoch. s is the step, w the warm-up, S
// the run's length. Except in `timm_cosine`, the cosine starts at its maximum after the warm-up:
//   cosine       s < w: warmup_lr + (lr - warmup_lr) (s+1)/w;
//                then   min_lr + (lr - min_lr) (1 + cos(pi (s-w)/(S-w))) / 2;
//                with per_epoch s, w and S are epochs
//   mae_cosine   the same in fractional epochs e: warm-up lr e/w  (He et al. 2022)
//   timm_cosine  timm's CosineLRScheduler: warm-up warmup_lr + (lr - warmup_lr) t/w, then the cosine at t
//                (it drops at the end of the warm-up) or, with warmup_prefix, at t - w; cycles
//                and k-decay
//   dino_cosine  warm-up warmup_lr + (lr - warmup_lr) s/(w-1), then the cosine; the weight decay grows to
//                decay_factor times its first value by half a cosine over the run (Caron et al. 2021)
//   step         warm-up as timm's, then lr factor^k after k milestones
//   constant     warm-up as in `cosine`, then lr
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/value.h"

namespace tessera::train {

// The run that a schedule covers.
struct ScheduleSpan {
  double lr = 1e-3;   // the base rate
  int64_t steps = 0;  // the whole run's
  int64_t steps_per_epoch = 1;
};

class Schedule {
 public:
  virtual ~Schedule() = default;
  // Returns the rate of update number `step`, from 0. After the run's end it stays at the final value.
  virtual double rate(int64_t step) const = 0;
  // Returns the factor of the weight decay.
  virtual double decay_factor(int64_t /*step*/) const { return 1; }
};

// Reads a recipe's table: `name` chooses the schedule, the other keys are its own. The result has every key.
// An empty table is a cosine without warm-up.
Value resolve_schedule(const Value& settings, const std::string& where = "schedule");
// Returns a line for users if the warm-up would last as long as the run and is shortened to a tenth of it; else "".
// `settings` as returned by resolve_schedule.
std::string warmup_note(const Value& settings, const ScheduleSpan& span);
// `settings` as given to or returned by resolve_schedule. Shortens a warm-up that would last as long as the run.
std::unique_ptr<Schedule> make_schedule(const Value& settings, const ScheduleSpan& span,
                                        const std::string& where = "schedule");
std::vector<std::string> schedule_names();
// Returns that schedule's keys, "schedule.min_lr" and so on, with their defaults.
std::vector<KeyDescription> schedule_keys(const std::string& name);

}  // namespace tessera::train
