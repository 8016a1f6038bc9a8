#include "train/process_share.h"

#include <algorithm>

#include "optim/optimiser.h"
#include "parallel/layout.h"
#include "train/setup.h"

namespace tessera::train {
namespace {

uint64_t bytes_of(const NamedTensors& tensors, uint64_t element) {
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : tensors)
    bytes += static_cast<uint64_t>(tensor.numel()) *
             (tensor.is_floating_point() ? element : static_cast<uint64_t>(tensor.element_size()));
  return bytes;
}

// The axis `shard` as one of its processes sees it, for layouts alone.
parallel::Axis shard_axis(int64_t size, int rank) {
  std::vector<int> members;
  for (int i = 0; i < size; ++i) members.push_back(i);
  return {"shard", std::move(members), rank, nullptr};
}

NamedTensors trained_of(const Recipe& recipe, const tasks::Task& task) {
  NamedTensors trained = tasks::named_parameters(task.parts());
  const auto& patterns = recipe.train.freeze;
  std::erase_if(trained, [&](const auto& parameter) {
    return !parameter.second.requires_grad() ||
           std::any_of(patterns.begin(), patterns.end(),
                       [&](const std::string& pattern) { return matches(pattern, parameter.first); });
  });
  return trained;
}

// The share of a process by its rank on the axis `shard`.
ProcessShare share_by_rank(const Recipe& recipe, const NamedTensors& state, const NamedTensors& trained,
                           ProcessShare share, int rank) {
  const uint64_t element = recipe.train.precision == RunPrecision::fp64 ? 8 : 4;
  const auto held_whole = [whole = holds_whole_tensors(recipe)](const std::string&) { return whole; };
  const parallel::Layout layout = share.shard > 1
                                      ? parallel::Layout(state, shard_axis(share.shard, rank), held_whole)
                                      : parallel::Layout();
  const NamedTensors mine = layout.cut(trained);
  const uint64_t all = bytes_of(trained, element), own = bytes_of(mine, element);
  share.weights = bytes_of(state, element);
  share.gradients = share.zero == 2 ? own : all;
  share.optimiser = element * optimiser_values(recipe.optimiser, mine);
  if (recipe.train.ema_decay > 0) share.average = bytes_of(layout.cut(state), element);
  if (share.shard == 1) {
    share.reduced = share.replicate > 1 ? all : 0;
    return share;
  }
  const auto pieces = share.zero == 2 ? static_cast<uint64_t>(recipe.train.accumulate) : 1;
  share.scattered = pieces * (all - own);
  share.gathered = all - own;
  share.reduced = share.replicate > 1 ? pieces * own : 0;
  return share;
}

}  // namespace

uint64_t optimiser_values(const OptimiserSpec& spec, const NamedTensors& parameters) {
  ParameterGroup shapes;
  for (const auto& [name, parameter] : parameters)
    shapes.parameters.emplace_back(name,
                                   torch::empty_like(parameter, parameter.options().device(torch::kMeta)));
  uint64_t values = 0;
  for (const auto& [name, state] : make_optimiser(spec, {std::move(shapes)})->state())
    values += static_cast<uint64_t>(state.numel());
  return values;
}

ProcessShare share_of_process(const Recipe& recipe, const tasks::Task& task, int64_t processes) {
  const parallel::Mesh mesh(recipe.parallel, processes);
  parallel::require_trainable(recipe.parallel, mesh);
  ProcessShare share;
  share.processes = processes;
  share.replicate = mesh.degree(parallel::AxisName::replicate);
  share.shard = mesh.degree(parallel::AxisName::shard);
  share.zero = share.shard > 1 ? recipe.parallel.zero : 0;
  const NamedTensors state = tasks::named_state(task.parts()), trained = trained_of(recipe, task);
  ProcessShare fullest;
  for (int rank = 0; rank < share.shard; ++rank) {
    const ProcessShare one = share_by_rank(recipe, state, trained, share, rank);
    if (rank == 0 || one.held() > fullest.held()) fullest = one;
  }
  return fullest;
}

}  // namespace tessera::train
