#include "core/error.h"
#include "models/backbones/baselines.h"

namespace tessera::models {

double rate_at(const RateSchedule& s, int64_t step) {
  if (s.mode == RateMode::standard) return s.rate;
  const int64_t early = s.cutoff_epoch * s.steps_per_epoch;
  if (s.mode == RateMode::late) return step < early ? 0 : s.rate;
  if (step >= early) return 0;
  if (s.shape == RateShape::constant || step == 0) return s.rate;
  if (step + 1 == early) return 0;
  return s.rate - static_cast<double>(step) * (s.rate / static_cast<double>(early - 1));
}

std::vector<double> rates(const RateSchedule& s) {
  check(s.epochs >= 0 && s.steps_per_epoch >= 0 && s.cutoff_epoch >= 0 && s.cutoff_epoch <= s.epochs,
        "rate schedule: ", s.epochs, " epochs of ", s.steps_per_epoch, " steps with a cut-off at epoch ",
        s.cutoff_epoch, ": the cut-off must be within the epochs");
  std::vector<double> values;
  for (int64_t step = 0; step < s.epochs * s.steps_per_epoch; ++step) values.push_back(rate_at(s, step));
  return values;
}

torch::Tensor select_weights(const torch::Tensor& large, torch::IntArrayRef shape) {
  check(large.dim() == static_cast<int64_t>(shape.size()), "weight selection: a tensor of shape ",
        large.sizes(), " cannot be cut to ", shape);
  torch::Tensor selected = large;
  for (int64_t axis = 0; axis < large.dim(); ++axis) {
    const int64_t from = large.size(axis), to = shape[static_cast<size_t>(axis)];
    check(to > 0 && from >= to, "weight selection: axis ", axis, " of ", from, " elements cannot be cut to ",
          to);
    const torch::Tensor index =
        from % to == 0 ? torch::arange(to) * (from / to)
                       : torch::linspace(0, static_cast<double>(from - 1), to).round().to(torch::kInt64);
    selected = selected.index_select(axis, index.to(large.device()));
  }
  return selected;
}

}  // namespace tessera::models
