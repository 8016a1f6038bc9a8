// The first weights of a run: drawn or read, whole or within a process's share, and the same in all processes.
#include <algorithm>
#include <map>
#include <span>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "nn/linear.h"
#include "nn/own_rows.h"
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

int64_t freeze_parameters(const NamedTensors& parameters, const std::vector<std::string>& patterns) {
  std::vector<std::string> names;
  for (const auto& parameter : parameters) names.push_back(parameter.first);
  for (const std::string& pattern : patterns) {
    require_match("train.freeze", pattern, names);
    for (const auto& [name, parameter] : parameters)
      if (matches(pattern, name)) parameter.set_requires_grad(false);
  }
  const int64_t frozen = std::count_if(parameters.begin(), parameters.end(),
                                       [](const auto& p) { return !p.second.requires_grad(); });
  if (frozen == std::ssize(parameters))
    fail_usage("train.freeze leaves nothing to train: it matches all ", frozen, " parameters");
  return frozen;
}

std::vector<torch::Tensor> weights_of_products(const std::vector<tasks::Part>& parts) {
  std::map<const c10::TensorImpl*, int> readers;
  std::vector<torch::Tensor> weights;
  for (const tasks::Part& part : parts)
    for (const auto& module : part.module->modules()) {
      for (const torch::Tensor& own : module->parameters(/*recurse=*/false))
        ++readers[own.unsafeGetTensorImpl()];
      if (const auto* const linear = dynamic_cast<const nn::LinearImpl*>(module.get());
          linear && linear->only_multiplies())
        weights.push_back(linear->weight);
    }
  std::erase_if(weights, [&](const torch::Tensor& one) { return readers[one.unsafeGetTensorImpl()] > 1; });
  return weights;
}

std::string freeze(const Recipe& recipe, const std::vector<tasks::Part>& parts) {
  const NamedTensors parameters = tasks::named_parameters(parts);
  const int64_t count = freeze_parameters(parameters, recipe.train.freeze);
  const std::string note =
      count > 0 ? text("frozen: ", count, " of ", parameters.size(), " parameter tensors") : "";
  if (recipe.train.frozen == FrozenType::same) return note;
  if (recipe.train.precision != RunPrecision::bf16)
    fail_usage("train.frozen = 'bf16' needs train.precision = 'bf16', it is '",
               name_of(recipe.train.precision), "'");
  std::vector<torch::Tensor> weights = weights_of_products(parts);
  std::erase_if(weights, [](const torch::Tensor& one) { return one.requires_grad(); });
  if (weights.empty())
    fail_usage(
        "train.frozen = 'bf16': no linear layer is frozen, name layers in train.freeze or leave it out");
  for (const torch::Tensor& weight : weights) nn::change_type(weight, torch::kBFloat16);
  return text(note, ", ", weights.size(), " of them in bfloat16");
}

std::optional<nn::OwnRows> own_rows(const Recipe& recipe, const parallel::World* world) {
  if (!world || recipe.parallel.zero < 3 || holds_whole_tensors(recipe)) return {};
  if (world->axis(parallel::AxisName::pipeline).size() > 1) return {};  // whole blocks, not rows
  if (recipe.quantization.enabled() || !recipe.model.select_from.empty())
    return {};  // they read whole weights
  const parallel::Axis& axis = world->holders();
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
  else if (world &&
           (setup.recipe.parallel.zero >= 3 || world->axis(parallel::AxisName::pipeline).size() > 1) &&
           share_first_weights(setup.model.state, *world))
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
