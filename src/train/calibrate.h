// Calibration of int8: a step for the inputs of each linear layer, found from pictures, on which int8 rounds
// them instead of each row on a step of its own. Stored as `NAME.input_log_step` beside `NAME.weight`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/loader.h"
#include "models/model.h"
#include "train/ema.h"

namespace tessera::train {

// How often magnitudes occur, in 32 bins an octave: the leading bits of a float.
class Magnitudes {
 public:
  // Fails for a number that is not finite, `name` in front.
  void add(const torch::Tensor& x, const std::string& name);
  bool empty() const { return counts_.empty(); }
  // The step that rounds them to 8 bits with the least mean square error: above half a step a rounding costs
  // step^2 / 12, beyond 127 steps a number becomes the largest.
  double best_step() const;

 private:
  std::vector<int64_t> counts_;
};

// Runs the model in float over the loader's first `pictures` pictures and gives each linear layer that has no
// learned step of its own its step. Returns those tensors under the names that files have. `progress` hears
// of the pictures done; returning false ends with ErrorKind::interrupted.
NamedTensors calibrate(models::Backbone& model, data::Loader& loader, int64_t pictures,
                       const std::function<bool(int64_t done)>& progress);

// The places of the steps among a file's tensors `names` (as the model has them).
void add_input_steps(models::Backbone& model, const std::vector<std::string>& names);
// Fails unless every step can be one: `where` in front.
void check_input_steps(const models::Backbone& model, const std::string& where);

}  // namespace tessera::train
