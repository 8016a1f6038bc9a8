#include "train/memory.h"

#include <algorithm>

#include "core/memory.h"
#include "nn/allocations.h"
#include "open/device.h"
#include "recipe/recipe.h"
#include "train/trainer.h"

namespace tessera::train {
namespace {

// Calls `pass` with the inputs.
template <class Pass>
int64_t peak_of(const tasks::Inputs& inputs, const Pass& pass) {
  const nn::Allocations allocations;
  pass(inputs);
  return allocations.peak();
}

template <class Pass>
ActivationBytes measure(const tasks::Task& task, int64_t side, tasks::Precision precision, const Pass& pass) {
  const tasks::Inputs single = example_inputs(task, 1, side, torch::kCPU, precision),
                      pair = example_inputs(task, 2, side, torch::kCPU, precision);
  peak_of(single, pass);  // the first pass allocates lasting memory: gradients, packed weights
  const int64_t one = peak_of(single, pass), two = peak_of(pair, pass);
  const int64_t per_sample = std::max<int64_t>(0, two - one);
  return {std::max<int64_t>(0, one - per_sample), per_sample};
}

torch::Tensor loss_of(tasks::Task& task, const tasks::Inputs& inputs, tasks::Precision precision) {
  const tasks::AutocastScope autocast(torch::kCPU, precision);
  return task.loss(inputs, {}, tasks::Collective::alone()).sum;
}

}  // namespace

uint64_t weight_bytes(const Recipe& recipe, const RunPlan& plan) {
  return static_cast<uint64_t>(plan.parameters) * (recipe.train.precision == RunPrecision::fp64 ? 8 : 4) -
         2 * static_cast<uint64_t>(plan.rounded_parameters);
}

bool exceeds_memory(const Recipe& recipe, const RunPlan& plan, int64_t processes) {
  const uint64_t memory = main_memory_bytes();
  return memory > 0 && weight_bytes(recipe, plan) / static_cast<uint64_t>(processes) > memory;
}

tasks::Inputs example_inputs(const tasks::Task& task, int64_t samples, int64_t side, torch::Device device,
                             tasks::Precision precision) {
  const std::vector<tasks::StreamSpec> streams = task.streams();
  std::vector<data::Batch> batches;
  for (const tasks::StreamSpec& stream : streams) {
    data::Batch& batch = batches.emplace_back();
    batch.size = batch.whole = samples;
    const auto transform = stream.transform(side);
    for (const data::Field& field : transform->fields()) {
      data::Column& column = batch.add(field);
      std::fill_n(column.memory.data(), column.memory.size(), std::byte{0});
      if (!field.ragged) continue;  // the largest number of rows
      column.offsets.resize(static_cast<size_t>(samples) + 1);
      for (int64_t i = 0; i <= samples; ++i) column.offsets[static_cast<size_t>(i)] = i * field.shape.at(0);
    }
  }
  task.prepare(batches, {});
  tasks::Inputs inputs;
  for (size_t i = 0; i < streams.size(); ++i)
    inputs.streams.push_back(tasks::to_device(batches[i], streams[i].name, device, precision));
  return inputs;
}

ActivationBytes measure_training(tasks::Task& task, int64_t side, tasks::Precision precision) {
  tasks::set_training(task.parts(), true);
  return measure(task, side, precision,
                 [&](const tasks::Inputs& inputs) { loss_of(task, inputs, precision).backward(); });
}

ActivationBytes measure_evaluation(tasks::Task& task, int64_t side, tasks::Precision precision) {
  tasks::set_training(task.parts(), false);
  const torch::NoGradGuard no_grad;
  return measure(task, side, precision,
                 [&](const tasks::Inputs& inputs) { loss_of(task, inputs, precision); });
}

}  // namespace tessera::train
