// Calibration of int8: a step size for the inputs of each linear layer, found from pictures, on which int8
// rounds them instead of each row on a step size of its own. Stored as `NAME.input_log_step` beside
// `NAME.weight`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/loading/loader.h"
#include "models/base/model.h"
#include "nn/named_tensors.h"
#include "tasks/base/task.h"

namespace tessera::train {

// How often magnitudes occur, in 32 bins an octave: the leading bits of a float.
class Magnitudes {
 public:
  // Fails for a number that is not finite, `name` in front.
  void add(const torch::Tensor& x, const std::string& name);
  bool empty() const { return counts_.empty(); }
  // The step size that rounds them to 8 bits with the least mean square error: above half a step size a
  // rounding costs step_size^2 / 12, beyond 127 of them a number becomes the largest.
  double best_step_size() const;

 private:
  std::vector<int64_t> counts_;
};

// Runs the task in float over the loader's first `pictures` pictures and gives each linear layer that has no
// learned step size of its own its step size. Returns those tensors under the names that files have.
// `progress` hears of the pictures done; returning false ends with ErrorKind::interrupted.
NamedTensors calibrate(tasks::Task& task, data::Loader& loader, int64_t pictures,
                       const std::function<bool(int64_t done)>& progress);

// The places of the step sizes among a file's tensors `names` (as the model has them).
void add_input_step_sizes(models::Backbone& model, const std::vector<std::string>& names);
// Fails unless every step size can be one: `where` in front.
void check_input_step_sizes(const models::Backbone& model, const std::string& where);

}  // namespace tessera::train
