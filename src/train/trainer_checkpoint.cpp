// Checkpoints of a run: each process writes whole tensors, which are joined one at a time from parts of all processes.
#include <algorithm>

#include "core/error.h"
#include "core/memory.h"
#include "core/progress.h"
#include "train/trainer_run.h"
#include "weights/load_tensors.h"

namespace tessera::train {
namespace {

// A tensor of a file that all processes make together.
struct JoinedTensor {
  std::string name;  // in the layout; "" for a number that is the same everywhere
  torch::Tensor part;
  bool mine;  // true if this process writes it
};

torch::Tensor joined(const JoinedTensor& one, const parallel::Shards& shards) {
  return one.name.empty() ? one.part : shards.join(one.name, one.part);
}

// Writes those of this process, and takes part in the joining of the others. Returns the checksum.
std::string write_joined(const std::string& path, const std::vector<JoinedTensor>& tensors,
                         const CheckpointFile& file, const parallel::Shards& shards) {
  auto next = tensors.begin();
  const auto join_others = [&](bool until_mine) {
    while (next != tensors.end() && !(until_mine && next->mine)) joined(*next++, shards);
  };
  std::string checksum;
  try {
    checksum = save_each_tensor(path, file.tensors, file.metadata, [&] {
      join_others(/*until_mine=*/true);
      return joined(*next++, shards);
    });
  } catch (const Error&) {  // such as a full disk: other processes still need the rows of this one
    join_others(false);
    throw;
  }
  join_others(false);
  return checksum;
}

}  // namespace

// The optimiser's tensors are "exp_avg.NAME" and so on; its counts of updates, which are the same everywhere, are the
// leader's.
CheckpointFile Trainer::joined_file(const char* name, const NamedTensors& parts, Metadata metadata) const {
  CheckpointFile file{.name = name, .tensors = {}, .metadata = std::move(metadata), .divided = true};
  const parallel::Shards& shards = *optimisation_.shards;
  const bool of_optimiser = name == std::string(kOptimiserFile);
  std::vector<JoinedTensor> all;
  for (const auto& [own, part] : parts) {
    const bool counts = of_optimiser && own.starts_with(kCountOfUpdates);
    const std::string tensor = counts ? "" : of_optimiser ? name_of_parameter(own) : own;
    all.push_back({tensor, part, counts ? leader() : shards.owns(tensor)});
    const at::IntArrayRef shape = counts ? part.sizes() : at::IntArrayRef(shards.layout().shape(tensor));
    if (all.back().mine)
      file.tensors.emplace_back(own, torch::empty(shape, part.options().device(torch::kMeta)));
  }
  file.write = [&shards, all, file](const std::string& path) {
    return write_joined(path, all, file, shards);
  };
  return file;
}

// Returns the files of the current step with the tensors that this process writes.
std::vector<CheckpointFile> Trainer::checkpoint_files() const {
  const Metadata metadata = weights_metadata(model_.info);
  const parallel::Shards* const shards = optimisation_.shards.get();
  NamedTensors frozen;
  const auto without_frozen = [&](NamedTensors tensors) {
    std::erase_if(tensors, [&](const auto& one) { return model_.frozen.contains(one.first); });
    return tensors;
  };
  for (const auto& one : model_.state)
    if (model_.frozen.contains(one.first)) frozen.push_back(one);
  const auto file_of = [&](const char* name, const NamedTensors& tensors, bool divided) {
    CheckpointFile file = divided ? joined_file(name, without_frozen(tensors), metadata)
                                  : CheckpointFile{name, without_frozen(tensors), metadata};
    file.frozen = frozen;
    return file;
  };
  const bool whole = !shards || !shards->divides_weights();
  std::vector<CheckpointFile> files;
  // The first checkpoints write frozen weights, which later ones link to. If they are divided they come together here.
  if (!whole && world_.any(leader() && !frozen.empty() && !store_.keeps_frozen()))
    files.push_back({.name = kFrozenFile,
                     .tensors = {},
                     .metadata = {},
                     .joined = true,
                     .write = [this, frozen, rows = shards->rows_of(frozen)](const std::string& path) {
                       return write_joined_at_first(path, frozen, rows, {});
                     }});
  files.insert(files.end(),
               {file_of(kWeightsFile, whole ? model_.state : shards->rows_of(model_.state), !whole),
                shards ? joined_file(kOptimiserFile, optimisation_.optimiser->state(), {})
                       : CheckpointFile{kOptimiserFile, optimisation_.optimiser->state(), {}}});
  if (optimisation_.ema) files.push_back(file_of(kEmaFile, optimisation_.ema->tensors(), shards != nullptr));
  return files;
}

void Trainer::write_checkpoint() {
  const double began = steady_seconds();
  state_.seconds = seconds();
  if (leader()) state_.metrics_bytes = directory_.sync_metrics();
  Writers writers;
  if (const parallel::Shards* const shards = optimisation_.shards.get()) {
    const parallel::Axis& axis = world_.holders();
    writers = {leader(), shards->first_copy() ? axis.rank() : -1, axis.size(),
               [this](const std::string& bytes) { return world_.gather(bytes); }};
  }
  const uint64_t bytes = store_.save(state_.step, checkpoint_files(), write_state(state_, setup_), writers);
  if (optimisation_.shards) trim_freed_memory();
  for (Observer* observer : options_.observers)
    observer->checkpointed(store_.directory_of(state_.step), bytes, steady_seconds() - began);
}

}  // namespace tessera::train
