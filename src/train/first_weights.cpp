// The first weights of a run: drawn or read, whole or within a process's share, and the same in all processes.
#include <algorithm>
#include <span>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "open/open_language.h"
#include "tasks/language/language_part.h"
#include "train/setup.h"

namespace tessera::train {
namespace {

// Throws Error if processes read other weights. Collective.
void check_same_weights(const nn::OwnRows& rows, parallel::World& world) {
  const std::vector<std::string> all = world.gather(checksum_of(std::as_bytes(std::span(rows.seen()))));
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      fail("process ", rank, " of ", world.size(),
           " read other weights than the first one: every process must read the same files");
}

}  // namespace

std::optional<nn::OwnRows> own_rows(const Recipe& recipe, const parallel::World* world) {
  if (!world || recipe.parallel.zero < 3 || holds_whole_tensors(recipe)) return {};
  if (recipe.quantization.enabled() || !recipe.model.select_from.empty())
    return {};  // they read whole weights
  const parallel::Axis& axis = world->axis(parallel::AxisName::shard);
  if (axis.size() == 1) return {};
  return nn::OwnRows(axis.rank(), axis.size());
}

void build_model(Setup& setup, const WeightsInfo& info, bool continued, std::optional<nn::OwnRows>& rows) {
  if (rows) {
    const nn::OwnRowsScope scope(&*rows);
    setup.model = build_task(setup.recipe, setup.data, info, setup.compute, continued);
  }
  if (rows && rows->all_in(setup.model.state)) return;
  rows.reset();
  setup.model = {};
  setup.model = build_task(setup.recipe, setup.data, info, setup.compute, continued);
}

void divide(Setup& setup, const std::optional<nn::OwnRows>& rows, parallel::World* world) {
  // Each process keeps rows of its own first weights, which must be rows of the same.
  if (rows)
    check_same_weights(*rows, *world);
  else if (world && setup.recipe.parallel.zero >= 3 && share_first_weights(setup.model.state, *world))
    setup.model.notes.emplace_back(kSharedNote);
  setup.optimisation = make_optimisation(setup.recipe, setup.model, setup.plan, world);
  if (!rows) return;
  const parallel::Shards& shards = *setup.optimisation.shards;
  shards.updated(/*frozen=*/true);
  shards.gather(shards.undivided(setup.model.state));
}

std::string begin_language(tasks::LanguageBeginner& task, const std::string& path) {
  OpenedLanguage opened;
  std::optional<nn::OwnRows> rows;
  nn::OwnRows* const all = nn::OwnRowsScope::rows();
  if (all) rows.emplace(all->another());
  {
    const nn::OwnRowsScope scope(rows ? &*rows : nullptr);
    opened = open_decoder(path, torch::kFloat32);
  }
  if (rows && !rows->all_in(named_state(*opened.language))) {  // such as merged low-rank weights
    opened = {};
    const nn::OwnRowsScope whole(nullptr);
    opened = open_decoder(path, torch::kFloat32);
  }
  if (rows) all->see(*rows);
  task.begin_language(*opened.language, opened.tokeniser.value());
  return text("language model: as in ", opened.file);
}

bool share_first_weights(const NamedTensors& state, parallel::World& world) {
  std::string sums;
  for (const auto& [name, tensor] : state) {
    const torch::Tensor plain = tensor.detach().to(torch::kCPU).contiguous();
    sums += checksum_of({static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes()});
  }
  const std::vector<std::string> all = world.gather(checksum_of(as_bytes(sums)));
  if (std::count(all.begin(), all.end(), all[0]) == std::ssize(all)) return false;
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : state) {
    torch::Tensor first =
        tensor.detach().to(torch::kCPU, tensor.scalar_type(), false, /*copy=*/true).contiguous();
    if (!world.leader()) first.zero_();
    world.sum(first);
    tensor.copy_(first);
  }
  return true;
}

}  // namespace tessera::train
