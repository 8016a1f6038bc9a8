#include "open/load.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "models/base/capability.h"
#include "models/base/model.h"
#include "models/detection/detector.h"
#include "models/heads/class_head.h"
#include "open/published_pair.h"
#include "open/weights.h"
#include "weights/load_tensors.h"
#include "weights/name_tables.h"
#include "weights/published_folder.h"

namespace tessera::train {
namespace {

bool is_ours(const WeightFile& file) { return file.metadata().contains("tessera.model"); }

std::string misfit_of(const tasks::Task& task) { return "does not fit " + task.backbones().at(0).spec.name; }

// Returns the tensors of the task outside its backbones, and the heads inside them.
std::set<std::string> added_names(const tasks::Task& task) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : tasks::named_state(task.parts())) names.insert(name);
  for (const tasks::BackbonePart& part : task.backbones())
    for (const auto& [name, tensor] : named_state(*part.model)) names.erase(part.prefix + name);
  for (const std::string& name : task.output_names()) names.insert(name);
  return names;
}

// Returns the parameters of the backbones that may be missing in a file.
std::set<std::string> neutral_names(const tasks::Task& task) {
  std::set<std::string> names;
  for (const tasks::BackbonePart& part : task.backbones())
    if (const auto* model = dynamic_cast<const models::NeutralParameters*>(part.model.get()))
      for (const std::string& name : model->neutral_names()) names.insert(part.prefix + name);
  return names;
}

// Converts a stored tensor of another shape, by the rules of its backbone; undefined if it cannot fit.
torch::Tensor fitted_to_backbone(const tasks::Task& task, const std::string& name,
                                 const torch::Tensor& stored) {
  for (const tasks::BackbonePart& part : task.backbones())
    if (name.starts_with(part.prefix))
      if (torch::Tensor fit = part.model->fit(name.substr(part.prefix.size()), stored); fit.defined())
        return fit;
  return {};
}
torch::Tensor fitted(const tasks::Task& task, const std::string& name, const torch::Tensor& stored,
                     torch::IntArrayRef wanted) {
  const torch::Tensor fit = fitted_to_backbone(task, name, stored);
  return fit.defined() ? fit : models::fit_input_channels(stored, wanted);
}

std::string loaded_line(const LoadReport& report, const WeightFile& file) {
  return text("loaded ", counted(report.loaded, "tensor"), " from ", file.path(), " (", file.form(), ")");
}

void describe(LoadReport& report, const WeightFile& file, const tasks::Task& task) {
  report.lines.push_back(loaded_line(report, file));
  if (!report.fresh.empty())
    report.lines.push_back(text("new ", task.outputs(), ": ", some_of(report.fresh)));
  if (!report.reshaped.empty())
    report.lines.push_back("initialised, of another shape in the file: " + some_of(report.reshaped));
  // Such a head is kept only because its number of classes matches: it may have been trained for other
  // classes.
  const WeightsInfo info = read_weights_info(file.metadata(), file.path());
  if (!report.kept_outputs.empty() && !info.ours)
    report.lines.push_back(text("kept the file's ", task.outputs(), " (", some_of(report.kept_outputs),
                                "), since the number of outputs is the same; the file does not name them"));
  if (!report.neutral.empty())
    report.lines.push_back("not in the file, first values kept: " + some_of(report.neutral));
  if (!report.interpolated.empty())
    report.lines.push_back("positions interpolated: " + some_of(report.interpolated));
  if (!report.left_over.empty())
    report.lines.push_back(text("not used: ", counted(std::ssize(report.left_over), "tensor"), " (",
                                some_of(report.left_over), ")"));
  if (const std::string warning = info.ours ? task.metadata_warning(info.task_metadata) : "";
      !warning.empty())
    report.lines.push_back(text("warning: '", file.path(), "': ", warning));
  const std::string family = task.classifier() ? task.backbones().at(0).spec.family : "";
  if (const std::string line = beside_line(file, family); !line.empty()) report.lines.push_back(line);
}

}  // namespace

StoredTensors stored_for(const tasks::Task& task, const std::vector<TensorView>& views, bool ours,
                         const std::string& path) {
  std::vector<NamePlace> places = places_of(names_of(views), task.backbones().at(0).spec.family);
  std::set<std::string> own;
  if (ours)
    for (const auto& [name, tensor] : tasks::named_state(task.parts())) own.insert(name);
  for (NamePlace& place : places)
    if (own.contains(place.theirs)) place = {place.theirs, place.theirs};
  return {views, places, path};
}

std::vector<const StoredTensor*> match_weights(const tasks::Task& task, const StoredTensors& stored) {
  return match_tensors(tasks::named_state(task.parts()), stored,
                       {.misfit = misfit_of(task), .reshape = true});
}

LoadReport load_weights(tasks::Task& task, const WeightFile& file) {
  LoadReport report;
  // Files of other programs may have additional axes of extent 1. The image size in a published configuration
  // may differ from that of the stored positions.
  LoadRules rules{.misfit = misfit_of(task), .reshape = !is_ours(file)};
  if (!is_ours(file) && is_published_name(file.path()))
    rules.fit = [&](const std::string& name, const torch::Tensor& value, torch::IntArrayRef) {
      return fitted_to_backbone(task, name, value);
    };
  LoadedTensors loaded = load_tensors(tasks::named_state(task.parts()),
                                      stored_for(task, file.tensors(), is_ours(file), file.path()), rules);
  report.loaded = loaded.count;
  report.interpolated = std::move(loaded.fitted);
  report.lines.push_back(loaded_line(report, file));
  for (const std::string& one : report.interpolated) report.lines.push_back("positions interpolated: " + one);
  return report;
}

namespace {

// Returns the tensors by the task's names. In published models of images and texts, the image tower is the
// task's backbone.
StoredTensors stored_tensors(const tasks::Task& task, const WeightFile& file, bool ours) {
  std::vector<std::string> notes;
  if (const auto pair = ours ? std::nullopt : published_pair(file, notes)) return stored_pair(file, *pair);
  return stored_for(task, file.tensors(), ours, file.path());
}

// The task's additions to its backbones: loaded if the file has them for the same outputs, else initial
// values are kept.
struct Added {
  std::set<std::string> names, taken, seen;  // seen: in the file
};

Added sort_added(const tasks::Task& task, const StoredTensors& stored, bool other_outputs,
                 LoadReport& report) {
  Added added{added_names(task), {}, {}};
  const std::vector<std::string> outputs = task.output_names();
  for (const auto& [name, tensor] : tasks::named_state(task.parts())) {
    if (!added.names.contains(name)) continue;
    const StoredTensor* found = stored.find(name);
    if (found) added.seen.insert(found->view().name);
    if (found && c10::IntArrayRef(found->shape) == tensor.sizes() && !other_outputs) {
      report.kept_outputs.push_back(name);
      added.taken.insert(name);
      continue;
    }
    report.fresh.push_back(name);
    if (found && c10::IntArrayRef(found->shape) != tensor.sizes() &&
        std::find(outputs.begin(), outputs.end(), name) == outputs.end())
      report.reshaped.push_back(text(name, " ", c10::IntArrayRef(found->shape), ", here ", tensor.sizes()));
  }
  return added;
}

}  // namespace

LoadReport load_pretrained(tasks::Task& task, const WeightFile& file) {
  const WeightsInfo info = read_weights_info(file.metadata(), file.path());
  const StoredTensors stored = stored_tensors(task, file, info.ours);
  const std::set<std::string> neutral = neutral_names(task);
  LoadReport report;
  const Added added =
      sort_added(task, stored, info.ours && !task.takes_outputs_of(info.task_metadata), report);
  NamedTensors targets;
  for (const auto& target : tasks::named_state(task.parts()))
    if (!added.names.contains(target.first) || added.taken.contains(target.first)) targets.push_back(target);
  if (task.refuses_other_shapes() && !report.reshaped.empty())
    fail_usage("'", file.path(), "' holds parts of another size: ", some_of(report.reshaped, 2, 200),
               "; settings of the task that made it must be those here, or its backbone alone be given");
  LoadedTensors loaded =
      load_tensors(targets, stored,
                   {.misfit = misfit_of(task),
                    .surplus = true,
                    .may_miss = [&](const std::string& name) { return neutral.contains(name); },
                    .fit = [&](const std::string& name, const torch::Tensor& value,
                               torch::IntArrayRef wanted) { return fitted(task, name, value, wanted); }});
  std::erase_if(loaded.surplus, [&](const std::string& name) { return added.seen.contains(name); });
  report.loaded = loaded.count;
  report.neutral = std::move(loaded.missing);
  report.interpolated = std::move(loaded.fitted);
  report.left_over = std::move(loaded.surplus);
  describe(report, file, task);
  return report;
}

std::string beside_line(const WeightFile& file, const std::string& family) {
  const UnwrappedNames found = unwrap_names(names_of(file.tensors()));
  if (!found.beside.empty())
    return text("not of the model: ", counted(std::ssize(found.beside), "tensor"), " (",
                some_of(found.beside), "), whose names do not begin with ", found.prefix);
  if (family.empty() || read_weights_info(file.metadata(), file.path()).ours) return "";
  std::vector<std::string> other;
  std::map<std::string, const TensorView*> views;
  for (const TensorView& view : file.tensors()) views[view.name] = &view;
  for (const NamePlace& place : places_of(names_of(file.tensors()), family)) {
    // Masks, counts and indices are derived from the model.
    if (place.ours.empty() && is_floating(*views.at(place.theirs)) && !place.theirs.ends_with("attn_mask"))
      other.push_back(place.theirs);
  }
  if (other.empty()) return "";
  return text("not of the model: ", counted(std::ssize(other), "tensor"), " (", some_of(other),
              "), which belong to another part of the file");
}

namespace {

std::vector<int64_t> without_ones(c10::IntArrayRef shape) {
  std::vector<int64_t> rest = shape.vec();
  std::erase(rest, 1);
  return rest;
}

// True if the file has all tensors of the model except the head's, with the same shapes, and no others.
bool fits_but_for_the_head(const models::ModelSpec& spec, const StoredTensors& stored) {
  const auto model = models::meta_classifier(spec);
  const std::vector<std::string>& names = model->head().tensor_names();
  const std::set<std::string> head(names.begin(), names.end());
  size_t found = 0;
  for (const auto& [name, tensor] : named_state(*model->backbone)) {
    const StoredTensor* one = stored.find(name);
    if (one) ++found;
    if (head.contains(name)) continue;
    if (!one) return false;
    const c10::IntArrayRef shape(one->shape);
    const bool same_numbers = shape.size() != tensor.sizes().size() &&
                              c10::multiply_integers(shape) == tensor.numel() && tensor.dim() > 1;
    if (without_ones(shape) != without_ones(tensor.sizes()) && !same_numbers) return false;
  }
  return found == stored.tensors().size();
}

}  // namespace

namespace {

// Returns "blocks.#.norm1.weight" for "blocks.3.norm1.weight": models of a family differ in their numbers of
// blocks.
std::string without_numbers(const std::string& name) {
  std::vector<std::string> parts;
  for (const std::string& part : split(name, '.')) parts.push_back(parse_int(part) ? "#" : part);
  return join(parts, ".");
}

}  // namespace

std::vector<std::string> families_alike(const std::vector<TensorView>& tensors) {
  std::vector<std::string> alike;
  for (const models::Family& family : models::families()) {
    std::set<std::string> known;
    const auto model = models::meta_classifier(models::resolve_model(family.sizes.front().name));
    for (const auto& [name, tensor] : named_state(*model->backbone)) known.insert(without_numbers(name));
    size_t found = 0;
    for (const NamePlace& place : places_of(names_of(tensors), family.name))
      found += known.contains(without_numbers(place.ours));
    if (2 * found > tensors.size()) alike.push_back(family.name);
  }
  return alike;
}

std::vector<std::string> sizes_that_fit(const std::vector<TensorView>& tensors) {
  Value one_class;
  one_class.set("classes", 1);
  std::vector<std::string> names;
  std::vector<std::pair<Value, Value>> known;  // settings and preprocessing
  for (const models::Family& family : models::families()) {
    std::optional<StoredTensors> stored;
    try {
      stored.emplace(tensors, places_of(names_of(tensors), family.name), "");
    } catch (const Error&) {  // two tensors with the same name: not this family
      continue;
    }
    for (const models::Size& size : family.sizes) {
      const models::ModelSpec spec = models::resolve_model(size.name, one_class);
      if (!fits_but_for_the_head(spec, *stored)) continue;
      std::pair same{spec.settings, models::published_preprocess(spec)};
      if (std::find(known.begin(), known.end(), same) != known.end()) continue;
      known.push_back(std::move(same));
      names.push_back(size.name);
    }
  }
  return names;
}

}  // namespace tessera::train
