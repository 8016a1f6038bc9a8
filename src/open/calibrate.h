// Calibration for int8: finds a step size for the inputs of each linear layer from images. int8 then
// quantises inputs with it, instead of computing a step size for each row. Stored as `NAME.input_log_step`
// next to `NAME.weight`.
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

// A histogram of magnitudes with 32 bins per octave; the bin is given by the leading bits of a float.
class Magnitudes {
 public:
  // Throws an error that begins with `name` if a number is not finite.
  void add(const torch::Tensor& x, const std::string& name);
  bool empty() const { return counts_.empty(); }
  // Returns the step size that rounds the magnitudes to 8 bits with the least mean square error. The rounding
  // error is step_size^2 / 12 from about half a step size on. Magnitudes above 127 steps are clipped.
  double best_step_size() const;

 private:
  std::vector<int64_t> counts_;
};

// Runs the task in float over the loader's first `pictures` images. Adds a step size to each linear layer
// that has no learned one. Returns these step sizes under their names in files. `progress` gets the number of
// images done; if it returns false, throws ErrorKind::interrupted.
NamedTensors calibrate(tasks::Task& task, data::Loader& loader, int64_t pictures,
                       const std::function<bool(int64_t done)>& progress);

// Adds to the model's layers the step sizes among a file's tensors `names` (named as in the model).
void add_input_step_sizes(models::Backbone& model, const std::vector<std::string>& names);
// Throws an error that begins with `where` unless every step size is valid.
void check_input_step_sizes(const models::Backbone& model, const std::string& where);

}  // namespace tessera::train
