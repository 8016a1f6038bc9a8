// The end of a step on a GPU with kernels: nothing waits for the device. Whether the step was skipped is decided there,
// and the host reads it two steps later.
#include <ATen/record_function.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cmath>

#include "core/error.h"
#include "train/trainer_run.h"

namespace tessera::train {

void LaterNumbers::push(const torch::Tensor& number) {
  if (number.is_cpu()) {
    waiting_.push_back({number.clone(), nullptr});
    return;
  }
  const torch::Tensor host = torch::empty({}, torch::TensorOptions(number.scalar_type()).pinned_memory(true));
  host.copy_(number, /*non_blocking=*/true);
  const c10::impl::VirtualGuardImpl device(number.device().type());
  waiting_.push_back({host, std::make_shared<c10::Event>(number.device().type())});
  waiting_.back().copied->record(device.getStream(number.device()));
}

std::optional<double> LaterNumbers::pop(bool all) {
  constexpr size_t kBehind = 2;
  if (waiting_.empty() || (!all && waiting_.size() <= kBehind)) return {};
  const Waiting oldest = waiting_.front();
  waiting_.pop_front();
  if (oldest.copied) oldest.copied->synchronize();
  return static_cast<double>(*oldest.host.const_data_ptr<float>());
}

// True if nothing of a step has to be read back before the next one: one process, no loss scale, an optimiser with
// kernels, and a task that does not read steps.
bool Trainer::ends_steps_there() const {
  return world_.size() == 1 && !loss_scale_.on() && !setup_.recipe.train.noise_scale &&
         !task_.reads_steps() && optimisation_.optimiser->updates_there();
}

void Trainer::finish_there(const models::TrainingStep& step, const StepMeans& means,
                           const std::vector<torch::Tensor>& running,
                           const std::vector<torch::Tensor>& before) {
  const ClippedThere clipped =
      clip_gradients_there(optimisation_.clip, optimisation_.clipped, optimisation_.unclipped, means.loss);
  RECORD_USER_SCOPE("optimiser and moving average");
  const torch::NoGradGuard no_grad;
  const torch::Tensor finite = clipped.scale.isfinite();
  for (size_t i = 0; i < before.size(); ++i) running[i].copy_(torch::where(finite, running[i], before[i]));
  progress_.learning_rate = optimisation_.schedule->rate(state_.step);
  AveragingThere averaging;
  if (optimisation_.ema) averaging = optimisation_.ema->begin_there(model_.state, finite);
  optimisation_.optimiser->step_there(progress_.learning_rate, clipped.scale,
                                      optimisation_.schedule->decay_factor(state_.step),
                                      optimisation_.ema ? &averaging : nullptr);
  task_.after_step(step);  // a momentum teacher follows before it is averaged
  if (optimisation_.ema) Ema::finish_there(averaging, finite);
  meter_.add(means, clipped.norm, finite);
  optimisation_.optimiser->zero_grad();
  ++state_.step;
  outcomes_.push(clipped.scale);
  unsettled_.push_back({state_.step, means.share});
  settle(/*all=*/false);
}

// Counts the steps with a known outcome; `all`: waits for the others.
void Trainer::settle(bool all) {
  while (const auto scale = outcomes_.pop(all)) {
    const auto [step, share] = unsettled_.front();
    unsettled_.pop_front();
    const bool finite = std::isfinite(*scale);
    if (!finite) ++state_.skipped, meter_.drop(share);
    count_skipped(finite, step, /*loss_is_finite=*/true);
    if (finite) prove_checkpoint();
  }
}

}  // namespace tessera::train
