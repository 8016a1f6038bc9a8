#include "train/open_model.h"

#include <filesystem>

#include "core/config.h"
#include "core/error.h"
#include "core/text.h"
#include "core/toml.h"
#include "train/calibrate.h"
#include "train/checkpoint.h"
#include "train/load.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

// The weights file that a path stands for.
std::string weights_file(const std::string& path, bool raw) {
  if (!fs::is_directory(path)) {
    if (raw) fail_usage("'", path, "' is a file: raw weights are those of a checkpoint or run directory");
    return path;
  }
  if (file_exists(path + "/manifest.json")) {
    const StoredCheckpoint checkpoint = read_checkpoint(path);
    const bool averaged = !raw && file_exists(checkpoint.path(kEmaFile));
    return checkpoint.path(averaged ? kEmaFile : kWeightsFile);
  }
  if (!raw)
    for (const char* name : {"model.safetensors", "best.safetensors", "model.safetensors.index.json"})
      if (file_exists(path + "/" + name)) return path + "/" + name;
  std::vector<std::string> notes;
  if (const auto checkpoint = CheckpointStore(path + "/checkpoints").newest(notes))
    return weights_file(checkpoint->directory, raw);
  fail("'", path, "' holds no weights: it must be a weights file, a run directory or a checkpoint directory",
       notes.empty() ? "" : "; ", notes.empty() ? "" : notes.front());
}

int64_t numbers_in(const WeightFile& file) {
  int64_t numbers = 0;
  for (const TensorView& view : file.tensors())
    numbers += static_cast<int64_t>(view.bytes.size() / size_of(view.dtype));
  return numbers;
}

// Before even the outline is built from what a file says of itself: a block of any family has more numbers
// than the square of its width, and as many blocks must be in the file.
void check_claims(const WeightFile& file, const models::ModelSpec& spec) {
  const auto largest = [&](const char* one, const char* several) {
    std::vector<double> values;
    if (const Value* value = spec.settings.find(one); value && value->is_int())
      values.push_back(static_cast<double>(value->as_int()));
    if (const Value* list = spec.settings.find(several); list && list->is_array())
      for (const Value& value : list->as_array())
        if (value.is_int()) values.push_back(static_cast<double>(value.as_int()));
    return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
  };
  const double width = largest("dim", "dims"), blocks = largest("depth", "depths");
  if (blocks > static_cast<double>(file.tensors().size()) ||
      width * width > 4 * static_cast<double>(numbers_in(file)))
    fail("'", file.path(), "' does not fit ", spec.name, ": it holds ", file.tensors().size(), " tensors of ",
         human_count(static_cast<double>(numbers_in(file))), " numbers, the model would have ", blocks,
         " blocks of width ", width);
}

// A model as large as its metadata say must be in the file too: nothing is allocated on their word alone.
void check_size(const models::Backbone& sketch, const WeightFile& file, const models::ModelSpec& spec) {
  const int64_t stored = numbers_in(file), needed = models::count_parameters(sketch);
  // Interpolated positions may be larger than what is stored, by far less than this.
  if (needed / 4 > stored)
    fail("'", file.path(), "' does not fit ", spec.name, ": it holds ",
         human_count(static_cast<double>(stored)), " numbers, the model has ",
         human_count(static_cast<double>(needed)), " parameters");
}

// The size that a file of another program must be: the one whose tensors it has.
std::string told_by_tensors(const WeightFile& file) {
  const std::vector<std::string> sizes = sizes_that_fit(file.tensors());
  if (sizes.empty())
    fail_usage("'", file.path(),
               "' does not say which model it holds: name it with --model (see `tessera models`)");
  if (sizes.size() > 1)
    fail_usage("'", file.path(), "' does not say which model it holds, and its tensors are those of ",
               join(sizes, ", "), ": name it with --model");
  return sizes.front();
}

// As many classes as the head in the file has rows; none where it has no head.
int64_t classes_in(const WeightFile& file, const models::ModelSpec& spec) {
  const auto sketch = models::sketch_model(spec);
  const auto head = head_names(*sketch, 1);
  const std::vector<TensorView>& tensors = file.tensors();
  const std::vector<std::string> names = our_names(tensors, models::find_family(spec.family));
  for (size_t i = 0; i < names.size(); ++i)
    if (head.contains(names[i]) && !tensors[i].shape.empty()) return tensors[i].shape[0];
  return 0;
}

// The first line of what LibTorch says; the rest is a stack trace.
std::string first_line(const std::string& message) { return message.substr(0, message.find('\n')); }

std::vector<std::string> names_in(const WeightFile& file, const WeightsInfo& info) {
  return our_names(file.tensors(), models::find_family(info.model.family));
}

// Ready to be loaded from the file.
std::shared_ptr<models::Backbone> build_for(const WeightFile& file, const WeightsInfo& info) {
  check_claims(file, info.model);
  try {
    check_size(*sketch_of(info), file, info.model);
    auto model = models::build_undrawn(info.model, /*seed=*/0);
    if (info.quantization.enabled()) quantise_blocks(*model, info.quantization);
    add_input_steps(*model, names_in(file, info));
    return model;
  } catch (const c10::Error& error) {
    fail("'", file.path(), "': the model it describes cannot be built: ", first_line(error.what()));
  }
}

// Whether `name` is the model's family, its size, or another name of that size; a model that was described by
// its settings alone is taken for any size of its family.
bool is_of(const models::ModelSpec& model, const std::string& name) {
  if (name == model.name) return true;
  const models::ModelSpec asked = models::resolve_model(name);
  if (asked.family != model.family) return false;
  if (name == asked.family || model.name == model.family) return true;
  return asked.settings == models::resolve_model(model.name).settings;
}

}  // namespace

std::string preprocess_text(const data::Preprocess& preprocess) {
  std::vector<std::string> parts;
  const Value table = write_config(preprocess);
  for (const char* key : {"size", "crop", "crop_mode", "interpolation", "mean", "std"})
    parts.push_back(text(key, " ", toml_text(*table.find(key))));
  return join(parts, ", ");
}

WeightsInfo describe_weights(const WeightFile& file, const std::string& model) {
  WeightsInfo info = read_weights_info(file.metadata(), file.path());
  if (info.ours) {
    if (!model.empty() && !is_of(info.model, model))
      fail_usage("'", file.path(), "' holds ", info.model.name, ", not ", model);
    return info;
  }
  const std::string name = model.empty() ? told_by_tensors(file) : model;
  info.model = models::resolve_model(name);
  const int64_t classes = classes_in(file, info.model);
  info.model.settings.set("classes", classes);
  info.preprocess = read_config(models::published_preprocess(info.model), "preprocess", info.preprocess);
  if (const Value* size = info.model.settings.find("image_size"); size && size->is_int())
    info.preprocess.size = size->as_int();
  return info;
}

std::shared_ptr<models::Backbone> sketch_of(const WeightsInfo& info) {
  auto sketch = models::sketch_model(info.model);
  if (info.quantization.enabled()) quantise_blocks(*sketch, info.quantization);
  return sketch;
}

std::shared_ptr<models::Backbone> sketch_of(const WeightsInfo& info, const WeightFile& file) {
  auto sketch = sketch_of(info);
  add_input_steps(*sketch, names_in(file, info));
  return sketch;
}

std::shared_ptr<models::Backbone> read_model(const WeightFile& file, const WeightsInfo& info) {
  auto model = build_for(file, info);
  load_weights(*model, info.model, file);
  check_input_steps(*model, file.path());
  model->eval();
  return model;
}

OpenedModel open_model(const std::string& path, const OpenOptions& options) {
  OpenedModel opened;
  opened.file = weights_file(path, options.raw);
  const WeightFile file(opened.file);
  opened.info = describe_weights(file, options.model);
  WeightsInfo& info = opened.info;
  if (!info.ours && options.model.empty())
    opened.notes.push_back(
        text(opened.file, " does not say which model it holds; its tensors are those of ", info.model.name));
  if (!info.ours)
    opened.notes.push_back(text(opened.file, " says nothing of preprocessing; as published for ",
                                info.model.name, ": ", preprocess_text(info.preprocess)));
  if (!options.settings.as_table().empty()) {
    Value settings = info.model.settings;
    merge(settings, options.settings);
    info.model = models::resolve_model(info.model.name, settings);
  }
  if (options.size == 0) {
    opened.model = read_model(file, info);
    return opened;
  }
  info.model.settings.set("image_size", options.size);
  info.preprocess.size = options.size;
  opened.model = build_for(file, info);
  const LoadReport report = load_pretrained(*opened.model, info.model, info.class_names, file);
  for (const std::string& change : report.interpolated)
    opened.notes.push_back("positions interpolated: " + change);
  check_input_steps(*opened.model, file.path());
  opened.model->eval();
  return opened;
}

}  // namespace tessera::train
