#include "open/published_pair.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "core/config.h"
#include "core/error.h"
#include "core/published_config.h"
#include "core/text.h"
#include "open/load.h"
#include "tasks/base/registry.h"
#include "tasks/base/text_input.h"
#include "tasks/pairs/clip.h"
#include "tasks/pairs/coca.h"
#include "text/tokeniser.h"
#include "weights/hub_config.h"
#include "weights/load_tensors.h"
#include "weights/name_tables.h"

namespace tessera::train {
namespace {

// One tower in transformers' config.json.
struct TransformersTower {
  int64_t num_attention_heads = 0, image_size = 0, eos_token_id = 0;
  double layer_norm_eps = 0;
  std::string hidden_act;

  template <class V>
  void visit(V& v) {
    v("num_attention_heads", num_attention_heads, between(0, 4096), "heads");
    v("image_size", image_size, between(0, 65536), "side in pixels");
    v("eos_token_id", eos_token_id, "end of a text");
    v("layer_norm_eps", layer_norm_eps, between(0, 1), "epsilon of all norms");
    v("hidden_act", hidden_act, "activation of the MLPs");
  }
};
struct TransformersPair {
  std::string model_type;
  TransformersTower vision_config, text_config;

  template <class V>
  void visit(V& v) {
    v("model_type", model_type, "clip or siglip");
    v("vision_config", vision_config, "image tower");
    v("text_config", text_config, "text tower");
  }
};

models::TowerHints hints_of_config(const Value& config, const std::string& where) {
  std::vector<std::string> unread;  // sizes, which the tensors show too, and settings of training
  const auto pair = read_published<TransformersPair>(config, where, unread);
  if (pair.model_type == "siglip2")
    fail_usage(where,
               ": model_type is siglip2 (NaFlex: images keep their aspect), must be clip or siglip; "
               "SigLIP 2 with images of one size has the model_type siglip");
  const TransformersTower &image = pair.vision_config, &text = pair.text_config;
  models::TowerHints hints;
  hints.image_heads = image.num_attention_heads, hints.text_heads = text.num_attention_heads;
  hints.image_eps = image.layer_norm_eps, hints.text_eps = text.layer_norm_eps;
  hints.image_side = image.image_size;
  // transformers omits default values. SigLIP's default is the tanh approximation, recognised by its tensors.
  const bool siglip = pair.model_type.starts_with("siglip");
  const auto activation = [&](const TransformersTower& tower) {
    if (!tower.hidden_act.empty()) return models::published_activation(tower.hidden_act, "hidden_act");
    return siglip ? models::Activation::published : models::Activation::quick_gelu;
  };
  hints.image_activation = activation(image), hints.text_activation = activation(text);
  // Configurations from before 2023 contain 2 and mean the largest id.
  if (text.eos_token_id > 2) hints.end_token = text.eos_token_id;
  return hints;
}

// open_clip_config.json.
struct NormArguments {
  double eps = 0;
  template <class V>
  void visit(V& v) {
    v("eps", eps, between(0, 1), "epsilon of all norms");
  }
};
struct ActArguments {
  std::string approximate;
  template <class V>
  void visit(V& v) {
    v("approximate", approximate, "of GELU");
  }
};
struct TokenizerArguments {
  std::string clean;
  template <class V>
  void visit(V& v) {
    v("clean", clean, "of texts: whitespace, lower or canonicalize");
  }
};
struct OpenClipTower {
  int64_t width = 0, head_width = 0, heads = 0, attn_pooler_heads = 0, pad_id = 0, eos_id = -1;
  std::string pool_type;
  bool final_ln_after_pool = false, no_causal_mask = false;
  Value image_size;
  NormArguments norm_kwargs;
  ActArguments act_kwargs;
  TokenizerArguments tokenizer_kwargs;

  template <class V>
  void visit(V& v) {
    v("width", width, between(0, 65536), "channels");
    v("head_width", head_width, between(0, 65536), "channels of a head");
    v("heads", heads, between(0, 4096), "heads");
    v("attn_pooler_heads", attn_pooler_heads, between(0, 4096), "heads of CoCa's pooler");
    v("pad_id", pad_id, between(0, 1 << 24), "padding of texts");
    v("eos_id", eos_id, between(-1, 1 << 24), "end of a text");
    v("pool_type", pool_type, "place that is read");
    v("final_ln_after_pool", final_ln_after_pool, "norm after the mean");
    v("no_causal_mask", no_causal_mask, "places see later ones");
    v("image_size", image_size, "a side, or [height, width]");
    v("norm_kwargs", norm_kwargs, "of norms");
    v("act_kwargs", act_kwargs, "of activations");
    v("tokenizer_kwargs", tokenizer_kwargs, "arguments of the tokeniser");
  }
};
struct OpenClipModel {
  bool quick_gelu = false;
  OpenClipTower vision_cfg, text_cfg, multimodal_cfg;

  template <class V>
  void visit(V& v) {
    v("quick_gelu", quick_gelu, "activation of both towers");
    v("vision_cfg", vision_cfg, "image tower");
    v("text_cfg", text_cfg, "text tower");
    v("multimodal_cfg", multimodal_cfg, "CoCa's decoder");
  }
};

OpenClipModel read_open_clip(const Value& tree, const std::string& where) {
  std::vector<std::string> unread;  // sizes, which the tensors show too, and settings of training
  const Value* model = tree.find("model_cfg");
  return read_published<OpenClipModel>(model ? *model : Value(Value::Table{}), where, unread);
}

models::TowerHints hints_of_open_clip(const Value& tree, const std::string& where) {
  const OpenClipModel model = read_open_clip(tree, where);
  const OpenClipTower &image = model.vision_cfg, &text = model.text_cfg;
  models::TowerHints hints;
  if (image.width > 0 && image.head_width > 0) hints.image_heads = image.width / image.head_width;
  hints.text_heads = text.heads, hints.decoder_heads = model.multimodal_cfg.heads;
  hints.pooler_heads = image.attn_pooler_heads;
  hints.text_told = tree.find("model_cfg.text_cfg") != nullptr;
  hints.mean_of_patches = image.pool_type == "avg", hints.norm_after_mean = image.final_ln_after_pool;
  if (image.image_size.is_array()) {
    const models::Extent extent = models::extent_of(image.image_size, "image_size");
    hints.image_rows = extent.height, hints.image_columns = extent.width;
  }
  hints.pad_token = text.pad_id;
  hints.text_read_first = text.pool_type == "first", hints.text_read_last = text.pool_type == "last";
  if (text.pool_type == "eos") hints.end_token = text.eos_id;
  hints.image_eps = image.norm_kwargs.eps, hints.text_eps = text.norm_kwargs.eps;
  const auto activation = [&](const OpenClipTower& tower) {
    return tower.act_kwargs.approximate == "tanh" ? models::Activation::gelu_tanh
           : model.quick_gelu                     ? models::Activation::quick_gelu
                                                  : models::Activation::published;
  };
  hints.image_activation = activation(image), hints.text_activation = activation(text);
  hints.text_sees_all = text.no_causal_mask;
  return hints;
}

// True for OpenAI's own archives: they contain this number next to the weights, and use quick GELU.
bool is_openai(const WeightFile& file) {
  return std::any_of(file.tensors().begin(), file.tensors().end(), [](const TensorView& view) {
    return without_wrappers(view.name) == "input_resolution";
  });
}

// Returns the towers with the file's own names, which may have the prefix of a larger or a parallel module.
models::PublishedTowers towers_of(const WeightFile& file, const models::TowerHints& hints) {
  const std::vector<std::string> names = unwrap_names(names_of(file.tensors())).names;
  models::PublishedShapes shapes;
  std::map<std::string, std::string> own;
  for (size_t i = 0; i < names.size(); ++i)
    if (!names[i].empty() && own.emplace(names[i], file.tensors()[i].name).second)
      shapes.emplace_back(names[i], file.tensors()[i].shape);
  models::PublishedTowers towers = models::describe_towers(shapes, hints);
  for (NamePlace& place : towers.places) place.theirs = own.at(place.theirs);
  return towers;
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

data::Preprocess preprocess_of_pair(const models::PublishedTowers& towers, PublishedFolder& folder) {
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
  const std::optional<Value> own = read_preprocess_config(folder, images.size);
  return own ? read_config<data::Preprocess>(*own, "preprocess", images) : images;
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
  if (!models::tower_table(unwrap_names(names_of(file.tensors())).names)) return std::nullopt;
  PublishedFolder folder(file.path(), /*any_name=*/true);
  const std::string own = folder.find({"open_clip_config.json"}), hub = folder.find({"config.json"});
  models::TowerHints hints = !own.empty()   ? hints_of_open_clip(folder.read({"open_clip_config.json"}), own)
                             : !hub.empty() ? hints_of_config(folder.read({"config.json"}), hub)
                                            : models::TowerHints{};
  if (is_openai(file)) hints.image_activation = hints.text_activation = models::Activation::quick_gelu;
  try {
    models::PublishedTowers towers = towers_of(file, hints);
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

namespace {

// Returns the settings of the tokeniser in files next to the weights; in OpenCLIP's files `clean` sets how
// texts are prepared.
TextPreparation preparation_in(PublishedFolder& folder, const std::string& tokeniser) {
  namespace fs = std::filesystem;
  const fs::path config =
      (fs::is_directory(tokeniser) ? fs::path(tokeniser) : fs::path(tokeniser).parent_path()) /
      "tokenizer_config.json";
  TextPreparation out = preparation_of(fs::is_regular_file(config) ? read_published_json(config.string())
                                                                   : Value(Value::Table{}));
  folder.find({"tokenizer_config.json"});
  if (const std::string own = folder.find({"open_clip_config.json"}); !own.empty()) {
    const std::string clean =
        read_open_clip(folder.read({"open_clip_config.json"}), own).text_cfg.tokenizer_kwargs.clean;
    out.remove_underscores = out.remove_punctuation = clean == "canonicalize";
    out.lower = clean == "canonicalize" || clean == "lower";
  }
  return out;
}

}  // namespace

WeightsInfo describe_pair(const models::PublishedTowers& towers, const WeightFile& file,
                          const std::string& tokenizer, PublishedFolder& folder) {
  WeightsInfo info;
  info.model = {towers.family, towers.family, towers.image};
  Value settings = pair_settings(towers, file.path());
  info.preprocess = preprocess_of_pair(towers, folder);
  const std::string found = !tokenizer.empty()
                                ? tokenizer
                                : folder.find({"tokenizer.json", "vocab.json", "tokenizer.model",
                                               "spiece.model", "bpe_simple_vocab_16e6.txt.gz"});
  if (!found.empty()) {
    for (const char* part : {"merges.txt", "special_tokens_map.json", "added_tokens.json"})
      folder.find({part});
    settings.set("tokenizer", found);
    Value stored;
    // If a tower reads the last position, its result depends on the padding and on how the text was prepared.
    if (towers.towers.text.pool == models::TextPool::last)
      stored.set("tokenizer", prepared(Tokeniser::load(found), preparation_in(folder, found)).definition());
    merge(info.task_metadata, tasks::TextInput(found, stored).metadata());
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
