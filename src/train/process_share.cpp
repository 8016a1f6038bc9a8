#include "train/process_share.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "nn/units.h"
#include "optim/optimiser.h"
#include "parallel/layout.h"
#include "train/setup.h"

namespace tessera::train {
namespace {

uint64_t bytes_of(const NamedTensors& tensors, uint64_t element) {
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : tensors)
    bytes +=
        static_cast<uint64_t>(tensor.numel()) *
        (tensor.scalar_type() == torch::kFloat32 ? element : static_cast<uint64_t>(tensor.element_size()));
  return bytes;
}

// The processes that divide one copy, as one of them sees them, for layouts alone.
parallel::Axis holders_axis(int64_t size, int rank) {
  std::vector<int> members;
  for (int i = 0; i < size; ++i) members.push_back(i);
  return {"holders", std::move(members), rank, nullptr};
}

NamedTensors trained_of(const tasks::Task& task) {
  NamedTensors trained = tasks::named_parameters(task.parts());
  std::erase_if(trained, [](const auto& parameter) { return !parameter.second.requires_grad(); });
  return trained;
}

// Bytes of other processes' rows: in each block that gathers its weights, in all parameters outside blocks, and those that
// travelling in bfloat16 saves.
struct OthersBytes {
  std::vector<uint64_t> units;
  uint64_t outside = 0, trained_outside = 0, saved = 0;
};
OthersBytes bytes_of_others(const tasks::Task& task, const NamedTensors& trained,
                            const parallel::Layout& layout, uint64_t element, bool bf16) {
  std::map<const c10::TensorImpl*, uint64_t> others;
  for (const auto& one : tasks::named_parameters(task.parts()))
    others[one.second.unsafeGetTensorImpl()] =
        bytes_of({one}, element) - bytes_of(layout.cut({one}), element);
  OthersBytes found;
  std::set<const c10::TensorImpl*> rounded;
  if (bf16)
    for (const torch::Tensor& weight : weights_of_products(task.parts()))
      if (weight.scalar_type() == torch::kFloat32) rounded.insert(weight.unsafeGetTensorImpl());
  for (const tasks::Part& part : task.parts())
    for (const auto& unit : nn::units_of(*part.module)) {
      uint64_t bytes = 0;
      for (const torch::Tensor& tensor : unit) {
        const uint64_t one = std::exchange(others[tensor.unsafeGetTensorImpl()], 0);
        bytes += one;
        if (rounded.contains(tensor.unsafeGetTensorImpl())) found.saved += one / 2;
      }
      found.units.push_back(bytes);
    }
  for (const auto& [tensor, bytes] : others) found.outside += bytes;
  for (const auto& one : trained) found.trained_outside += others[one.second.unsafeGetTensorImpl()];
  return found;
}

// In a pipeline a process has its blocks, and all weights outside of blocks.
ProcessShare share_in_pipeline(ProcessShare share, const NamedTensors& trained, const NamedTensors& state,
                               const parallel::Layout::Holders& stages, const parallel::Layout& layout,
                               uint64_t element, int rank) {
  const auto here = [&](NamedTensors tensors) {
    std::erase_if(
        tensors, [&](const auto& one) { return stages.contains(one.first) && stages.at(one.first) != rank; });
    return tensors;
  };
  NamedTensors outside = here(trained);
  share.weights = bytes_of(here(state), element), share.gradients = bytes_of(outside, element);
  const uint64_t own = bytes_of(layout.cut(trained), element);
  std::erase_if(outside, [&](const auto& one) { return stages.contains(one.first); });
  share.scattered = bytes_of(outside, element) - bytes_of(layout.cut(outside), element);
  share.gathered = share.scattered;
  share.reduced = share.replicate > 1 ? own : 0;
  return share;
}

// The share of a process by its rank among those that divide one copy.
ProcessShare share_by_rank(const Recipe& recipe, const tasks::Task& task, ProcessShare share, int rank) {
  const NamedTensors state = tasks::named_state(task.parts()), trained = trained_of(task);
  const uint64_t element = recipe.train.precision == RunPrecision::fp64 ? 8 : 4;
  const auto held_whole = [whole = holds_whole_tensors(recipe)](const std::string&) { return whole; };
  const auto stages = share.pipeline > 1 ? stage_of_each(state, units_of(task.parts()), share.pipeline)
                                         : parallel::Layout::Holders();
  const parallel::Layout layout =
      share.divided() ? parallel::Layout(state, holders_axis(share.holders(), rank), held_whole, stages)
                      : parallel::Layout();
  const NamedTensors mine = layout.cut(trained);
  const uint64_t all = bytes_of(trained, element), own = bytes_of(mine, element);
  share.weights = bytes_of(state, element);
  share.gradients = share.zero >= 2 ? own : all;
  share.optimiser = element * optimiser_values(recipe.optimiser, mine);
  if (recipe.parallel.offload == parallel::Offloaded::optimiser)
    share.offloaded = std::exchange(share.optimiser, 0) + 2 * own;
  if (recipe.train.ema_decay > 0) share.average = bytes_of(layout.cut(state), element);
  if (share.pipeline > 1) return share_in_pipeline(share, trained, state, stages, layout, element, rank);
  if (share.zero == 0) {
    share.reduced = share.processes > 1 ? all : 0;
    return share;
  }
  const auto pieces = share.zero >= 2 ? static_cast<uint64_t>(recipe.train.accumulate) : 1;
  share.scattered = pieces * (all - own);
  share.gathered = all - own;
  share.reduced = share.replicate > 1 ? pieces * own : 0;
  if (share.zero < 3) return share;
  const OthersBytes others =
      bytes_of_others(task, trained, layout, element, recipe.train.precision == RunPrecision::bf16);
  const uint64_t inside = std::accumulate(others.units.begin(), others.units.end(), uint64_t{0});
  share.weights -= inside + others.outside;
  // One block runs while the next one arrives.
  const uint64_t largest = others.units.empty() ? 0 : std::ranges::max(others.units);
  share.whole = others.outside + std::min(2 * largest, inside);
  share.gathered =
      others.trained_outside + 2 * static_cast<uint64_t>(recipe.train.accumulate) * (inside - others.saved);
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
  share.tensor = mesh.degree(parallel::AxisName::tensor);
  share.pipeline = mesh.degree(parallel::AxisName::pipeline);
  check_layers_divide(recipe, task.parts(), share.tensor);
  check_blocks_divide(recipe, task, share.pipeline);
  share.zero = share.holders() > 1 ? recipe.parallel.zero : 0;
  ProcessShare fullest;
  for (int rank = 0; rank < (share.divided() ? share.holders() : 1); ++rank) {
    const ProcessShare one = share_by_rank(recipe, task, share, rank);
    if (rank == 0 || one.held() > fullest.held()) fullest = one;
  }
  return fullest;
}

}  // namespace tessera::train
