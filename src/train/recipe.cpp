#include "train/recipe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <span>

#include "core/config.h"
#include "core/error.h"
#include "core/text.h"
#include "core/toml.h"
#include "io/file.h"
#include "train/open_model.h"

namespace tessera::train {
namespace {

constexpr int kMostBases = 8;
constexpr uint64_t kMostBytes = 1 << 20;

// The sections that are plain typed configs. The keys of [model], [optimiser] and [schedule] depend on which
// one it is.
template <class R, class F>
void for_each_section(R& recipe, F&& f) {
  f("data", recipe.data);
  f("preprocess", recipe.preprocess);
  f("augment", recipe.augment);
  f("mixup", recipe.mixup);
  f("distil", recipe.distil);
  f("soft_mask", recipe.soft_mask);
  f("quantization", recipe.quantization);
  f("train", recipe.train);
}

constexpr std::array kSections = {"model",     "data",         "preprocess", "augment",  "mixup", "distil",
                                  "soft_mask", "quantization", "optimiser",  "schedule", "train"};

// Keys that decide where and how often things are written, how fast, or when to give up; never what is
// computed.
constexpr std::array kFreeKeys = {
    "train.output",           "train.device",          "train.threads",
    "train.loader_threads",   "train.keep_last",       "train.max_bad",
    "train.max_skipped",      "train.eval_batch_size", "train.checkpoint_seconds",
    "train.checkpoint_steps", "train.log_every",       "train.on_bad_image"};

// Laying one way to say how long to train over a recipe takes the other way back.
void drop_rival(Value& base, const Value& over) {
  Value* train = base.find("train");
  if (!train || !train->is_table()) return;
  const auto take_back = [&](const char* given, const char* rival) {
    const Value* value = over.find(given);
    if (value && *value != Value(0))
      std::erase_if(train->as_table(), [&](const auto& entry) { return entry.first == rival; });
  };
  take_back("train.epochs", "steps");
  take_back("train.steps", "epochs");
}

Value read_with_bases(const std::string& path, int depth) {
  if (depth > kMostBases)
    fail_usage(path, ": more than ", kMostBases, " recipes based on one another; is there a circle?");
  Value table;
  try {
    table = parse_toml(read_text(path, kMostBytes), path);
  } catch (const Error& error) {
    fail_usage("the recipe: ", error.what());
  }
  const Value* base = table.find("base");
  if (!base) return table;
  if (!base->is_string()) fail_usage(path, ": base is ", base->type_name(), ", must be a file name");
  const auto beside = std::filesystem::path(path).parent_path() / base->as_string();
  Value merged = read_with_bases(beside.lexically_normal().string(), depth + 1);
  std::erase_if(table.as_table(), [](const auto& entry) { return entry.first == "base"; });
  lay_over(merged, table);
  return merged;
}

std::vector<std::string> dotted_keys() {
  std::vector<std::string> keys;
  const Value all = recipe_table(Recipe());
  for (const auto& [section, table] : all.as_table())
    for (const auto& [key, value] : table.as_table()) keys.push_back(section + "." + key);
  return keys;
}

// "epochs" for "train.epochs": the section left out.
std::string section_hint(const std::string& key) {
  std::vector<std::string> matches;
  for (const std::string& known : dotted_keys())
    if (known.ends_with("." + key)) matches.push_back(known);
  if (matches.empty()) return did_you_mean(key, dotted_keys());
  return text(", did you mean '", join(matches, "' or '"), "'?");
}

ModelSection read_model(const Value& table) {
  ModelSection model;
  if (!table.is_table()) fail_usage("model is ", table.type_name(), ", must be a table");
  for (const auto& [key, value] : table.as_table()) {
    std::string* own = key == "name"          ? &model.name
                       : key == "pretrained"  ? &model.pretrained
                       : key == "select_from" ? &model.select_from
                                              : nullptr;
    if (!own) {
      model.settings.set(key, value);
      continue;
    }
    if (!value.is_string()) fail_usage("model.", key, " is ", value.type_name(), ", must be a string");
    *own = value.as_string();
  }
  if (!model.pretrained.empty() && !model.select_from.empty())
    fail_usage("model.pretrained and model.select_from both give the first weights: give one");
  return model;
}

void require(bool condition, const char* key, const auto& value, const char* rule) {
  if (!condition) fail_usage(key, " = ", value, ", must be ", rule);
}

void require_one_of(const std::string& value, const char* key, std::span<const std::string> known) {
  if (std::find(known.begin(), known.end(), value) == known.end())
    fail_usage(key, " = \"", value, "\", must be ", join(known, ", "), did_you_mean(value, known));
}

void check_class_weights(const Value& weights) {
  const char* rule =
      "train.class_weights must be \"none\", \"balanced\" or a list of one positive number a class";
  if (weights.is_string() && (weights.as_string() == "none" || weights.as_string() == "balanced")) return;
  if (!weights.is_array() || weights.as_array().empty()) fail_usage(rule, ", is ", toml_text(weights));
  for (const Value& weight : weights.as_array())
    if (!weight.is_number() || !(weight.as_double() > 0)) fail_usage(rule, ", one is ", toml_text(weight));
}

void check_train(const TrainConfig& t) {
  if (t.epochs == 0 && t.steps == 0) fail_usage("train.epochs or train.steps must say how long to train");
  if (t.epochs != 0 && t.steps != 0)
    fail_usage("train.epochs = ", t.epochs, " and train.steps = ", t.steps,
               " contradict each other: give one");
  require(t.epochs >= 0, "train.epochs", t.epochs, "at least 1");
  require(t.steps >= 0, "train.steps", t.steps, "at least 1");
  require(t.batch_size >= 1 && t.batch_size <= (1 << 20), "train.batch_size", t.batch_size, "1 to 1048576");
  require(t.accumulate >= 1 && t.accumulate <= t.batch_size, "train.accumulate", t.accumulate,
          "1 to train.batch_size");
  require(t.repeats >= 1 && t.repeats <= 1024, "train.repeats", t.repeats, "1 to 1024");
  if (t.repeats > 1 && t.balanced_sampling)
    fail_usage(
        "train.repeats and train.balanced_sampling both decide how often a picture is drawn: give one");
  for (const int64_t size : t.sizes)
    require(size >= 1 && size <= 16384, "train.sizes", size, "sides of 1 to 16384");
  require(t.max_skipped >= 0, "train.max_skipped", t.max_skipped, "0 (none) or larger");
  require(t.seed >= 0, "train.seed", t.seed, "0 or larger");
  require(t.label_smoothing >= 0 && t.label_smoothing < 1, "train.label_smoothing", t.label_smoothing,
          "in [0, 1)");
  require(t.target_threshold < 1, "train.target_threshold", t.target_threshold, "below 1, negative = off");
  if (t.target_threshold >= 0 && (t.loss != "bce" || t.label_smoothing > 0))
    fail_usage("train.target_threshold goes with train.loss = \"bce\" and without train.label_smoothing");
  require_one_of(t.clip_mode, "train.clip_mode", std::array<std::string, 3>{"norm", "value", "agc"});
  require(t.clip_grad >= 0, "train.clip_grad", t.clip_grad, "0 (off) or larger");
  if (t.clip_grad == 0 && t.clip_mode != "norm")
    fail_usage("train.clip_mode = \"", t.clip_mode, "\" does nothing with train.clip_grad = 0: give a bound");
  require(t.ema_decay >= 0 && t.ema_decay < 1, "train.ema_decay", t.ema_decay, "in [0, 1), 0 = off");
  require(t.threads >= 0 && t.threads <= 1024, "train.threads", t.threads, "0 (all cores) to 1024");
  require(t.loader_threads >= 1 && t.loader_threads <= 256, "train.loader_threads", t.loader_threads,
          "1 to 256");
  require(t.eval_every >= 0, "train.eval_every", t.eval_every, "0 (only at the end) or larger");
  require(t.eval_batch_size >= 0, "train.eval_batch_size", t.eval_batch_size, "0 (as batch_size) or larger");
  require(t.checkpoint_seconds >= 0, "train.checkpoint_seconds", t.checkpoint_seconds,
          "0 (no limit) or larger");
  require(t.checkpoint_steps >= 0, "train.checkpoint_steps", t.checkpoint_steps, "0 (none) or larger");
  require(t.keep_last >= 1, "train.keep_last", t.keep_last, "at least 1");
  require(t.log_every >= 1, "train.log_every", t.log_every, "at least 1");
  require(t.max_bad >= 0, "train.max_bad", t.max_bad, "0 or larger");
  require_one_of(t.precision, "train.precision", std::array<std::string, 3>{"fp32", "bf16", "fp64"});
  require_one_of(t.loss, "train.loss", std::array<std::string, 3>{"auto", "cross_entropy", "bce"});
  if (!t.device.starts_with("cuda:"))
    require_one_of(t.device, "train.device", std::array<std::string, 3>{"auto", "cpu", "cuda"});
  require_one_of(t.on_bad_image, "train.on_bad_image", std::array<std::string, 2>{"replace", "fail"});
  check_class_weights(t.class_weights);
  if (t.balanced_sampling && t.class_weights != Value("none"))
    fail_usage("train.balanced_sampling and train.class_weights both even out the classes: give one");
}

void check_mixup(const data::MixupConfig& m) {
  require(m.mixup >= 0, "mixup.mixup", m.mixup, "0 (off) or larger");
  require(m.cutmix >= 0, "mixup.cutmix", m.cutmix, "0 (off) or larger");
  require(m.prob >= 0 && m.prob <= 1, "mixup.prob", m.prob, "in [0, 1]");
  require(m.switch_prob >= 0 && m.switch_prob <= 1, "mixup.switch_prob", m.switch_prob, "in [0, 1]");
  require_one_of(m.mode, "mixup.mode", std::array<std::string, 3>{"batch", "pair", "elem"});
}

void check_distil(const DistilConfig& d) {
  require_one_of(d.kind, "distil.kind", std::array<std::string, 3>{"hard", "soft", "batchmean"});
  require(d.alpha >= 0 && d.alpha <= 1, "distil.alpha", d.alpha, "in [0, 1]");
  require(d.tau > 0, "distil.tau", d.tau, "above 0");
  require(d.unlabelled_batch >= 0, "distil.unlabelled_batch", d.unlabelled_batch, "0 (none) or larger");
  if (d.unlabelled.empty() != (d.unlabelled_batch == 0))
    fail_usage("distil.unlabelled and distil.unlabelled_batch belong together: give both or neither");
  if (d.teacher.empty() && !d.unlabelled.empty())
    fail_usage("distil.unlabelled needs distil.teacher: nobody else judges pictures without a label");
}

void check_soft_mask(const SoftMaskConfig& s) {
  require(s.share >= 0 && s.share <= 1, "soft_mask.share", s.share, "in [0, 1], 0 = off");
  require_one_of(s.mode, "soft_mask.mode", std::array<std::string, 3>{"soft", "standard", "late"});
  require_one_of(s.shape, "soft_mask.shape", std::array<std::string, 2>{"linear", "constant"});
  if (s.share > 0 && s.mode == "soft" && s.cutoff_epoch == 0)
    fail_usage("soft_mask.share = ", shortest(s.share),
               " is over before it begins with soft_mask.cutoff_epoch = 0: "
               "say when it ends");
  require(s.cutoff_epoch >= 0, "soft_mask.cutoff_epoch", s.cutoff_epoch, "0 or larger");
}

void check_quantization(const QuantizationConfig& q) {
  if (q.weights == 0 && q.activations == 0) return;
  require(q.weights >= 2 && q.weights <= 16, "quantization.weights", q.weights,
          "2 to 16 bits, or 0 like activations");
  require(q.activations >= 2 && q.activations <= 16, "quantization.activations", q.activations,
          "2 to 16 bits, or 0 like weights");
}

// What "auto" stands for: of the run in the output directory, if there is one (the file that it started from
// may be gone), else of the pretrained file. Preprocessing is theirs where the recipe says nothing else.
void settle_auto(Recipe& recipe, const Value* output, bool size_given) {
  const std::string& file = recipe.model.pretrained;
  if (file.empty())
    fail_usage(
        "model.name = \"auto\" stands for the model of model.pretrained, which is empty (--pretrained FILE)");
  const std::string run = output && output->is_string() ? output->as_string() + "/recipe.toml" : "";
  Value settings;
  if (!run.empty() && file_exists(run)) {
    const Recipe stored = load_recipe(run);
    recipe.model.name = stored.model.name;
    settings = stored.model.settings;
    recipe.preprocess = stored.preprocess;
  } else {
    const WeightsInfo info = describe_weights(WeightFile(file));
    recipe.model.name = info.model.name;
    settings = info.model.settings;
    recipe.preprocess = info.preprocess;
  }
  if (size_given)
    std::erase_if(settings.as_table(), [](const auto& entry) { return entry.first == "image_size"; });
  merge(settings, recipe.model.settings);
  recipe.model.settings = settings;
}

// The picture's size is said once: by preprocess.size, else by the model's own.
void settle_size(Recipe& recipe, bool size_given) {
  Value& settings = recipe.model.settings;
  const bool model_given = settings.find("image_size") != nullptr;
  if (size_given && !model_given) settings.set("image_size", recipe.preprocess.size);
  settings = models::resolve_model(recipe.model.name, settings).settings;
  const Value& size = *settings.find("image_size");
  if (!size.is_int())
    fail_usage("model.image_size = ", toml_text(size), ", must be one side: pictures are cut square");
  if (size_given && size.as_int() != recipe.preprocess.size)
    fail_usage("model.image_size = ", size.as_int(), " and preprocess.size = ", recipe.preprocess.size,
               " contradict each other: give one");
  recipe.preprocess.size = size.as_int();
}

}  // namespace

void lay_over(Value& base, const Value& over) {
  drop_rival(base, over);
  merge(base, over);
}

Value parse_setting(const std::string& setting) {
  const size_t equals = setting.find('=');
  if (equals == std::string::npos || equals == 0)
    fail_usage("--set '", setting, "': must be section.key=value, such as train.epochs=10");
  const std::string key(trim(std::string_view(setting).substr(0, equals)));
  if (key.find('.') == std::string::npos) fail_usage("unknown key '", key, "'", section_hint(key));
  Value table;
  table.set(key, parse_toml_value(trim(std::string_view(setting).substr(equals + 1))));
  return table;
}

Recipe read_recipe(const Value& table, const std::string& where) {
  const std::vector<std::string> known(kSections.begin(), kSections.end());
  const std::string prefix = where.empty() ? "" : where + ": ";
  try {
    for (const auto& [key, value] : table.as_table()) {
      if (std::find(known.begin(), known.end(), key) == known.end())
        fail_usage(value.is_table() ? "unknown section '" : "unknown key '", key, "'",
                   value.is_table() ? did_you_mean(key, known) : section_hint(key));
    }
    Recipe recipe;
    if (const Value* section = table.find("model")) recipe.model = read_model(*section);
    const bool size_given = table.find("preprocess.size") != nullptr;
    if (recipe.model.name == "auto") settle_auto(recipe, table.find("train.output"), size_given);
    for_each_section(recipe, [&](const char* name, auto& config) {
      if (const Value* section = table.find(name)) config = read_config(*section, name, config);
    });
    if (const Value* section = table.find("optimiser")) recipe.optimiser = resolve_optimiser(*section);
    if (const Value* section = table.find("schedule")) recipe.schedule = resolve_schedule(*section);
    check_train(recipe.train);
    check_mixup(recipe.mixup);
    check_distil(recipe.distil);
    check_soft_mask(recipe.soft_mask);
    check_quantization(recipe.quantization);
    require(recipe.preprocess.size >= 1 && recipe.preprocess.size <= 16384, "preprocess.size",
            recipe.preprocess.size, "1 to 16384");
    settle_size(recipe, size_given);
    return recipe;
  } catch (const Error& error) {
    throw Error(error.kind, prefix + error.what());
  }
}

Value read_based(const std::string& path) { return read_with_bases(path, 0); }

Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides) {
  Value table = read_based(path);
  Value asked;
  for (const std::string& setting : overrides) lay_over(asked, parse_setting(setting));
  lay_over(table, asked);
  return read_recipe(table, path);
}

Value recipe_table(const Recipe& recipe) {
  Value table;
  table.set("model.name", recipe.model.name);
  table.set("model.pretrained", recipe.model.pretrained);
  table.set("model.select_from", recipe.model.select_from);
  for (const auto& [key, value] : recipe.model.settings.as_table())
    if (key != "family") table.set("model." + key, value);
  for_each_section(recipe,
                   [&](const char* name, const auto& config) { table.set(name, write_config(config)); });
  table.set("optimiser", recipe.optimiser.settings);
  table.set("schedule", recipe.schedule);
  return table;
}

Value computed_part(const Recipe& recipe) {
  Value table = recipe_table(recipe);
  Value::Table& train = table.find("train")->as_table();
  for (const std::string free : kFreeKeys)
    std::erase_if(train, [&](const auto& entry) { return "train." + entry.first == free; });
  return table;
}

std::string recipe_conflict(const Recipe& run, const Recipe& asked) {
  const std::string difference = first_difference(computed_part(asked), computed_part(run));
  return difference.empty() ? "" : difference + " in the run";
}

std::string recipe_hash(const Recipe& recipe) {
  return checksum_of(as_bytes(write_toml(computed_part(recipe))));
}

namespace {

// The keys of several kinds under one heading: a key that not all of them have names those that do.
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
  line("model.select_from", "\"\"", "weights file of a larger model to cut first weights out of");
  line("model.*", "", "any setting of the family, laid over the size's");
  for_each_section(recipe,
                   [&](const char* name, const auto& config) { list(describe_config(config, name)); });
  list_kinds("adamw", optimiser_names(), optimiser_keys);
  list_kinds("cosine", schedule_names(), schedule_keys);
  return out;
}

}  // namespace tessera::train
