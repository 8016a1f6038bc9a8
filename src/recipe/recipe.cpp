#include "recipe/recipe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <span>

#include "core/config.h"
#include "core/error.h"
#include "core/text.h"
#include "core/value.h"
#include "io/files/file.h"
#include "models/base/model.h"
#include "open/open_task.h"
#include "recipe/recipe_files.h"
#include "weights/migrate.h"

namespace tessera::train {
namespace {

// Calls `f` for the sections with a fixed type. The keys of [model], [optimiser] and [schedule] depend on
// their name.
template <class R, class F>
void for_each_section(R& recipe, F&& f) {
  f("data", recipe.data);
  f("preprocess", recipe.preprocess);
  f("augment", recipe.augment);
  f("quantization", recipe.quantization);
  f("train", recipe.train);
  f("parallel", recipe.parallel);
}

constexpr std::array kSections = {"model",        "data",      "preprocess", "augment", "task",
                                  "quantization", "optimiser", "schedule",   "train",   "parallel"};

// Keys that affect output paths, intervals, speed, or when to give up, but not the result.
constexpr std::array kFreeKeys = {
    "train.output",           "train.device",          "train.threads",
    "train.loader_threads",   "train.keep_last",       "train.max_bad",
    "train.max_skipped",      "train.eval_batch_size", "train.checkpoint_seconds",
    "train.checkpoint_steps", "train.log_every",       "train.on_bad_image",
    "train.noise_scale",      "train.stop_early"};

ModelSection read_model(const Value& table) {
  ModelSection model;
  if (!table.is_table()) fail_usage("model is ", table.type_name(), ", must be a table");
  for (const auto& [key, value] : table.as_table()) {
    std::string* own = key == "name"             ? &model.name
                       : key == "pretrained"     ? &model.pretrained
                       : key == "pretrained_key" ? &model.pretrained_key
                       : key == "select_from"    ? &model.select_from
                                                 : nullptr;
    if (!own) {
      model.settings.set(key, value);
      continue;
    }
    if (!value.is_string()) fail_usage("model.", key, " is ", value.type_name(), ", must be a string");
    *own = value.as_string();
  }
  if (model.pretrained.empty() && !model.pretrained_key.empty())
    fail_usage("model.pretrained_key = '", model.pretrained_key,
               "' names a dictionary of model.pretrained, which is empty");
  if (!model.pretrained.empty() && !model.select_from.empty())
    fail_usage("model.pretrained and model.select_from both give the first weights: give one");
  return model;
}

void require(bool condition, const char* key, const auto& value, const char* rule) {
  if (!condition) fail_usage(key, " = ", value, ", must be ", rule);
}

// Checks rules across several keys.
void check_train(const TrainConfig& t) {
  if (t.epochs == 0 && t.steps == 0) fail_usage("train.epochs or train.steps must set the training length");
  if (t.epochs != 0 && t.steps != 0)
    fail_usage("train.epochs = ", t.epochs, " and train.steps = ", t.steps,
               " contradict each other: give one");
  require(t.accumulate <= t.batch_size, "train.accumulate", t.accumulate, "at most train.batch_size");
  if (t.noise_scale && t.accumulate < 2)
    fail_usage("train.noise_scale compares a piece of a step with the whole: train.accumulate = ",
               t.accumulate, ", must be at least 2");
  if (t.stop_early > 0 && t.eval_every == 0)
    fail_usage("train.stop_early = ", t.stop_early,
               " counts evaluations, and train.eval_every = 0 leaves only the last: give both, or none");
  if (t.repeats > 1 && t.balanced_sampling)
    fail_usage("train.repeats and train.balanced_sampling both decide how often an image is drawn: give one");
  if (t.clip_grad == 0 && t.clip_mode != ClipMode::norm)
    fail_usage("train.clip_mode = \"", name_of(t.clip_mode),
               "\" does nothing with train.clip_grad = 0: give a bound");
  const bool has_norm = t.clip_mode == ClipMode::norm || t.clip_mode == ClipMode::each;
  if (t.clip_norm_type != 2 && (t.clip_grad == 0 || !has_norm))
    fail_usage("train.clip_norm_type = ", shortest(t.clip_norm_type),
               " goes with train.clip_grad above 0 and train.clip_mode = \"norm\" or \"each\"");
  if (!t.device.starts_with("cuda:") && t.device != "auto" && t.device != "cpu" && t.device != "cuda")
    fail_usage("train.device = \"", printable(t.device), "\", must be auto, cpu, cuda, cuda:N",
               did_you_mean(t.device, std::vector<std::string>{"auto", "cpu", "cuda"}));
}

void check_quantization(const QuantizationConfig& q) {
  if (q.weights == 0 && q.activations == 0) {
    if (q.form != QuantizationForm::linear)
      fail_usage("quantization.form = \"", name_of(q.form),
                 "\" needs quantization.weights and quantization.activations");
    return;
  }
  require(q.weights >= 2 && q.weights <= 16, "quantization.weights", q.weights,
          "2 to 16 bits, or 0 like activations");
  require(q.activations >= 2 && q.activations <= 16, "quantization.activations", q.activations,
          "2 to 16 bits, or 0 like weights");
}

// Returns the path of the recipe in the output directory, "" if there is none. The original recipe file may
// have been deleted.
std::string stored_recipe(const Value* output) {
  const std::string path = output && output->is_string() ? output->as_string() + "/recipe.toml" : "";
  return !path.empty() && file_exists(path) ? path : "";
}

// Resolves "auto" from the run in the output directory if there is one, else from the pretrained file. The
// run also sets the pretrained file if the recipe has none. Their preprocessing applies unless the recipe
// sets it. Returns the task settings of a file from another program; null for our own files, because their
// recipe describes the task.
Value resolve_auto_model(Recipe& recipe, const Value* output, bool size_given) {
  const std::string run = stored_recipe(output);
  const std::string& file = recipe.model.pretrained;
  if (file.empty() && run.empty())
    fail_usage(
        "this recipe fine-tunes: give weights with --pretrained FILE (model.name = \"auto\" means their "
        "model)");
  const auto describe = [&] { return describe_weights(pretrained_file(recipe.model)); };
  const auto task_of = [](const WeightsInfo& info) { return info.ours ? Value() : info.task; };
  Value settings, task;
  if (!run.empty()) {
    const Recipe stored = load_recipe(run);
    if (file.empty()) recipe.model.pretrained = stored.model.pretrained;
    recipe.model.name = stored.model.name;
    settings = stored.model.settings;
    recipe.preprocess = stored.preprocess;
    task = file_exists(file) ? task_of(describe()) : stored.task;
  } else {
    const WeightsInfo info = describe();
    recipe.model.name = info.model.name;
    settings = info.model.settings;
    recipe.preprocess = info.preprocess;
    task = task_of(info);
  }
  if (size_given)
    std::erase_if(settings.as_table(), [](const auto& entry) { return entry.first == "image_size"; });
  merge(settings, recipe.model.settings);
  recipe.model.settings = settings;
  return task;
}

// Fills unset task settings from the pretrained file, if it has the same task.
Value with_pretrained_task(const Value& section, Value pretrained) {
  if (!section.is_table() || !pretrained.is_table() ||
      tasks::task_name(section) != tasks::task_name(pretrained))
    return section;
  merge(pretrained, section);
  return pretrained;
}

// Uses the preprocessing of the pretrained weights unless the recipe sets it, at the size of the recipe's
// model. If the file is missing the recipe is still read; later uses of the file fail.
void take_pretrained_preprocess(Recipe& recipe, const Value* output) {
  const std::string& file = recipe.model.pretrained;
  const int64_t size = recipe.preprocess.size;
  const std::string run = stored_recipe(output);
  const Value stored = run.empty() ? Value() : parse_toml(read_text(run), run);
  const Value *from = stored.find("model.pretrained"), *preprocess = stored.find("preprocess");
  if (from && *from == Value(file) && preprocess)
    recipe.preprocess = read_config<data::Preprocess>(*preprocess, "preprocess");
  else if (file_exists(file))
    recipe.preprocess = preprocess_of(pretrained_file(recipe.model), recipe.model.name);
  recipe.preprocess.size = size;
}

// The image size has one source: preprocess.size, or else the model's setting.
void resolve_size(Recipe& recipe, bool size_given) {
  Value& settings = recipe.model.settings;
  const bool model_given = settings.find("image_size") != nullptr;
  if (size_given && !model_given) settings.set("image_size", recipe.preprocess.size);
  settings = models::resolve_model(recipe.model.name, settings).settings;
  const Value& size = *settings.find("image_size");
  if (!size.is_int())
    fail_usage("model.image_size = ", toml_text(size), ", must be one side: images are cut square");
  if (size_given && size.as_int() != recipe.preprocess.size)
    fail_usage("model.image_size = ", size.as_int(), " and preprocess.size = ", recipe.preprocess.size,
               " contradict each other: give one");
  recipe.preprocess.size = size.as_int();
}

// Mean and deviation need one value per input channel. If the model does not read RGB, their RGB average is
// used for every channel.
void resolve_channels(Recipe& recipe) {
  const auto channels = static_cast<size_t>(models::input_channels(recipe.model.settings));
  for (auto& [key, numbers] :
       {std::pair("preprocess.mean", &recipe.preprocess.mean), {"preprocess.std", &recipe.preprocess.std}}) {
    if (numbers->size() == channels) continue;
    if (numbers->size() != 3)
      fail_usage(key, " has ", numbers->size(), " numbers, must be ", channels, " as in model.in_channels");
    numbers->assign(channels, ((*numbers)[0] + (*numbers)[1] + (*numbers)[2]) / 3);
  }
}

}  // namespace

Recipe read_recipe(const Value& stored, const std::string& where) {
  const std::vector<std::string> known(kSections.begin(), kSections.end());
  const std::string prefix = where.empty() ? "" : where + ": ";
  try {
    const Value table = migrate_recipe(stored);
    for (const auto& [key, value] : table.as_table()) {
      if (std::find(known.begin(), known.end(), key) == known.end())
        fail_usage(value.is_table() ? "unknown section '" : "unknown key '", key, "'",
                   value.is_table() ? did_you_mean(key, known) : section_hint(key));
    }
    Recipe recipe;
    if (const Value* section = table.find("model")) recipe.model = read_model(*section);
    const bool size_given = table.find("preprocess.size") != nullptr;
    Value pretrained_task;
    if (recipe.model.name == "auto")
      pretrained_task = resolve_auto_model(recipe, table.find("train.output"), size_given);
    else if (!recipe.model.pretrained.empty())
      take_pretrained_preprocess(recipe, table.find("train.output"));
    for_each_section(recipe, [&](const char* name, auto& config) {
      if (const Value* section = table.find(name)) config = read_config(*section, name, config);
    });
    if (const Value* section = table.find("optimiser")) recipe.optimiser = resolve_optimiser(*section);
    if (const Value* section = table.find("schedule")) recipe.schedule = resolve_schedule(*section);
    if (const Value* section = table.find("task"))
      recipe.task = tasks::resolve_task(with_pretrained_task(*section, pretrained_task));
    check_train(recipe.train);
    parallel::check_degrees(recipe.parallel);
    check_quantization(recipe.quantization);
    require(recipe.preprocess.size >= 1 && recipe.preprocess.size <= 16384, "preprocess.size",
            recipe.preprocess.size, "1 to 16384");
    resolve_size(recipe, size_given);
    resolve_channels(recipe);
    return recipe;
  } catch (const Error& error) {
    throw Error(error.kind, prefix + error.what());
  }
}

namespace {

// Returns the start of an error line if overrides choose another model than the files, but the files set keys
// of [model] for theirs: "--model resnet50: demo.toml sets model.dim for model vil"; else "".
std::string other_model(const Value& files, const Value& asked, const std::string& where) {
  const Value *own = files.find("model"), *name = asked.find("model.name");
  if (!own || !own->is_table() || !name || !own->find("name") || *own->find("name") == *name) return "";
  std::vector<std::string> keys;
  for (const auto& [key, value] : own->as_table())
    if (key != "name" && !key.starts_with("pretrained") && key != "select_from" &&
        !asked.find("model." + key))
      keys.push_back("model." + key);
  if (keys.empty()) return "";
  return text("--model ", toml_text(*name), ": ", where, " sets ", some_of(keys, 6), " for model ",
              toml_text(*own->find("name")), "; take a recipe for this model, or override them with --set");
}

// Returns overrides as one tree, without the one of this number.
Value tree_of(const std::vector<std::string>& overrides, size_t without = SIZE_MAX) {
  Value tree;
  for (size_t i = 0; i < overrides.size(); ++i)
    if (i != without) apply_overrides(tree, parse_setting(overrides[i]));
  return migrate_layer(tree);
}

std::string key_of(const std::string& setting) {
  return std::string(trim(std::string_view(setting).substr(0, setting.find('='))));
}

bool names_key(const std::string& line, const std::string& key) {
  const size_t at = line.find(key), end = at + key.size();
  return at != std::string::npos && (end >= line.size() || (line[end] != '_' && line[end] != '.'));
}

bool is_readable(const Value& table) try {
  read_recipe(table, "");
  return true;
} catch (const Error&) {
  return false;
}

// Returns the number of the override that causes an error: it sets a key that the line names, or there is no error without
// it. SIZE_MAX if there is none.
size_t cause_of(const std::string& line, const Value& files, const std::vector<std::string>& overrides) {
  for (size_t i = 0; i < overrides.size(); ++i)
    if (names_key(line, key_of(overrides[i]))) return i;
  for (size_t i = 0; i < overrides.size(); ++i) {
    Value table = files;
    apply_overrides(table, tree_of(overrides, i));
    if (is_readable(table)) return i;
  }
  return SIZE_MAX;
}

}  // namespace

WeightFile pretrained_file(const ModelSection& model) {
  return WeightFile(weights_file_of(model.pretrained), model.pretrained_key);
}

Recipe load_recipe(const std::vector<std::string>& paths, const std::vector<std::string>& overrides,
                   const std::vector<std::string>& origins) {
  const Value files = read_based(paths), asked = tree_of(overrides);
  const std::string where = join(paths, " + "), blamed = other_model(files, asked, where);
  Value table = files;
  apply_overrides(table, asked);
  try {
    return read_recipe(table, "");
  } catch (const Error& error) {
    const std::string line = error.what();
    if (!blamed.empty() && line.find("model.") != std::string::npos)
      throw Error(error.kind, text(blamed, " (", where, ": ", line, ")"));
    const size_t cause = cause_of(line, files, overrides);
    if (cause == SIZE_MAX) throw Error(error.kind, text(where, ": ", line));
    const bool named = cause < origins.size() && !origins[cause].empty();
    throw Error(error.kind, text(named ? origins[cause] : "--set " + key_of(overrides[cause]), ": ", line));
  }
}

Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides,
                   const std::vector<std::string>& origins) {
  return load_recipe(std::vector{path}, overrides, origins);
}

Value recipe_table(const Recipe& recipe) {
  Value table;
  table.set("model.name", recipe.model.name);
  table.set("model.pretrained", recipe.model.pretrained);
  if (!recipe.model.pretrained_key.empty()) table.set("model.pretrained_key", recipe.model.pretrained_key);
  table.set("model.select_from", recipe.model.select_from);
  for (const auto& [key, value] : recipe.model.settings.as_table())
    if (key != "family") table.set("model." + key, value);
  for_each_section(recipe, [&](const char* name, const auto& config) {
    table.set(name, write_config(config));
    if (std::string_view(name) == "augment") table.set("task", recipe.task);
  });
  table.set("optimiser", recipe.optimiser.settings);
  table.set("schedule", recipe.schedule);
  return table;
}

Value computed_part(const Recipe& recipe) {
  Value table = recipe_table(recipe);
  Value::Table& train = table.find("train")->as_table();
  for (const std::string free : kFreeKeys)
    std::erase_if(train, [&](const auto& entry) { return "train." + entry.first == free; });
  std::erase_if(table.as_table(), [](const auto& entry) { return entry.first == "parallel"; });
  return table;
}

std::string recipe_conflict(const Recipe& run, const Recipe& asked) {
  // Paths may have changed: fingerprints decide whether the data are the same.
  Recipe moved = asked;
  for (std::string data::SourceConfig::*path :
       {&data::SourceConfig::path, &data::SourceConfig::val_path, &data::SourceConfig::image_root,
        &data::SourceConfig::class_names})
    if ((moved.data.*path).empty() == (run.data.*path).empty() || path == &data::SourceConfig::image_root ||
        path == &data::SourceConfig::class_names)
      moved.data.*path = run.data.*path;
  const std::string difference = first_difference(computed_part(moved), computed_part(run));
  return difference.empty() ? "" : difference + " in the run";
}

std::string recipe_hash(const Recipe& recipe) {
  return checksum_of(as_bytes(write_toml(computed_part(recipe))));
}

namespace {

// Lists the keys of several kinds under one heading; a key that only some kinds have is followed by their
// names.
std::vector<KeyDescription> keys_of_kinds(
    const std::vector<std::string>& names,
    const std::function<std::vector<KeyDescription>(const std::string&)>& keys_of) {
  std::vector<KeyDescription> keys;
  std::vector<std::vector<std::string>> owners;
  for (const std::string& name : names)
    for (const KeyDescription& key : keys_of(name)) {
      size_t i = 0;
      while (i < keys.size() &&
             (keys[i].key != key.key || keys[i].standard != key.standard || keys[i].meaning != key.meaning))
        ++i;
      if (i == keys.size()) keys.push_back(key), owners.emplace_back();
      owners[i].push_back(name);
    }
  for (size_t i = 0; i < keys.size(); ++i)
    if (owners[i].size() < names.size()) keys[i].meaning = join(owners[i], ", ") + ": " + keys[i].meaning;
  return keys;
}

std::vector<std::string> task_names() {
  std::vector<std::string> names;
  for (const tasks::TaskKind& kind : tasks::task_kinds()) names.emplace_back(kind.name);
  return names;
}

std::vector<KeyDescription> task_keys(const std::string& name) {
  std::vector<KeyDescription> keys = {{"task.name", name, ""}};
  for (const KeyDescription& key : tasks::find_task(name).keys()) keys.push_back(key);
  return keys;
}

}  // namespace

std::string describe_recipe_keys() {
  const Recipe recipe{};
  std::string out;
  const auto line = [&](const std::string& key, const std::string& standard, const std::string& meaning) {
    out += key + std::string(std::max<size_t>(28, key.size() + 2) - key.size(), ' ');
    out += standard + std::string(std::max<size_t>(26, standard.size() + 2) - standard.size(), ' ') +
           meaning + "\n";
  };
  const auto list = [&](const std::vector<KeyDescription>& keys) {
    for (const KeyDescription& key : keys) line(key.key, toml_text(key.standard), key.meaning);
  };
  const auto list_kinds = [&](const std::string& standard, const std::vector<std::string>& names,
                              const auto& keys_of) {
    const std::string name_key = keys_of(standard).front().key;
    line(name_key, toml_text(Value(standard)), join(names, ", "));
    for (const KeyDescription& key : keys_of_kinds(names, keys_of))
      if (key.key != name_key) list({key});
  };
  line("model.name", toml_text(recipe.model.name), "a size or family of `tessera models`");
  line("model.pretrained", "\"\"", "weights file to start from");
  line("model.pretrained_key", "\"\"", "dictionary of a PyTorch archive, such as model_ema");
  line("model.select_from", "\"\"", "weights file of a larger model to select first weights from");
  line("model.*", "", "any setting of the family, laid over the size's");
  for_each_section(recipe, [&](const char* name, const auto& config) {
    list(describe_config(config, name));
    if (std::string_view(name) == "augment") list_kinds(tasks::default_task().name, task_names(), task_keys);
  });
  list_kinds("adamw", optimiser_names(), optimiser_keys);
  list_kinds("cosine", schedule_names(), schedule_keys);
  return out;
}

}  // namespace tessera::train
