#include "optim/optimiser.h"

#include "ops/torch.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "nn/own_rows.h"
#include "ops/gpu.h"
#include "optim/optimiser_kind.h"
#include "optim/plain_tensors.h"

namespace tessera::train {
namespace {

const std::vector<OptimiserKind>& kinds() {
  static const std::vector<OptimiserKind> table = {adamw(), adam(), lamb(), lars(), muon(), sgd()};
  return table;
}

const OptimiserKind& find_kind(const std::string& name, const std::string& where) {
  for (const OptimiserKind& kind : kinds())
    if (kind.name == name) return kind;
  const auto names = optimiser_names();
  fail_usage(where, ".name is '", name, "', must be one of ", join(names, ", "), did_you_mean(name, names));
}

}  // namespace

std::vector<std::string> optimiser_names() {
  std::vector<std::string> names;
  for (const OptimiserKind& kind : kinds()) names.emplace_back(kind.name);
  return names;
}

bool reads_whole_tensors(const std::string& name) { return find_kind(name, "optimiser").reads_whole; }

std::vector<KeyDescription> optimiser_keys(const std::string& name) {
  return find_kind(name, "optimiser").keys;
}

OptimiserSpec resolve_optimiser(const Value& settings, const std::string& where) {
  OptimiserSpec spec;
  if (!settings.is_table()) fail_usage(where, " is ", settings.type_name(), ", must be a table");
  if (const Value* name = settings.find("name")) {
    if (!name->is_string()) fail_usage(where, ".name is ", name->type_name(), ", must be a string");
    spec.common.name = name->as_string();
  }
  spec.settings = find_kind(spec.common.name, where).resolve(settings, where);
  auto copy = [&](const char* key, auto& field, const char*) {
    using Field = std::decay_t<decltype(field)>;
    const Value& value = *spec.settings.find(key);
    if constexpr (std::is_same_v<Field, double>)
      field = value.as_double();
    else if constexpr (std::is_same_v<Field, std::string>)
      field = value.as_string();
    else
      config_detail::read_field(field, value, where + "." + key);
  };
  spec.common.visit(copy);
  check_setting(where, "lr", spec.common.lr, 0, HUGE_VAL);
  check_setting(where, "lr_batch", spec.common.lr_batch, 0, HUGE_VAL);
  check_setting(where, "weight_decay", spec.common.weight_decay, 0, HUGE_VAL);
  if (!(spec.common.layer_decay > 0 && spec.common.layer_decay <= 1))
    fail_usage(where, ".layer_decay is ", shortest(spec.common.layer_decay),
               ", must be above 0 and at most 1");
  for (const ParameterRule& rule : spec.common.groups) {
    if (rule.pattern.empty()) fail_usage(where, ".groups: a group without a pattern");
    check_setting(where + ".groups", "lr_scale", rule.lr_scale, 0, HUGE_VAL);
    check_setting(where + ".groups", "weight_decay", rule.weight_decay, -HUGE_VAL, HUGE_VAL);
  }
  return spec;
}

std::unique_ptr<Optimiser> make_optimiser(const OptimiserSpec& spec, std::vector<ParameterGroup> groups) {
  return find_kind(spec.common.name, "optimiser").make(spec.settings, std::move(groups));
}

void check_setting(const std::string& where, const char* key, double value, double low, double below) {
  if (!(value >= low && value < below))
    fail_usage(where, ".", key, " is ", shortest(value), ", must be at least ", shortest(low), " and below ",
               shortest(below));
}

void check_betas(const std::string& where, const std::vector<double>& betas) {
  if (betas.size() != 2) fail_usage(where, ".betas has ", betas.size(), " numbers, must have 2");
  for (const double beta : betas) check_setting(where, "betas", beta, 0, 1);
}

Optimiser::Optimiser(std::vector<ParameterGroup> groups, const std::vector<std::string>& state_names)
    : Optimiser(std::move(groups), [&](const std::string&, const torch::Tensor&) { return state_names; }) {}

namespace {

// Returns zeros like a tensor. Large ones of the CPU take memory once they are written.
torch::Tensor zeros_for_now(const torch::Tensor& like) {
  constexpr int64_t kLarge = int64_t{1} << 14;  // numbers
  const bool late = like.device().is_cpu() && like.is_contiguous() && like.numel() >= kLarge;
  return late ? nn::lazy_zeros(like.sizes(), like.scalar_type()) : torch::zeros_like(like);
}

// True if a tensor that nothing else holds can take the place of another one.
bool may_replace(const torch::Tensor& to, const torch::Tensor& from) {
  return from.use_count() == 1 && from.storage().use_count() == 1 && from.device() == to.device() &&
         from.scalar_type() == to.scalar_type() && from.strides() == to.strides();
}

}  // namespace

Optimiser::Optimiser(std::vector<ParameterGroup> groups, const StateNames& state_names)
    : groups_(std::move(groups)) {
  std::set<std::string> seen;
  for (const ParameterGroup& group : groups_)
    for (const auto& [name, parameter] : group.parameters) {
      check(seen.insert(name).second, "optimiser: parameter '", name, "' is in two groups or twice in one");
      check(parameter.defined() && parameter.is_floating_point(), "optimiser: parameter '", name,
            "' is not a floating-point tensor");
      Slot slot;
      slot.name = name;
      slot.parameter = parameter;
      slot.lr_scale = group.lr_scale;
      slot.weight_decay = slot.first_decay = group.weight_decay;
      const torch::Tensor like = parameter.detach();
      slot.state_names = state_names(name, like);
      for (size_t i = 0; i < slot.state_names.size(); ++i)
        slot.state.push_back(group.state_follows ? zeros_for_now(like) : torch::zeros_like(like));
      slots_.push_back(std::move(slot));
    }
}

std::vector<torch::Tensor> Optimiser::parameters() const {
  std::vector<torch::Tensor> all;
  for (const Slot& slot : slots_) all.push_back(slot.parameter);
  return all;
}

void Optimiser::step(double lr, double gradient_scale, double decay_factor) {
  if (counts_there_.defined()) {
    const std::vector<int64_t> known = counts();
    for (size_t i = 0; i < slots_.size(); ++i) slots_[i].updates = known[i];
    steps_ = known.back(), counts_there_.reset();
  }
  if (copies_) copies_->fetch();
  step(lr, gradient_scale, {}, decay_factor, nullptr);
  if (copies_) copies_->send();
}

// Returns the updates of each slot and, last, the steps.
std::vector<int64_t> Optimiser::counts() const {
  std::vector<int64_t> all;
  if (!counts_there_.defined()) {
    for (const Slot& slot : slots_) all.push_back(slot.updates);
    all.push_back(steps_);
    return all;
  }
  const torch::Tensor host = counts_there_.cpu();
  for (int64_t i = 0; i < host.numel(); ++i)
    all.push_back(static_cast<int64_t>(host.const_data_ptr<double>()[i]));
  return all;
}

void Optimiser::step(double lr, double gradient_scale, const torch::Tensor& scale_there, double decay_factor,
                     AveragingThere* averaging) {
  const torch::NoGradGuard no_grad;
  if (scale_there.defined()) count_there(scale_there);
  ++steps_;
  const auto fits = [&](const Slot& slot) {
    if (composition_ || !plain::is_plain(slot.parameter) || !plain::is_plain(slot.gradient)) return false;
    return std::all_of(slot.state.begin(), slot.state.end(), [&](const torch::Tensor& state) {
      return plain::is_plain(state) && plain::same_layout(state, slot.parameter);
    });
  };
  Slots all, there, flat, others;
  for (Slot& slot : slots_) {
    slot.weight_decay = slot.first_decay * decay_factor;
    slot.gradient = slot.parameter.grad();
    if (!slot.gradient.defined()) continue;
    check(slot.gradient.layout() == torch::kStrided, "optimiser: the gradient of '", slot.name,
          "' is sparse");
    ++slot.updates;
    if (slot.parameter.numel() == 0) continue;  // other processes hold its rows
    all.push_back(&slot);
    const bool by_kernel = kernel_takes(slot);
    if (!by_kernel && !fits(slot)) {
      others.push_back(&slot);
      continue;
    }
    (by_kernel ? there : flat).push_back(&slot);
    // The loops run along memory, so a gradient in another memory order is first copied into its parameter's
    // order.
    if (!plain::same_layout(slot.gradient, slot.parameter) || slot.gradient.scalar_type() != torch::kFloat32)
      slot.gradient = torch::empty_like(slot.parameter.detach()).copy_(slot.gradient);
  }
  // With parts of the gradients elsewhere, all processes ask for a norm of all, or none does.
  const bool alone = there.size() == all.size() && !norm_of_all_;
  const double scale = alone ? gradient_scale : rescale(all, gradient_scale);
  if (!there.empty()) {
    const torch::Tensor factor =
        scale_there.defined() ? scale_there : torch::full({}, scale, there[0]->parameter.detach().options());
    update_there(there, lr, decay_factor, alone ? rescale_there(there, factor) : factor, averaging);
  }
  if (!flat.empty()) update_plain(flat, lr, scale);
  // On the CPU one by one, since temporaries as large as the model cost more than calls; elsewhere all at
  // once.
  Slots elsewhere;
  for (Slot* slot : others)
    if (slot->parameter.device().is_cpu())
      update_tensors({slot}, lr, scale);
    else
      elsewhere.push_back(slot);
  if (!elsewhere.empty()) update_tensors(elsewhere, lr, scale);
  // The loops bypass the tensors' methods, but the version counter must still change for views and saved
  // graphs.
  flat.insert(flat.end(), there.begin(), there.end());
  for (Slot* slot : flat) slot->parameter.unsafeGetTensorImpl()->bump_version();
  for (Slot* slot : there)
    if (slot->half.defined()) ops::keep_half(slot->parameter, slot->half);
  for (Slot* slot : all) slot->gradient.reset();
}

double Optimiser::norm_of(const Slots& slots) const {
  std::vector<torch::Tensor> gradients;
  for (const Slot* slot : slots) gradients.push_back(slot->gradient);
  const double own = gradient_norm(gradients, 2);
  return norm_of_all_ ? norm_of_all_(own, 2) : own;
}

void Optimiser::zero_grad() {
  if (copies_) copies_->zero_grad();
  for (Slot& slot : slots_) {
    slot.parameter.mutable_grad().reset();
    slot.gradient.reset();
  }
}

NamedTensors Optimiser::state() const {
  NamedTensors tensors;
  size_t most = 0;
  for (const Slot& slot : slots_) most = std::max(most, slot.state.size());
  for (size_t i = 0; i < most; ++i)
    for (const Slot& slot : slots_)
      if (i < slot.state.size()) tensors.emplace_back(slot.state_names[i] + "." + slot.name, slot.state[i]);
  const std::vector<int64_t> known = counts();
  for (size_t i = 0; i < slots_.size(); ++i)
    if (known[i] != known.back())
      tensors.emplace_back(kCountOfUpdates + slots_[i].name, torch::tensor(known[i], torch::kInt64));
  return tensors;
}

namespace {

// Returns a stored count of a parameter's updates; `steps` without one.
int64_t updates_in(const torch::Tensor& count, int64_t steps, const std::string& name) {
  if (!count.defined()) return steps;
  check(count.scalar_type() == torch::kInt64 && count.numel() == 1, "optimiser state: 'updates.", name,
        "' must be one int64");
  const auto updates = count.item<int64_t>();
  check(updates >= 0 && updates <= steps, "optimiser state: 'updates.", name, "' is ", updates,
        ", must be 0 to ", steps);
  return updates;
}

}  // namespace

void Optimiser::load_state(int64_t steps, NamedTensors tensors) {
  const torch::NoGradGuard no_grad;
  check(steps >= 0, "optimiser state: step count is ", steps);
  std::map<std::string, torch::Tensor> given(tensors.begin(), tensors.end());
  tensors.clear();
  const auto take = [&](const std::string& name) {
    auto node = given.extract(name);
    return node ? std::move(node.mapped()) : torch::Tensor();
  };
  // Checks everything before changing anything.
  std::vector<std::pair<torch::Tensor*, torch::Tensor>> loaded;
  std::vector<int64_t> updates;
  for (Slot& slot : slots_) {
    for (size_t i = 0; i < slot.state.size(); ++i) {
      const std::string name = slot.state_names[i] + "." + slot.name;
      torch::Tensor from = take(name);
      check(from.defined(), "optimiser state: tensor '", name, "' is missing");
      check(from.sizes() == slot.state[i].sizes(), "optimiser state: tensor '", name, "' has shape ",
            from.sizes(), ", must be ", slot.state[i].sizes());
      loaded.emplace_back(&slot.state[i], std::move(from));
    }
    updates.push_back(updates_in(take(kCountOfUpdates + slot.name), steps, slot.name));
  }
  check(given.empty(), "optimiser state: tensor '", given.empty() ? "" : given.begin()->first,
        "' belongs to no parameter of this optimiser");
  for (auto& [to, from] : loaded)
    if (may_replace(*to, from))
      *to = std::move(from);
    else
      to->copy_(from), from.reset();
  for (size_t i = 0; i < slots_.size(); ++i) slots_[i].updates = updates[i];
  steps_ = steps, counts_there_.reset();
}

}  // namespace tessera::train
