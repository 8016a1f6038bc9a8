#include "train/weights.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "core/config.h"
#include "core/error.h"
#include "core/text.h"
#include "io/file.h"
#include "train/checkpoint.h"
#include "train/json_value.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNamesShown = 4;

torch::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return torch::kFloat64;
    case DType::f32:
      return torch::kFloat32;
    case DType::f16:
      return torch::kFloat16;
    case DType::bf16:
      return torch::kBFloat16;
    case DType::i64:
      return torch::kInt64;
    case DType::i32:
      return torch::kInt32;
    case DType::i16:
      return torch::kInt16;
    case DType::i8:
      return torch::kInt8;
    case DType::u8:
      return torch::kUInt8;
    case DType::boolean:
      return torch::kBool;
  }
  fail("unknown element type");
}

DType dtype_of(const torch::Tensor& tensor, const std::string& name) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32,
                            DType::i16, DType::i8, DType::u8, DType::boolean})
    if (scalar_type(dtype) == tensor.scalar_type()) return dtype;
  fail("tensor '", name, "': element type ", c10::toString(tensor.scalar_type()),
       " has no place in safetensors");
}

std::string shape_text(c10::IntArrayRef shape) {
  std::string out;
  for (const int64_t size : shape) out += (out.empty() ? "" : ", ") + std::to_string(size);
  return "[" + out + "]";
}

// "a, b, c, d and 8 more".
std::string some_of(const std::vector<std::string>& names) {
  std::vector<std::string> shown(
      names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kNamesShown)));
  std::string out = join(shown, ", ");
  if (names.size() > kNamesShown) out += text(" and ", names.size() - kNamesShown, " more");
  return out;
}

// The first line of what LibTorch says; the rest is a stack trace.
std::string first_line(const std::string& message) { return message.substr(0, message.find('\n')); }

Value class_names_value(const std::vector<std::string>& names) {
  Value::Array items;
  for (const std::string& name : names) items.emplace_back(name);
  return items;
}

const std::string* entry(const Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? nullptr : &found->second;
}

models::ModelSpec read_model_spec(const std::string& json, const std::string& where) {
  const Value table = parse_json_value(json, where);
  const auto part = [&](const char* key) -> const std::string& {
    const Value* value = table.find(key);
    if (!value || !value->is_string()) fail(where, ": no '", key, "'");
    return value->as_string();
  };
  const Value* settings = table.find("settings");
  if (!settings || !settings->is_table()) fail(where, ": no 'settings'");
  models::ModelSpec spec{.name = part("name"), .family = part("family"), .settings = {}};
  spec.settings = models::find_family(spec.family).resolve(*settings);
  return spec;
}

}  // namespace

// --- writing

std::string save_tensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata) {
  std::vector<torch::Tensor> kept;  // the views' memory
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : tensors) {
    const torch::Tensor& plain = kept.emplace_back(tensor.detach().to(torch::kCPU).contiguous());
    views.push_back({name,
                     dtype_of(plain, name),
                     plain.sizes().vec(),
                     {static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes()}});
  }
  return write_safetensors(path, views, metadata);
}

Metadata weights_metadata(const WeightsInfo& info) {
  Value model;
  model.set("name", info.model.name);
  model.set("family", info.model.family);
  model.set("settings", info.model.settings);
  return {{"format", "pt"},  // what readers of published weights expect
          {"tessera.model", json_text(model)},
          {"tessera.class_names", json_text(class_names_value(info.class_names))},
          {"tessera.preprocess", json_text(write_config(info.preprocess))},
          {"tessera.task", "classify"},
          {"tessera.multi_label", info.multi_label ? "true" : "false"},
          {"tessera.recipe", info.recipe}};
}

std::string save_weights(const std::string& path, const NamedTensors& tensors, const WeightsInfo& info) {
  return save_tensors(path, tensors, weights_metadata(info));
}

// --- reading

WeightsInfo read_weights_info(const Metadata& metadata, const std::string& name) {
  WeightsInfo info;
  const std::string* model = entry(metadata, "tessera.model");
  if (!model) return info;
  info.ours = true;
  try {
    info.model = read_model_spec(*model, "tessera.model");
    if (const std::string* names = entry(metadata, "tessera.class_names")) {
      const Value list = parse_json_value(*names, "tessera.class_names");
      if (!list.is_array()) fail("tessera.class_names is ", list.type_name(), ", must be an array");
      for (const Value& item : list.as_array()) {
        if (!item.is_string()) fail("tessera.class_names holds ", item.type_name(), ", must hold strings");
        info.class_names.push_back(item.as_string());
      }
    }
    if (const std::string* preprocess = entry(metadata, "tessera.preprocess"))
      info.preprocess =
          read_config<data::Preprocess>(parse_json_value(*preprocess, "tessera.preprocess"), "preprocess");
    if (const std::string* multi = entry(metadata, "tessera.multi_label"))
      info.multi_label = *multi == "true";
    if (const std::string* recipe = entry(metadata, "tessera.recipe")) info.recipe = *recipe;
  } catch (const Error& error) {
    fail("'", name, "': metadata: ", error.what());
  }
  return info;
}

torch::Tensor to_tensor(const TensorView& view) {
  torch::Tensor tensor = torch::empty(view.shape, torch::TensorOptions(scalar_type(view.dtype)));
  check(tensor.nbytes() == view.bytes.size(), "tensor '", view.name, "' has ", view.bytes.size(),
        " bytes, its shape ", shape_text(view.shape), " needs ", tensor.nbytes());
  if (!view.bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), view.bytes.data(), view.bytes.size());
  return tensor;
}

NamedTensors read_tensors(const SafetensorsFile& file) {
  NamedTensors tensors;
  for (const TensorView& view : file.tensors()) tensors.emplace_back(view.name, to_tensor(view));
  return tensors;
}

void copy_tensors(const NamedTensors& from, const NamedTensors& to, const std::string& where) {
  const std::map<std::string, torch::Tensor> stored(from.begin(), from.end());
  const torch::NoGradGuard no_grad;
  for (const auto& [name, target] : to) {
    const auto found = stored.find(name);
    if (found == stored.end()) fail("'", where, "': tensor '", name, "' is missing");
    if (found->second.sizes() != target.sizes())
      fail("'", where, "': tensor '", name, "' is ", shape_text(found->second.sizes()), ", must be ",
           shape_text(target.sizes()));
    torch::Tensor(target).copy_(found->second);
  }
  if (from.size() != to.size()) fail("'", where, "' has ", from.size(), " tensors, must have ", to.size());
}

// --- loading

namespace {

bool is_floating(DType dtype) { return c10::isFloatingType(scalar_type(dtype)); }

// The file's tensors under our names.
std::map<std::string, const TensorView*> renamed(const SafetensorsFile& file, const models::Family& family) {
  std::map<std::string, const TensorView*> views;
  for (const TensorView& view : file.tensors()) {
    const std::string name = family.rename ? family.rename(view.name) : view.name;
    if (!views.emplace(name, &view).second)
      fail("'", file.path(), "': two of its tensors are '", name, "' of the model");
  }
  return views;
}

void copy_into(torch::Tensor& target, const TensorView& view, const std::string& path) {
  if (is_floating(view.dtype) != target.is_floating_point())
    fail("'", path, "': tensor '", view.name, "' is ", safetensors_name(view.dtype), ", the model needs ",
         c10::toString(target.scalar_type()));
  const torch::NoGradGuard no_grad;
  target.copy_(to_tensor(view));
}

// Parameters that a new head brings: those that reset_head replaces. It draws them from the model's seed
// again, so that a head that has been asked for its names is what it was before.
std::set<std::string> head_names(models::Backbone& model, int64_t classes) {
  const NamedTensors before = named_state(model);
  model.reset_head(classes);
  std::set<std::string> names;
  for (const auto& [name, tensor] : named_state(model))
    if (std::none_of(before.begin(), before.end(),
                     [&](const auto& old) { return old.second.is_same(tensor); }))
      names.insert(name);
  return names;
}

int64_t classes_of(const models::ModelSpec& spec) {
  const Value* classes = spec.settings.find("classes");
  return classes && classes->is_int() ? classes->as_int() : 0;
}

[[noreturn]] void fail_mismatch(const std::string& path, const models::ModelSpec& spec,
                                const std::vector<std::string>& missing,
                                const std::vector<std::string>& left_over,
                                const std::vector<std::string>& wrong) {
  std::vector<std::string> parts;
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) parts.push_back(text(names.size(), " ", what, " (", some_of(names), ")"));
  };
  add("missing", missing);
  add("left over", left_over);
  add("of another shape", wrong);
  fail("'", path, "' does not fit ", spec.name, ": tensors ", join(parts, ", "));
}

}  // namespace

LoadReport load_weights(models::Backbone& model, const models::ModelSpec& spec, const std::string& path) {
  const SafetensorsFile file(path);
  auto views = renamed(file, models::find_family(spec.family));
  std::vector<std::string> missing, left_over, wrong;
  LoadReport report;
  const NamedTensors targets = named_state(model);
  for (const auto& [name, tensor] : targets) {
    const auto found = views.find(name);
    if (found == views.end())
      missing.push_back(name);
    else if (c10::IntArrayRef(found->second->shape) != tensor.sizes())
      wrong.push_back(
          text(name, " ", shape_text(found->second->shape), ", must be ", shape_text(tensor.sizes())));
  }
  std::set<std::string> known;
  for (const auto& target : targets) known.insert(target.first);
  for (const auto& [name, view] : views)
    if (!known.contains(name)) left_over.push_back(view->name);
  if (!missing.empty() || !left_over.empty() || !wrong.empty())
    fail_mismatch(path, spec, missing, left_over, wrong);
  for (auto [name, tensor] : targets) copy_into(tensor, *views.at(name), path);
  report.loaded = static_cast<int64_t>(targets.size());
  report.lines.push_back(text("loaded ", report.loaded, " tensors from ", path));
  return report;
}

namespace {

void describe(LoadReport& report, const std::string& path, int64_t classes) {
  report.lines.push_back(text("loaded ", report.loaded, " tensors from ", path));
  if (!report.fresh.empty())
    report.lines.push_back(text("new head for ", classes, " classes: ", some_of(report.fresh)));
  if (!report.interpolated.empty())
    report.lines.push_back("positions interpolated: " + some_of(report.interpolated));
  if (!report.left_over.empty())
    report.lines.push_back(
        text("not used: ", report.left_over.size(), " tensors (", some_of(report.left_over), ")"));
}

}  // namespace

LoadReport load_pretrained(models::Backbone& model, const models::ModelSpec& spec,
                           const std::vector<std::string>& class_names, const std::string& path) {
  const SafetensorsFile file(path);
  auto views = renamed(file, models::find_family(spec.family));
  const WeightsInfo info = read_weights_info(file.metadata(), path);
  const auto head = head_names(model, classes_of(spec));
  const bool other_classes = info.ours && info.class_names != class_names;
  std::vector<std::string> missing, wrong;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> copies;  // only once everything is known to fit
  LoadReport report;
  for (const auto& [name, tensor] : named_state(model)) {
    const auto found = views.find(name);
    const bool fits = found != views.end() && c10::IntArrayRef(found->second->shape) == tensor.sizes();
    if (head.contains(name) && (!fits || other_classes)) {
      report.fresh.push_back(name);
      if (found != views.end()) views.erase(found);
      continue;
    }
    if (found == views.end()) {
      missing.push_back(name);
      continue;
    }
    const TensorView& view = *found->second;
    torch::Tensor stored = to_tensor(view);
    if (!fits) stored = model.fit(name, stored);
    if (!stored.defined() || stored.sizes() != tensor.sizes() || !is_floating(view.dtype)) {
      wrong.push_back(text(name, " ", shape_text(view.shape), ", must be ", shape_text(tensor.sizes())));
    } else {
      if (!fits)
        report.interpolated.push_back(
            text(name, " ", shape_text(view.shape), " to ", shape_text(tensor.sizes())));
      copies.emplace_back(tensor, stored);
    }
    views.erase(found);
  }
  if (!missing.empty() || !wrong.empty()) fail_mismatch(path, spec, missing, {}, wrong);
  const torch::NoGradGuard no_grad;
  for (auto& [target, stored] : copies) target.copy_(stored);
  for (const auto& left : views) report.left_over.push_back(left.second->name);
  report.loaded = static_cast<int64_t>(copies.size());
  describe(report, path, static_cast<int64_t>(class_names.size()));
  return report;
}

// --- opening

namespace {

// The weights file that a path stands for.
std::string weights_file(const std::string& path, bool raw) {
  if (!fs::is_directory(path)) return path;
  if (file_exists(path + "/manifest.json")) {
    const StoredCheckpoint checkpoint = read_checkpoint(path);
    const bool averaged = !raw && file_exists(checkpoint.path(kEmaFile));
    return checkpoint.path(averaged ? kEmaFile : kWeightsFile);
  }
  if (!raw)
    for (const char* name : {"model.safetensors", "best.safetensors"})
      if (file_exists(path + "/" + name)) return path + "/" + name;
  std::vector<std::string> notes;
  if (const auto checkpoint = CheckpointStore(path + "/checkpoints").newest(notes))
    return weights_file(checkpoint->directory, raw);
  fail("'", path,
       "' holds no weights: it must be a run directory, a checkpoint directory or a .safetensors file",
       notes.empty() ? "" : "; ", notes.empty() ? "" : notes.front());
}

// A model as large as its metadata say must be in the file too: nothing is allocated on their word alone.
void check_size(const models::Backbone& sketch, const SafetensorsFile& file, const models::ModelSpec& spec) {
  int64_t stored = 0;
  for (const TensorView& view : file.tensors())
    stored += static_cast<int64_t>(view.bytes.size() / size_of(view.dtype));
  const int64_t needed = models::count_parameters(sketch);
  // Interpolated positions may be larger than what is stored, by far less than this.
  if (needed / 4 > stored)
    fail("'", file.path(), "' does not fit ", spec.name, ": it holds ",
         human_count(static_cast<double>(stored)), " numbers, the model has ",
         human_count(static_cast<double>(needed)), " parameters");
}

// Files of other programs say nothing of themselves: the user names the model, the head says how many
// classes.
void describe_foreign(WeightsInfo& info, const SafetensorsFile& file, const OpenOptions& options) {
  if (options.model.empty())
    fail_usage("'", file.path(),
               "' does not say which model it holds: name it with --model (see `tessera models`)");
  info.model = models::resolve_model(options.model);
  const auto sketch = models::sketch_model(info.model);
  const auto head = head_names(*sketch, classes_of(info.model));
  const auto& family = models::find_family(info.model.family);
  for (const TensorView& view : file.tensors()) {
    const std::string name = family.rename ? family.rename(view.name) : view.name;
    if (!head.contains(name) || view.shape.empty() || view.shape[0] == classes_of(info.model)) continue;
    info.model.settings.set("classes", view.shape[0]);
  }
  if (const Value* size = info.model.settings.find("image_size"); size && size->is_int())
    info.preprocess.size = size->as_int();
}

}  // namespace

OpenedModel open_model(const std::string& path, const OpenOptions& options) {
  OpenedModel opened;
  opened.file = weights_file(path, options.raw);
  const SafetensorsFile file(opened.file);
  opened.info = read_weights_info(file.metadata(), opened.file);
  WeightsInfo& info = opened.info;
  if (!info.ours)
    describe_foreign(info, file, options);
  else if (!options.model.empty() && models::resolve_model(options.model).family != info.model.family)
    fail_usage("'", opened.file, "' holds ", info.model.name, ", not ", options.model);
  if (options.size > 0) {
    info.model.settings.set("image_size", options.size);
    info.preprocess.size = options.size;
  }
  try {
    check_size(*models::sketch_model(info.model), file, info.model);
    opened.model = models::build_model(info.model, /*seed=*/0);
  } catch (const c10::Error& error) {
    fail("'", opened.file, "': the model it describes cannot be built: ", first_line(error.what()));
  }
  if (options.size > 0)
    load_pretrained(*opened.model, info.model, info.class_names, opened.file);
  else
    load_weights(*opened.model, info.model, opened.file);
  opened.model->eval();
  return opened;
}

}  // namespace tessera::train
