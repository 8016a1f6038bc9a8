#include "weights/hub_config.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/error.h"
#include "core/published_config.h"
#include "core/text.h"
#include "io/files/file.h"
#include "models/base/model.h"

namespace tessera::train {
namespace {

// timm's description of weights, with its defaults.
struct PretrainedConfig {
  std::vector<int64_t> input_size = {3, 224, 224}, test_input_size;
  bool fixed_input_size = false;
  std::string interpolation = "bicubic", crop_mode = "center", tag, global_pool;
  double crop_pct = 0.875, test_crop_pct = 0;
  std::vector<double> mean = {0.485, 0.456, 0.406}, std = {0.229, 0.224, 0.225};
  Value label_names;

  template <class V>
  void visit(V& v) {
    v("input_size", input_size, between(1, 65536), "channels, height and width");
    v("test_input_size", test_input_size, between(1, 65536), "of another test");
    v("fixed_input_size", fixed_input_size, "the constructor gets the size");
    v("interpolation", interpolation, "of resizing");
    v("crop_mode", crop_mode, "as data::Preprocess");
    v("crop_pct", crop_pct, above_to(0, 16), "test crop");
    v("test_crop_pct", test_crop_pct, between(0, 16), "at the other size");
    v("mean", mean, "per channel");
    v("std", std, "per channel");
    v("tag", tag, "which weights of this architecture");
    v("global_pool", global_pool, "argument of the constructor");
    v("label_names", label_names, "names of classes");
  }
};

struct TimmConfig {
  std::string architecture;
  Value model_args = Value(Value::Table{}), label_names;
  PretrainedConfig pretrained_cfg;

  template <class V>
  void visit(V& v) {
    v("architecture", architecture, "name of the model");
    v("model_args", model_args, "arguments of its constructor");
    v("label_names", label_names, "names of classes");
    v("pretrained_cfg", pretrained_cfg, "its weights");
  }
};

// Keys that describe the origin of weights, or repeat others.
constexpr std::array kUnusedHubKeys = {
    "num_classes",     "num_features", "global_pool",    "url",         "file",         "hf_hub_id",
    "hf_hub_filename", "source",       "architecture",   "custom_load", "pool_size",    "first_conv",
    "classifier",      "license",      "origin_url",     "paper_name",  "paper_ids",    "notes",
    "description",     "tags",         "test_pool_size", "state_dict",  "label_offset", "label_descriptions",
    "min_input_size"};

// Returns "architecture.tag". A tag that is not in the table of published tags is dropped, since the
// configuration contains all of its settings.
std::string model_name(const std::string& architecture, const std::string& tag) {
  if (tag.empty()) return architecture;
  try {
    models::tag_preprocess({architecture, tag});
    return architecture + "." + tag;
  } catch (const Error&) {
    return architecture;
  }
}

// Returns names given as a list, or by number; a number without a name is its own.
std::vector<std::string> names_in(const Value& names, const std::string& where) {
  constexpr int64_t kMostClasses = 1 << 20;
  std::vector<std::string> out;
  if (names.is_array())
    for (const Value& name : names.as_array())
      if (name.is_string()) out.push_back(name.as_string());
  if (!names.is_table()) return out;
  for (const auto& [key, name] : names.as_table()) {
    const std::optional<int64_t> id = parse_int(key);
    if (!id || *id < 0 || *id >= kMostClasses || !name.is_string())
      fail_usage(where, ": label_names has '", printable(key), "', must be names by the number of a class");
    while (std::ssize(out) <= *id) out.push_back(std::to_string(out.size()));
    out[static_cast<size_t>(*id)] = name.as_string();
  }
  return out;
}

// Files before 2023 call the names `labels`, next to the architecture.
void rename_labels(Value& tree) {
  if (!tree.find("label_names"))
    for (auto& entry : tree.as_table())
      if (entry.first == "labels") entry.first = "label_names";
}

// Returns the side of a square [channels, height, width].
int64_t side_of(const std::vector<int64_t>& size, const std::string& where) {
  if (size.size() != 3 || size[1] != size[2])
    fail_usage(where, " is ", toml_text(Value(Value::Array(size.begin(), size.end()))),
               ", must be [channels, side, side]: images are prepared as squares");
  return size[1];
}

// Returns the arguments that timm's constructor gets: those stored, and those that follow from the weights.
Value all_arguments(const TimmConfig& config, bool fixed) {
  const PretrainedConfig& weights = config.pretrained_cfg;
  Value arguments{Value::Table{}};
  if (weights.input_size[0] != 3) arguments.set("in_chans", weights.input_size[0]);
  if (!weights.global_pool.empty()) arguments.set("global_pool", weights.global_pool);
  if (fixed) arguments.set("img_size", Value::Array{weights.input_size[1], weights.input_size[2]});
  for (const auto& [key, value] : config.model_args.as_table()) {
    std::erase_if(arguments.as_table(), [&, &name = key](const auto& entry) { return entry.first == name; });
    arguments.as_table().emplace_back(key, value);
  }
  return arguments;
}

// True if the constructor fixes the image size.
bool is_fixed(const TimmConfig& config) {
  const auto is = [&](const char* key, bool wanted) {
    const Value* found = config.model_args.find(key);
    return found && *found == Value(wanted);
  };
  return config.pretrained_cfg.fixed_input_size && !is("dynamic_img_size", true) &&
         !is("strict_img_size", false);
}

// timm's patch embedding reads whole patches: a side of 384 makes 27 patches of 14.
void drop_border(HubConfig& out, int64_t side) {
  Value others = out.settings;
  std::erase_if(others.as_table(), [](const auto& entry) { return entry.first == "image_size"; });
  const int64_t patch = models::resolve_model(out.model, others).settings.find("patch_size")->as_int();
  if (side % patch == 0 || side < patch) return;
  out.settings.set("image_size", side / patch * patch);
  out.settings.set("drop_border", true);
}

void read_model(HubConfig& out, const TimmConfig& config, const std::string& where) {
  const std::string family = models::resolve_model(out.model).family;
  const bool fixed = is_fixed(config);
  out.settings = settings_of_timm(family, all_arguments(config, fixed), where);
  const auto setting = [&](const char* key) {
    const Value* found = out.settings.find(key);
    return found ? std::optional<Value>(*found) : std::nullopt;
  };
  const std::optional<Value> given = setting("image_size"), stride = setting("output_stride");
  int64_t side = side_of(config.pretrained_cfg.input_size, where + ": pretrained_cfg.input_size");
  if (fixed && given && given->is_int()) side = given->as_int();
  if (given && !given->is_int())
    fail_usage(where, ": model_args.img_size is ", toml_text(*given), ", must be a square");
  if (!given && (family == "resnet" || family == "convnext")) out.settings.set("image_size", side);
  out.preprocess.set("size", side);
  if (family == "vit" && given && given->is_int()) drop_border(out, given->as_int());
  const Value model = models::resolve_model(out.model, out.settings).settings;
  if (stride && *stride != Value(int64_t{32}) && *model.find("block") == Value("basic"))
    fail_usage(where, ": model_args.output_stride is ", toml_text(*stride),
               ", must be 32 in a ResNet of basic blocks");
}

void read_preprocess(HubConfig& out, const PretrainedConfig& weights) {
  out.preprocess.set("crop", weights.crop_pct);
  out.preprocess.set("crop_mode", weights.crop_mode);
  out.preprocess.set("interpolation", weights.interpolation);
  out.preprocess.set("mean", Value::Array(weights.mean.begin(), weights.mean.end()));
  out.preprocess.set("std", Value::Array(weights.std.begin(), weights.std.end()));
  if (weights.test_input_size.size() == 3 && weights.test_input_size != weights.input_size)
    out.test_size = text("--size ", weights.test_input_size[1], " --crop ",
                         weights.test_crop_pct > 0 ? weights.test_crop_pct : weights.crop_pct);
}

}  // namespace

std::optional<HubConfig> read_hub_config(PublishedFolder& folder) {
  const std::string where = folder.find({"config.json"});
  Value tree = folder.read({"config.json"});
  if (const Value* name = tree.find("architecture"); !name || !name->is_string())
    return read_transformers_config(folder);
  rename_labels(tree);
  // Older files have all keys at the top level.
  if (const Value* inner = tree.find("pretrained_cfg"); !inner || !inner->is_table()) {
    Value outer{Value::Table{}}, nested{Value::Table{}};
    for (const auto& [key, value] : tree.as_table()) {
      const bool of_model = key == "architecture" || key == "model_args";
      (of_model ? outer : nested).as_table().emplace_back(key, value);
    }
    outer.set("pretrained_cfg", nested);
    tree = outer;
  }
  std::vector<std::string> unread;
  const TimmConfig config = read_published<TimmConfig>(tree, where, unread);
  std::erase_if(unread, [](const std::string& key) {
    const std::string last = key.substr(key.find('.') + 1);
    return std::find(kUnusedHubKeys.begin(), kUnusedHubKeys.end(), last) != kUnusedHubKeys.end();
  });
  folder.note_unread(where, unread);
  HubConfig out;
  out.model = model_name(config.architecture, config.pretrained_cfg.tag);
  out.class_names = names_in(config.label_names, where);
  if (out.class_names.empty()) out.class_names = names_in(config.pretrained_cfg.label_names, where);
  try {
    models::resolve_model(out.model);
  } catch (const Error&) {
    return out;  // refused by the caller, which names it
  }
  read_model(out, config, where);
  read_preprocess(out, config.pretrained_cfg);
  out.prepared_by = "config.json";
  return out;
}

std::string published_license(PublishedFolder& folder) {
  constexpr uint64_t kLargest = uint64_t{1} << 24;  // bytes of a README.md
  const Value config = folder.read({"config.json"});
  for (const Value* table : {config.find("pretrained_cfg"), &config})
    if (const Value* found = table && table->is_table() ? table->find("license") : nullptr;
        found && found->is_string())
      return found->as_string();
  const std::string card = folder.find({"README.md"});
  const std::vector<std::string> lines = split(card.empty() ? "" : read_text(card, kLargest), '\n');
  constexpr std::string_view kFence = "---", kKey = "license:";
  if (trim(lines.front()) != kFence) return "";
  for (size_t i = 1; i < lines.size() && trim(lines[i]) != kFence; ++i)
    if (lines[i].starts_with(kKey)) return std::string(trim(std::string_view(lines[i]).substr(kKey.size())));
  return "";
}

}  // namespace tessera::train
