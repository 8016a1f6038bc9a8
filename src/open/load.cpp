#include "open/load.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "models/base/capability.h"
#include "models/base/model.h"
#include "models/detection/detector.h"
#include "models/heads/class_head.h"
#include "models/names/two_tower_names.h"
#include "open/published_pair.h"
#include "open/weights.h"
#include "weights/wrapped_names.h"

namespace tessera::train {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) { return text(c10::IntArrayRef(shape)); }

std::vector<std::string> names_of(const std::vector<TensorView>& tensors) {
  std::vector<std::string> names;
  for (const TensorView& view : tensors) names.push_back(view.name);
  return names;
}

// Tensors under our names, without those that the model computes by itself; `where` in front of errors. A name in
// `own` is ours already: in a file of ours a backbone's family must not take it for another program's.
using Views = std::map<std::string, const TensorView*>;
Views renamed(const std::vector<TensorView>& tensors, const models::Family& family, const std::string& where,
              const std::set<std::string>& own = {}) {
  std::vector<std::string> names = our_names(tensors, family);
  for (size_t i = 0; i < names.size(); ++i)
    if (own.contains(tensors[i].name)) names[i] = tensors[i].name;
  Views views;
  for (size_t i = 0; i < names.size(); ++i)
    if (!names[i].empty() && !views.emplace(names[i], &tensors[i]).second)
      fail("'", where, "': two of its tensors are '", names[i], "' of the model");
  return views;
}

Views renamed(const std::vector<TensorView>& tensors, bool ours, const tasks::Task& task,
              const std::string& path) {
  std::set<std::string> own;
  if (ours)
    for (const auto& [name, tensor] : tasks::named_state(task.parts())) own.insert(name);
  return renamed(tensors, models::find_family(task.backbones().at(0).spec.family), path, own);
}

Views renamed(const WeightFile& file, const tasks::Task& task) {
  return renamed(file.tensors(), file.metadata().contains("tessera.model"), task, file.path());
}

// Tensors of the task that are no backbone's own, and the heads in them.
std::set<std::string> added_names(const tasks::Task& task) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : tasks::named_state(task.parts())) names.insert(name);
  for (const tasks::BackbonePart& part : task.backbones())
    for (const auto& [name, tensor] : named_state(*part.model)) names.erase(part.prefix + name);
  for (const std::string& name : task.output_names()) names.insert(name);
  return names;
}

// Parameters of the backbones that a file need not have.
std::set<std::string> neutral_names(const tasks::Task& task) {
  std::set<std::string> names;
  for (const tasks::BackbonePart& part : task.backbones())
    if (const auto* model = dynamic_cast<const models::NeutralParameters*>(part.model.get()))
      for (const std::string& name : model->neutral_names()) names.insert(part.prefix + name);
  return names;
}

// A stored tensor of another shape made to fit, as the backbone that has it knows; undefined if it cannot.
torch::Tensor fitted(const tasks::Task& task, const std::string& name, const torch::Tensor& stored,
                     torch::IntArrayRef wanted) {
  for (const tasks::BackbonePart& part : task.backbones())
    if (name.starts_with(part.prefix))
      if (torch::Tensor fit = part.model->fit(name.substr(part.prefix.size()), stored); fit.defined())
        return fit;
  return models::fit_input_channels(stored, wanted);
}

bool is_floating(const TensorView& view) {
  return view.dtype == DType::f64 || view.dtype == DType::f32 || view.dtype == DType::f16 ||
         view.dtype == DType::bf16;
}

void copy_into(torch::Tensor target, const TensorView& view, const std::string& path) {
  if (is_floating(view) != target.is_floating_point())
    fail("'", path, "': tensor '", view.name, "' is ", safetensors_name(view.dtype), ", the model needs ",
         c10::toString(target.scalar_type()));
  const torch::NoGradGuard no_grad;
  target.copy_(to_tensor(view));
}

[[noreturn]] void fail_mismatch(const std::string& path, const tasks::Task& task,
                                const std::vector<std::string>& missing,
                                const std::vector<std::string>& left_over,
                                const std::vector<std::string>& wrong) {
  std::vector<std::string> parts;
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty())
      parts.push_back(text(counted(std::ssize(names), "tensor"), " ", what, " (", some_of(names), ")"));
  };
  add("missing", missing);
  add("left over", left_over);
  add("of another shape", wrong);
  fail("'", path, "' does not fit ", task.backbones().at(0).spec.name, ": ", join(parts, ", "));
}

std::string loaded_line(const LoadReport& report, const WeightFile& file) {
  return text("loaded ", counted(report.loaded, "tensor"), " from ", file.path(), " (", file.form(), ")");
}

void describe(LoadReport& report, const WeightFile& file, const tasks::Task& task) {
  report.lines.push_back(loaded_line(report, file));
  if (!report.fresh.empty())
    report.lines.push_back(text("new ", task.outputs(), ": ", some_of(report.fresh)));
  if (!report.reshaped.empty())
    report.lines.push_back("begin anew, of another shape in the file: " + some_of(report.reshaped));
  // Only the number of classes says that such a head may stay: it may have been trained for others.
  const WeightsInfo info = read_weights_info(file.metadata(), file.path());
  if (!report.kept_outputs.empty() && !info.ours)
    report.lines.push_back(text("kept the file's ", task.outputs(), " (", some_of(report.kept_outputs),
                                "), since the number of outputs is the same; the file does not name them"));
  if (!report.neutral.empty())
    report.lines.push_back("not in the file, of no effect at first: " + some_of(report.neutral));
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

// The task's tensors in their order, from views under our names; every one must be there, and no other.
std::vector<TensorView> match_views(const tasks::Task& task, Views views, const std::string& path) {
  std::vector<TensorView> matched;
  std::vector<std::string> missing, left_over, wrong;
  for (const auto& [name, tensor] : tasks::named_state(task.parts())) {
    const auto found = views.find(name);
    if (found == views.end()) {
      missing.push_back(name);
      continue;
    }
    TensorView view = *found->second;
    views.erase(found);
    if (c10::IntArrayRef(view.shape) != tensor.sizes())
      wrong.push_back(text(name, " ", shape_text(view.shape), ", must be ", tensor.sizes()));
    view.name = name;
    matched.push_back(std::move(view));
  }
  for (const auto& left : views) left_over.push_back(left.second->name);
  if (!missing.empty() || !left_over.empty() || !wrong.empty())
    fail_mismatch(path, task, missing, left_over, wrong);
  return matched;
}

}  // namespace

std::vector<TensorView> match_weights(const tasks::Task& task, const WeightFile& file) {
  return match_views(task, renamed(file, task), file.path());
}

std::vector<TensorView> match_weights(const tasks::Task& task, const std::vector<TensorView>& tensors,
                                      bool ours, const std::string& path) {
  return match_views(task, renamed(tensors, ours, task, path), path);
}

LoadReport load_weights(tasks::Task& task, const WeightFile& file) {
  const std::vector<TensorView> views = match_weights(task, file);
  const NamedTensors targets = tasks::named_state(task.parts());
  for (size_t i = 0; i < views.size(); ++i) copy_into(targets[i].second, views[i], file.path());
  LoadReport report;
  report.loaded = static_cast<int64_t>(views.size());
  report.lines.push_back(loaded_line(report, file));
  return report;
}

namespace {

// A tensor of a file under the task's name.
struct Stored {
  std::string published;  // its name in the file
  std::vector<int64_t> shape;
  bool floating = true;
  std::function<torch::Tensor()> read;
};

// By the task's names. Of a published model of images and texts the image tower stands for the task's backbone.
std::map<std::string, Stored> stored_tensors(const tasks::Task& task, const WeightFile& file, bool ours) {
  std::map<std::string, Stored> stored;
  std::vector<std::string> notes;
  const auto pair = ours ? std::nullopt : published_pair(file, notes);
  if (!pair) {
    for (const auto& [name, view] : renamed(file, task))
      stored[name] = {view->name, view->shape, is_floating(*view),
                      [view = view] { return to_tensor(*view); }};
    return stored;
  }
  std::map<std::string, const TensorView*> views;
  for (const TensorView& view : file.tensors()) views[view.name] = &view;
  for (const models::PublishedSource& source : pair->sources) {
    const torch::Tensor whole = models::assemble(
        source, [&](const std::string& published) { return to_tensor(*views.at(published)); });
    stored[name_in_task(source)] = {source.parts[0].name, whole.sizes().vec(), whole.is_floating_point(),
                                    [whole] { return whole; }};
  }
  // Positions, say, are stored without the axes of extent 1 that stand in front of ours.
  for (const auto& [name, tensor] : tasks::named_state(task.parts())) {
    const auto found = stored.find(name);
    if (found == stored.end() || std::ssize(found->second.shape) >= tensor.dim()) continue;
    std::vector<int64_t>& shape = found->second.shape;
    shape.insert(shape.begin(), static_cast<size_t>(tensor.dim() - std::ssize(shape)), 1);
    found->second.read = [read = found->second.read, shape] { return read().reshape(shape); };
  }
  return stored;
}

}  // namespace

LoadReport load_pretrained(tasks::Task& task, const WeightFile& file) {
  const WeightsInfo info = read_weights_info(file.metadata(), file.path());
  std::map<std::string, Stored> stored = stored_tensors(task, file, info.ours);
  const std::set<std::string> added = added_names(task), neutral = neutral_names(task);
  const std::vector<std::string> outputs = task.output_names();
  const bool other_outputs = info.ours && !task.takes_outputs_of(info.task_metadata);
  std::vector<std::string> missing, wrong;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> copies;  // only once everything is known to fit
  LoadReport report;
  for (const auto& [name, tensor] : tasks::named_state(task.parts())) {
    const auto found = stored.find(name);
    const bool fits = found != stored.end() && c10::IntArrayRef(found->second.shape) == tensor.sizes();
    if (added.contains(name) && fits && !other_outputs) report.kept_outputs.push_back(name);
    if (added.contains(name) && (!fits || other_outputs)) {
      report.fresh.push_back(name);
      if (found == stored.end()) continue;
      if (!fits && std::find(outputs.begin(), outputs.end(), name) == outputs.end())
        report.reshaped.push_back(
            text(name, " ", shape_text(found->second.shape), ", here ", tensor.sizes()));
      stored.erase(found);
      continue;
    }
    if (found == stored.end()) {
      (neutral.contains(name) ? report.neutral : missing).push_back(name);
      continue;
    }
    const Stored& view = found->second;
    torch::Tensor value = view.read();
    // In the model's own type: half-precision numbers cannot be interpolated everywhere.
    if (!fits && view.floating) value = fitted(task, name, value.to(tensor.scalar_type()), tensor.sizes());
    if (!value.defined() || value.sizes() != tensor.sizes() || !view.floating) {
      wrong.push_back(text(name, " ", shape_text(view.shape), ", must be ", tensor.sizes()));
    } else {
      if (!fits)
        report.interpolated.push_back(text(name, " ", shape_text(view.shape), " to ", tensor.sizes()));
      copies.emplace_back(tensor, value);
    }
    stored.erase(found);
  }
  if (!missing.empty() || !wrong.empty()) fail_mismatch(file.path(), task, missing, {}, wrong);
  if (task.refuses_other_shapes() && !report.reshaped.empty())
    fail_usage("'", file.path(), "' holds parts of another size: ", some_of(report.reshaped, 2, 200),
               "; settings of the task that made it must be those here, or its backbone alone be given");
  const torch::NoGradGuard no_grad;
  for (auto& [target, value] : copies) target.copy_(value);
  for (const auto& left : stored) report.left_over.push_back(left.second.published);
  report.loaded = static_cast<int64_t>(copies.size());
  describe(report, file, task);
  return report;
}

std::vector<std::string> our_names(const std::vector<TensorView>& tensors, const models::Family& family) {
  const std::vector<std::string> theirs = names_of(tensors);
  std::vector<std::string> ours = models::our_names(family, unwrap_names(theirs).names);
  // What a detector has beside its backbone, as torchvision, detectron2 and mmdet call it.
  const bool detector = std::any_of(theirs.begin(), theirs.end(), [](const std::string& name) {
    return name.starts_with("rpn.") || name.starts_with("rpn_head.") ||
           name.starts_with("proposal_generator.");
  });
  constexpr std::string_view kBody = "backbone.body.";  // torchvision's word for the backbone alone
  for (size_t i = 0; detector && i < theirs.size(); ++i) {
    // Older files of detectron2 hold what its code knows: anchors, and the means of pixels.
    if (theirs[i].find(".cell_anchors.") != std::string::npos || theirs[i] == "pixel_mean" ||
        theirs[i] == "pixel_std")
      ours[i].clear();
    else if (const std::string part = models::detector_name(theirs[i]); !part.empty())
      ours[i] = part;
    else if (theirs[i].starts_with(kBody))
      ours[i] = family.rename(theirs[i].substr(kBody.size()));
  }
  return ours;
}

std::string beside_line(const WeightFile& file, const std::string& family) {
  const UnwrappedNames found = unwrap_names(names_of(file.tensors()));
  if (!found.beside.empty())
    return text("not of the model: ", counted(std::ssize(found.beside), "tensor"), " (",
                some_of(found.beside), "), whose names do not begin with ", found.prefix);
  if (family.empty() || read_weights_info(file.metadata(), file.path()).ours) return "";
  std::vector<std::string> other;
  const std::vector<std::string> ours = our_names(file.tensors(), models::find_family(family));
  for (size_t i = 0; i < ours.size(); ++i) {
    const TensorView& view = file.tensors()[i];
    // Masks, counts and indices follow from the model.
    if (ours[i].empty() && is_floating(view) && !view.name.ends_with("attn_mask")) other.push_back(view.name);
  }
  if (other.empty()) return "";
  return text("not of the model: ", counted(std::ssize(other), "tensor"), " (", some_of(other),
              "), which belong to another part of what the file holds");
}

namespace {

// All of the model's tensors but the head's are in the file, with their shapes, and nothing else is.
bool fits_but_for_the_head(const models::ModelSpec& spec, const Views& views) {
  const auto model = models::meta_classifier(spec);
  const std::vector<std::string>& names = model->head().tensor_names();
  const std::set<std::string> head(names.begin(), names.end());
  size_t found = 0;
  for (const auto& [name, tensor] : named_state(*model->backbone)) {
    const auto view = views.find(name);
    if (view != views.end()) ++found;
    if (head.contains(name)) continue;
    if (view == views.end() || c10::IntArrayRef(view->second->shape) != tensor.sizes()) return false;
  }
  return found == views.size();
}

}  // namespace

namespace {

// "blocks.3.norm1.weight" as "blocks.#.norm1.weight": models of a family differ in their numbers of blocks.
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
    for (const std::string& name : our_names(tensors, family)) found += known.contains(without_numbers(name));
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
    Views views;
    try {
      views = renamed(tensors, family, "");
    } catch (const Error&) {  // two tensors of one name: not this family's
      continue;
    }
    for (const models::Size& size : family.sizes) {
      const models::ModelSpec spec = models::resolve_model(size.name, one_class);
      if (!fits_but_for_the_head(spec, views)) continue;
      std::pair same{spec.settings, models::published_preprocess(spec)};
      if (std::find(known.begin(), known.end(), same) != known.end()) continue;
      known.push_back(std::move(same));
      names.push_back(size.name);
    }
  }
  return names;
}

}  // namespace tessera::train
