#include "train/model_shape.h"

#include <torch/cuda.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "core/memory.h"
#include "core/progress.h"
#include "open/device.h"
#include "train/memory.h"
#include "train/setup.h"

namespace tessera::train {
namespace {

constexpr int64_t kShallow = 1, kDeep = 3, kFew = 1, kMany = 4;
constexpr int kRepeats = 5;

struct Measured {
  double few_s = 0, many_s = 0, step_s = 0;  // forward and backward; the optimiser
  double sample_bytes = 0, resident_bytes = 0;
};

void wait_for(torch::Device device) {
  if (device.is_cuda()) torch::cuda::synchronize(device.index());
}

// Returns the median time of a call in seconds, after one call to warm up.
template <class Call>
double median_seconds(torch::Device device, const Call& call) {
  std::vector<double> seconds;
  for (int i = 0; i <= kRepeats; ++i) {
    wait_for(device);
    const double began = steady_seconds();
    call();
    wait_for(device);
    if (i > 0) seconds.push_back(steady_seconds() - began);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

Measured measure(Recipe recipe, int64_t depth) {
  *depth_of(recipe) = Value(depth);
  const Compute compute = choose_compute(recipe.train);
  const RunData data = open_data(recipe, /*may_be_missing=*/true);
  const WeightsInfo info = describe_run(recipe, data);
  const auto task =
      tasks::find_task(tasks::task_name(recipe.task)).make(task_setup(recipe, data, info, compute));
  const std::vector<int64_t> sizes = input_sizes(recipe);
  const int64_t side = *std::max_element(sizes.begin(), sizes.end());
  Measured measured;
  if (compute.device.is_cpu())
    measured.sample_bytes = static_cast<double>(measure_training(*task, side, compute.precision).per_sample);
  tasks::move(task->parts(), compute.device, parameter_type(compute.precision));
  tasks::set_training(task->parts(), true);
  ParameterGroup trained;
  for (const auto& [name, parameter] : tasks::named_parameters(task->parts()))
    if (parameter.requires_grad()) trained.parameters.emplace_back(name, parameter);
  const auto optimiser = make_optimiser(recipe.optimiser, {std::move(trained)});
  const auto pass_seconds = [&](int64_t samples) {
    const tasks::Inputs inputs = example_inputs(*task, samples, side, compute.device, compute.precision);
    return median_seconds(compute.device, [&] {
      const tasks::AutocastScope autocast(compute.device, compute.precision);
      (task->loss(inputs, {}, tasks::Collective::alone()).sum / task->weight(inputs)).backward();
    });
  };
  measured.few_s = pass_seconds(kFew);
  measured.step_s = median_seconds(compute.device, [&] { optimiser->step(0, 1); });
  measured.resident_bytes =
      static_cast<double>(resident_bytes());  // before freed activations of many samples add to it
  measured.many_s = pass_seconds(kMany);
  return measured;
}

}  // namespace

Value* depth_of(Recipe& recipe) {
  Value* depth = recipe.model.settings.find("depth");
  for (const char* const trained : {"language.depth", "encoder.depth"})
    if (!depth) depth = recipe.task.find(trained);
  return depth && depth->is_int() ? depth : nullptr;
}

plan::MeasuredBlock measure_block(const Recipe& recipe) {
  Recipe own = recipe;
  if (!depth_of(own))
    fail_usage("--measure: model ", recipe.model.name,
               " has no depth, so its layers cannot be measured apart");
  const Measured shallow = measure(recipe, kShallow), deep = measure(recipe, kDeep);
  constexpr double kLayers = kDeep - kShallow, kSamples = kMany - kFew;
  const auto slope = [](double few, double many) { return std::max(0.0, (many - few) / kSamples); };
  const double shallow_sample = slope(shallow.few_s, shallow.many_s),
               deep_sample = slope(deep.few_s, deep.many_s);
  const auto fixed = [](const Measured& m, double sample) { return std::max(0.0, m.few_s - kFew * sample); };
  plan::MeasuredBlock block;
  block.per_sample_s = std::max(0.0, (deep_sample - shallow_sample) / kLayers);
  block.fixed_s = std::max(0.0, (fixed(deep, deep_sample) - fixed(shallow, shallow_sample)) / kLayers);
  block.step_s = std::max(0.0, (deep.step_s - shallow.step_s) / kLayers);
  block.outer_per_sample_s = std::max(0.0, shallow_sample - kShallow * block.per_sample_s);
  block.outer_fixed_s = std::max(0.0, fixed(shallow, shallow_sample) - kShallow * block.fixed_s);
  block.outer_step_s = std::max(0.0, shallow.step_s - kShallow * block.step_s);
  block.layer_bytes = std::max(0.0, (deep.sample_bytes - shallow.sample_bytes) / kLayers);
  block.outer_bytes = std::max(0.0, shallow.sample_bytes - kShallow * block.layer_bytes);
  block.program_bytes = shallow.resident_bytes;
  return block;
}

}  // namespace tessera::train
