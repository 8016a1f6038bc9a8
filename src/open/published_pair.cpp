#include "open/published_pair.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/config.h"
#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "open/load.h"
#include "tasks/base/registry.h"
#include "tasks/base/text_input.h"
#include "tasks/pairs/clip.h"
#include "tasks/pairs/coca.h"
#include "weights/load_tensors.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr JsonLimits kLimits = {.max_bytes = uint64_t{16} << 20, .max_depth = 12, .max_keys = 200'000};

// Returns the first of these files that exists next to the weights; "" without one.
std::string beside(const WeightFile& file, std::initializer_list<const char*> names) {
  const fs::path folder = fs::path(file.path()).parent_path();
  std::error_code error;
  for (const char* name : names)
    if (fs::is_regular_file(folder / name, error)) return (folder / name).string();
  return "";
}

Json read_config_file(const std::string& path) {
  if (path.empty()) return Json::object();
  Json config = parse_json(read_text(path, kLimits.max_bytes), path, kLimits);
  check(config.is_object(), path, " is ", config.type_name(), ", must be an object");
  return config;
}

int64_t number_in(const Json& table, const char* key) {
  const auto found = table.is_object() ? table.find(key) : table.end();
  return table.is_object() && found != table.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

Json part_of(const Json& table, const char* key) {
  const auto found = table.is_object() ? table.find(key) : table.end();
  return table.is_object() && found != table.end() && found->is_object() ? *found : Json::object();
}

double eps_in(const Json& table, const char* key = "layer_norm_eps") {
  const auto found = table.find(key);
  return found != table.end() && found->is_number() ? found->get<double>() : 0;
}

// Reads Hugging Face's config.json.
models::TowerHints hints_of_config(const Json& config) {
  const Json image = part_of(config, "vision_config"), text = part_of(config, "text_config");
  models::TowerHints hints;
  hints.image_heads = number_in(image, "num_attention_heads");
  hints.text_heads = number_in(text, "num_attention_heads");
  hints.image_eps = eps_in(image), hints.text_eps = eps_in(text);
  hints.image_side = number_in(image, "image_size");
  // transformers omits default values. SigLIP's default is the tanh approximation, recognised by its tensors.
  const Json kind = config.value("model_type", Json());
  const bool siglip = kind.is_string() && kind.get<std::string>().starts_with("siglip");
  const auto activation = [&](const Json& tower) {
    const auto found = tower.find("hidden_act");
    if (found != tower.end() && found->is_string())
      return models::published_activation(found->get<std::string>(), "hidden_act");
    return siglip ? models::Activation::published : models::Activation::quick_gelu;
  };
  hints.image_activation = activation(image), hints.text_activation = activation(text);
  // Configurations from before 2023 contain 2 and mean the largest id.
  if (const int64_t end = number_in(text, "eos_token_id"); end > 2) hints.end_token = end;
  return hints;
}

// Reads OpenCLIP's open_clip_config.json.
models::TowerHints hints_of_open_clip(const Json& config) {
  const Json model = part_of(config, "model_cfg"), image = part_of(model, "vision_cfg"),
             text = part_of(model, "text_cfg"), decoder = part_of(model, "multimodal_cfg");
  models::TowerHints hints;
  if (const int64_t width = number_in(image, "width"), head = number_in(image, "head_width");
      width > 0 && head > 0)
    hints.image_heads = width / head;
  hints.text_heads = number_in(text, "heads");
  hints.decoder_heads = number_in(decoder, "heads");
  hints.pooler_heads = number_in(image, "attn_pooler_heads");
  const auto flag = [](const Json& table, const char* key) {
    const auto found = table.find(key);
    return found != table.end() && found->is_boolean() && found->get<bool>();
  };
  hints.text_told = !text.empty();
  hints.mean_of_patches = image.value("pool_type", Json()) == "avg";
  hints.norm_after_mean = flag(image, "final_ln_after_pool");
  if (const auto size = image.find("image_size"); size != image.end() && size->is_array() &&
                                                  size->size() == 2 && (*size)[0].is_number_integer() &&
                                                  (*size)[1].is_number_integer())
    hints.image_rows = (*size)[0].get<int64_t>(), hints.image_columns = (*size)[1].get<int64_t>();
  hints.pad_token = number_in(text, "pad_id");
  hints.text_read_first = text.value("pool_type", Json()) == "first";
  hints.text_read_last = text.value("pool_type", Json()) == "last";
  if (text.value("pool_type", Json()) == "eos") hints.end_token = number_in(text, "eos_id");
  hints.image_eps = eps_in(part_of(image, "norm_kwargs"), "eps");
  hints.text_eps = eps_in(part_of(text, "norm_kwargs"), "eps");
  const auto takes_tanh = [](const Json& table) {
    return part_of(table, "act_kwargs").value("approximate", Json()) == "tanh";
  };
  const auto activation = [&](const Json& tower) {
    return takes_tanh(tower)           ? models::Activation::gelu_tanh
           : flag(model, "quick_gelu") ? models::Activation::quick_gelu
                                       : models::Activation::published;
  };
  hints.image_activation = activation(image), hints.text_activation = activation(text);
  hints.text_sees_all = flag(text, "no_causal_mask");
  return hints;
}

// True for OpenAI's own archives: they contain this number next to the weights, and use quick GELU.
bool is_openai(const WeightFile& file) {
  return std::any_of(file.tensors().begin(), file.tensors().end(),
                     [](const TensorView& view) { return view.name == "input_resolution"; });
}

models::PublishedShapes shapes_of(const WeightFile& file) {
  models::PublishedShapes shapes;
  for (const TensorView& view : file.tensors()) shapes.emplace_back(view.name, view.shape);
  return shapes;
}

Value clip_settings(const models::PublishedTowers& towers) {
  const models::TextTowerConfig& text = towers.towers.text;
  tasks::ClipConfig config;
  config.loss = towers.siglip ? tasks::PairLossKind::sigmoid : tasks::PairLossKind::softmax;
  config.embed_dim = towers.towers.embed_dim, config.image_projection = towers.towers.image_projection;
  config.vocab_size = text.vocab_size, config.context_length = text.context_length;
  config.text_dim = text.dim, config.text_depth = text.depth, config.text_heads = text.heads;
  config.text_projection = towers.towers.text_projection;
  config.text_hidden = text.hidden, config.text_mlp = text.mlp, config.text_norm_eps = text.norm_eps;
  config.text_init_values = text.init_values;
  config.causal = text.causal, config.text_projection_bias = text.projection_bias;
  config.text_pool = text.pool, config.text_end_token = text.end_token;
  return write_config(config);
}

Value coca_settings(const models::PublishedTowers& towers, const std::string& file) {
  const models::CocaConfig& model = towers.captioner;
  const models::TextTowerConfig& text = model.text;
  if (model.decoder_hidden != text.hidden_width())
    fail("'", file, "' holds a CoCa whose decoder has MLPs of ", model.decoder_hidden,
         " channels, its text tower of ", text.hidden_width(), ": both must be of one width");
  tasks::CocaTaskConfig config;
  config.embed_dim = model.embed_dim, config.vocab_size = text.vocab_size;
  config.context_length = text.context_length, config.text_dim = text.dim, config.text_depth = text.depth;
  config.text_heads = text.heads, config.text_hidden = text.hidden, config.text_mlp = text.mlp;
  config.decoder_depth = model.decoder_depth, config.decoder_heads = model.decoder_heads;
  config.queries = model.queries, config.pooler_heads = model.pooler_heads;
  return write_config(config);
}

// Returns the settings of its task, except the tokeniser.
Value pair_settings(const models::PublishedTowers& towers, const std::string& file) {
  Value settings = towers.coca ? coca_settings(towers, file) : clip_settings(towers);
  settings.set("name", (towers.coca ? tasks::coca_kind() : tasks::clip_kind()).name);
  settings.set("templates", Value::Array{Value("a photo of a {}.")});
  return settings;
}

}  // namespace

data::Preprocess preprocess_of_pair(const models::PublishedTowers& towers) {
  data::Preprocess images;
  const Value* side = towers.image.find("image_size");
  if (side && side->is_int()) images.size = side->as_int();
  if (towers.image_side > 0) images.size = towers.image_side;
  images.crop = 1;
  if (towers.siglip) {
    images.crop_mode = "squash";
    images.mean = images.std = {0.5, 0.5, 0.5};
  } else {
    images.mean = {0.48145466, 0.4578275, 0.40821073};
    images.std = {0.26862954, 0.26130258, 0.27577711};
  }
  return images;
}

StoredTensors stored_pair(const WeightFile& file, const models::PublishedTowers& towers) {
  std::vector<NamePlace> places = towers.places;
  for (NamePlace& place : places)
    if (constexpr std::string_view kTower = models::kImageTower; place.ours.starts_with(kTower))
      place.ours.erase(0, kTower.size());
  return {file.tensors(), places, file.path()};
}

std::optional<models::PublishedTowers> published_pair(const WeightFile& file,
                                                      std::vector<std::string>& notes) {
  if (!models::tower_table(names_of(file.tensors()))) return std::nullopt;
  const std::string own = beside(file, {"open_clip_config.json"}), hub = beside(file, {"config.json"});
  models::TowerHints hints = !own.empty()   ? hints_of_open_clip(read_config_file(own))
                             : !hub.empty() ? hints_of_config(read_config_file(hub))
                                            : models::TowerHints{};
  if (is_openai(file)) hints.image_activation = hints.text_activation = models::Activation::quick_gelu;
  try {
    models::PublishedTowers towers = models::describe_towers(shapes_of(file), hints);
    const Value* quick = towers.image.find("mlp");
    notes.push_back(
        text(file.path(), " holds ",
             towers.coca     ? "a CoCa"
             : towers.siglip ? "a SigLIP"
                             : "a CLIP",
             own.empty() && hub.empty() ? " by its tensors; its activation is taken to be " : ", with ",
             quick && *quick == Value("quick_gelu") ? "the quick form of GELU" : "GELU"));
    return towers;
  } catch (const Error& error) {
    fail("'", file.path(), "': ", error.what());
  }
}

WeightsInfo describe_pair(const models::PublishedTowers& towers, const WeightFile& file,
                          const std::string& tokenizer) {
  WeightsInfo info;
  info.model = {towers.family, towers.family, towers.image};
  Value settings = pair_settings(towers, file.path());
  info.preprocess = preprocess_of_pair(towers);
  const std::string found =
      !tokenizer.empty()
          ? tokenizer
          : beside(file, {"tokenizer.json", "vocab.json", "tokenizer.model", "bpe_simple_vocab_16e6.txt.gz"});
  if (!found.empty()) {
    settings.set("tokenizer", found);
    merge(info.task_metadata, tasks::TextInput(found, {}).metadata());
  }
  info.task = tasks::resolve_task(settings);
  return info;
}

LoadReport load_pair(tasks::Task& task, const WeightFile& file, const models::PublishedTowers& towers) {
  const LoadedTensors loaded = load_tensors(
      tasks::named_state(task.parts()), stored_pair(file, towers),
      {.misfit = "is no model of images and texts that is known",
       .reshape = true,
       .may_miss = [](const std::string& name) { return name.ends_with("num_batches_tracked"); }});
  LoadReport report;
  report.loaded = loaded.count;
  report.lines.push_back(
      text("loaded ", counted(report.loaded, "tensor"), " from ", file.path(), " (", file.form(), ")"));
  return report;
}

}  // namespace tessera::train
