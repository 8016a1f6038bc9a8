#include "weights/load_tensors.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "nn/host_values.h"
#include "nn/own_rows.h"

namespace tessera::train {
namespace {

struct Match {
  const StoredTensor* stored = nullptr;  // null: missing, as allowed
  torch::Tensor fitted = {};             // replaces the stored tensor
};

struct Matches {
  std::vector<Match> list;  // in the order of the targets
  LoadedTensors report;
};

void fail_misfit(const std::string& where, const std::string& misfit, const std::vector<std::string>& missing,
                 const std::vector<std::string>& surplus, const std::vector<std::string>& wrong) {
  std::vector<std::string> parts;
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty())
      parts.push_back(text(counted(std::ssize(names), "tensor"), " ", what, " (", some_of(names), ")"));
  };
  add("missing", missing);
  add("left over", surplus);
  add("of another shape", wrong);
  fail("'", where, "' ", misfit, ": ", join(parts, ", "));
}

bool fits(const StoredTensor& stored, const torch::Tensor& target, const LoadRules& rules) {
  const c10::IntArrayRef shape(stored.shape);
  if (shape == target.sizes()) return true;
  return rules.reshape && std::ssize(stored.shape) != target.dim() &&
         c10::multiply_integers(shape) == target.numel();
}

Matches match(const NamedTensors& targets, const StoredTensors& stored, const LoadRules& rules) {
  Matches out;
  std::vector<std::string> missing, wrong;
  std::set<const StoredTensor*> taken;
  for (const auto& [name, target] : targets) {
    Match& found = out.list.emplace_back();
    found.stored = stored.find(name);
    if (!found.stored) {
      const bool allowed = rules.may_miss && rules.may_miss(name);
      (allowed ? out.report.missing : missing).push_back(name);
      continue;
    }
    taken.insert(found.stored);
    const std::string shape = text(c10::IntArrayRef(found.stored->shape));
    if (fits(*found.stored, target, rules)) continue;
    // Interpolates in the model's dtype, since not every device can interpolate half-precision numbers.
    if (rules.fit && is_floating(found.stored->view()))
      found.fitted = rules.fit(name, found.stored->read().to(target.scalar_type()), target.sizes());
    if (found.fitted.defined() && found.fitted.sizes() == target.sizes())
      out.report.fitted.push_back(text(name, " ", shape, " to ", target.sizes()));
    else
      wrong.push_back(text(name, " ", shape, ", must be ", target.sizes()));
  }
  for (const StoredTensor& tensor : stored.tensors())
    if (!taken.contains(&tensor)) out.report.surplus.push_back(tensor.view().name);
  std::ranges::sort(out.report.surplus);
  const bool refused = !rules.surplus && !out.report.surplus.empty();
  if (!missing.empty() || !wrong.empty() || refused)
    fail_misfit(stored.where(), rules.misfit, missing, out.report.surplus, wrong);
  return out;
}

void copy(const std::string& name, const torch::Tensor& target, const Match& match, const LoadRules& rules,
          const StoredTensors& stored) {
  const TensorView& view = match.stored->view();
  if (is_floating(view) != target.is_floating_point())
    fail("'", stored.where(), "': tensor '", printable(view.name), "' is ", safetensors_name(view.dtype),
         ", the model needs ", c10::toString(target.scalar_type()));
  const torch::Tensor value =
      match.fitted.defined() ? match.fitted : match.stored->read().view(target.sizes());
  if (!rules.finite.empty() && !value.isfinite().all().item<bool>())
    fail("'", stored.where(), "': tensor '", printable(view.name),
         "' holds numbers that are not finite: ", rules.finite);
  if (rules.take)
    rules.take(name, value);
  else
    nn::copy_rows(target, value, /*read=*/true);
}

}  // namespace

LoadedTensors load_tensors(const NamedTensors& targets, const StoredTensors& stored, const LoadRules& rules,
                           const WeightFile* file) {
  Matches found = match(targets, stored, rules);
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (!found.list[i].stored) continue;
    try {
      copy(targets[i].first, targets[i].second, found.list[i], rules, stored);
    } catch (const Error& error) {
      const std::string line = error.what();
      if (line.find(stored.where()) != std::string::npos) throw;
      fail("'", stored.where(), "': ", line);
    }
    found.list[i].fitted.reset();
    if (file)
      for (const TensorView* view : found.list[i].stored->views) file->forget(*view);
    ++found.report.count;
  }
  nn::note_load();
  return found.report;
}

std::vector<const StoredTensor*> match_tensors(const NamedTensors& targets, const StoredTensors& stored,
                                               const LoadRules& rules) {
  std::vector<const StoredTensor*> matched;
  for (const Match& one : match(targets, stored, rules).list) matched.push_back(one.stored);
  return matched;
}

namespace {

// Returns the tensors of a file with our names.
StoredTensors own_tensors(const WeightFile& file) {
  std::vector<NamePlace> same;
  for (const TensorView& view : file.tensors()) same.push_back({view.name, view.name});
  return {file.tensors(), same, file.path()};
}

constexpr const char* kNotOfTheRun = "does not fit the run";

}  // namespace

void load_own(const NamedTensors& targets, const WeightFile& file,
              std::function<void(const std::string& name, const torch::Tensor& value)> take) {
  load_tensors(targets, own_tensors(file), {.misfit = kNotOfTheRun, .take = std::move(take)}, &file);
}

std::vector<TensorView> own_views(const NamedTensors& targets, const WeightFile& file) {
  const StoredTensors stored = own_tensors(file);
  std::vector<torch::Tensor> assembled;  // none: the names are ours
  return views_of(match_tensors(targets, stored, {.misfit = kNotOfTheRun}), assembled);
}

int64_t numbers_in(const std::vector<TensorView>& views) {
  int64_t numbers = 0;
  for (const TensorView& view : views)
    numbers += static_cast<int64_t>(view.bytes.size() / size_of(view.dtype));
  return numbers;
}

void check_claims(int64_t needed, const WeightFile& file, const std::string& misfit) {
  constexpr int64_t kHarmless = 1 << 24;  // numbers: 64 MB in float32
  const int64_t stored = numbers_in(file.tensors());
  if (needed / 4 > stored && needed > kHarmless)
    fail("'", file.path(), "' ", misfit, ": it holds ", human_count(static_cast<double>(stored)),
         " numbers, the model has ", human_count(static_cast<double>(needed)), " parameters");
}

}  // namespace tessera::train
