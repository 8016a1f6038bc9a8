#include "train/open_language.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "core/counted.h"
#include "core/error.h"
#include "core/some_of.h"
#include "core/text.h"
#include "io/file.h"
#include "io/json.h"
#include "io/weight_file.h"
#include "nn/parameter_type.h"
#include "train/json_value.h"
#include "train/weights.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;
using models::TensorPlace;

constexpr JsonLimits kLanguageConfigLimits = {
    .max_bytes = uint64_t{16} << 20, .max_depth = 16, .max_keys = 200'000};

// A configuration without its nulls, which say "as usual".
nlohmann::json without_nulls(const nlohmann::json& tree) {
  if (!tree.is_object()) return tree;
  nlohmann::json out = nlohmann::json::object();
  for (const auto& [key, value] : tree.items())
    if (!value.is_null()) out[key] = without_nulls(value);
  return out;
}

Value read_language_config(const std::string& path) {
  const nlohmann::json tree =
      parse_json(read_text(path, kLanguageConfigLimits.max_bytes), path, kLanguageConfigLimits);
  check(tree.is_object(), path, " is ", tree.type_name(), ", must be an object");
  nlohmann::json plain = without_nulls(tree);
  for (const char* key : {"task_specific_params", "label2id", "id2label", "quantization_config", "auto_map"})
    plain.erase(key);
  return parse_json_value(plain.dump(), path);
}

std::string word_in(const Value& tree, const char* key) {
  const Value* found = tree.find(key);
  return found && found->is_string() ? found->as_string() : "";
}

int64_t number_in(const Value& tree, const char* key, int64_t otherwise) {
  const Value* found = tree.find(key);
  return found && found->is_int() ? found->as_int() : otherwise;
}

double real_in(const Value& tree, const char* key, double otherwise) {
  const Value* found = tree.find(key);
  return found && found->is_number() ? found->as_double() : otherwise;
}

// CLIP's tower by its configuration; what it leaves out is as in CLIP ViT-B/32.
std::shared_ptr<models::Backbone> clip_tower(const Value& config) {
  const int64_t dim = number_in(config, "hidden_size", 768);
  const std::string given = word_in(config, "hidden_act");
  const auto activation =
      models::published_activation(given.empty() ? "quick_gelu" : given, "vision_config: hidden_act");
  const int64_t side = number_in(config, "image_size", 224),
                patch = std::max<int64_t>(1, number_in(config, "patch_size", 32));
  const Value settings =
      models::table({{"image_size", side / patch * patch},
                     {"patch_size", patch},
                     {"drop_border", side % patch != 0},
                     {"dim", dim},
                     {"depth", number_in(config, "num_hidden_layers", 12)},
                     {"heads", number_in(config, "num_attention_heads", 12)},
                     {"mlp_ratio", static_cast<double>(number_in(config, "intermediate_size", 3072)) /
                                       static_cast<double>(dim)},
                     {"mlp", name_of(activation)},
                     {"norm_eps", real_in(config, "layer_norm_eps", 1e-5)},
                     {"pre_norm", true},
                     {"classes", 0}});
  return models::build_backbone(models::resolve_model("vit", settings), 0, models::Init::skip);
}

data::Preprocess clip_preprocess(int64_t size) {
  data::Preprocess preprocess;
  preprocess.size = size;
  preprocess.crop = 1;
  preprocess.mean = {0.48145466, 0.4578275, 0.40821073};
  preprocess.std = {0.26862954, 0.26130258, 0.27577711};
  return preprocess;
}

// Copies every tensor of the file to its place; all of the module's must be reached.
void load(torch::nn::Module& module, const WeightFile& file,
          const std::function<TensorPlace(const std::string&)>& place, std::vector<std::string>& notes) {
  const torch::NoGradGuard no_grad;
  auto parameters = module.named_parameters();
  std::map<std::string, int64_t> reached;
  std::vector<std::string> left_over, missing;
  for (const TensorView& view : file.tensors()) {
    const TensorPlace to = place(view.name);
    if (to.name.empty()) continue;
    torch::Tensor* parameter = parameters.find(to.name);
    if (!parameter) {
      left_over.push_back(view.name);
      continue;
    }
    const auto parts = parameter->chunk(to.parts, 0);
    torch::Tensor target = parts.at(static_cast<size_t>(to.part));
    int64_t numbers = 1;
    for (const int64_t side : view.shape) numbers *= side;
    if (numbers != target.numel() ||
        (std::ssize(view.shape) == target.dim() && c10::IntArrayRef(view.shape) != target.sizes()))
      fail("'", file.path(), "': tensor '", printable(view.name), "' is ", c10::IntArrayRef(view.shape),
           ", the model's is ", target.sizes());
    target.copy_(to_tensor(view).view(target.sizes()));
    file.forget(view);
    reached[to.name] += 1;
  }
  for (const auto& entry : parameters)
    if (!reached.contains(entry.key())) missing.push_back(entry.key());
  if (!missing.empty())
    fail("'", file.path(), "' does not fit its config.json: ", counted(std::ssize(missing), "tensor"),
         " missing (", some_of(missing, 4, 100), ")",
         left_over.empty() ? ""
                           : text(", ", left_over.size(), " left over (", some_of(left_over, 4, 100), ")"));
  if (!left_over.empty())
    notes.push_back(
        text("not used: ", counted(std::ssize(left_over), "tensor"), " (", some_of(left_over, 4, 100), ")"));
}

// The numbers that a model of this many parameters needs must be in its files: nothing is allocated on the word of a
// configuration alone.
void check_size(const WeightFile& file, const std::function<int64_t()>& count) {
  int64_t stored = 0;
  for (const TensorView& view : file.tensors())
    stored += static_cast<int64_t>(view.bytes.size() / size_of(view.dtype));
  const nn::ShapesOnly shapes_only;
  const int64_t needed = count();
  if (needed / 4 > stored)
    fail("'", file.path(), "' does not fit its config.json: it holds ",
         human_count(static_cast<double>(stored)), " numbers, the model has ",
         human_count(static_cast<double>(needed)), " parameters");
}

// `eos_token_id`, a number or several, of generation_config.json beside the weights, else of the configuration. Numbers that
// no token has can end nothing and are left out.
std::vector<int64_t> end_tokens_of(const std::string& folder, const Value& config, int64_t vocabulary) {
  const std::string file = (fs::path(folder) / "generation_config.json").string();
  const Value generation = file_exists(file) ? read_language_config(file) : Value(Value::Table());
  const Value* named = generation.find("eos_token_id");
  if (!named) named = config.find("eos_token_id");
  std::vector<int64_t> ends;
  const auto add = [&](const Value& id) {
    if (id.is_int() && id.as_int() >= 0 && id.as_int() < vocabulary) ends.push_back(id.as_int());
  };
  if (named && named->is_array())
    std::ranges::for_each(named->as_array(), add);
  else if (named)
    add(*named);
  return ends;
}

std::string chat_template_of(const Value& config, const Tokeniser& tokeniser, bool images) {
  if (images) return "v1";
  if (tokeniser.find("<|im_start|>")) return "chatml_direct";
  if (tokeniser.find("<|start_header_id|>")) return "llama_3";
  if (word_in(config, "_name_or_path").find("chat") != std::string::npos) return "llava_llama_2";
  return "";
}

// Weights of a run of ours.
OpenedLanguage open_run(const std::string& path, const std::string& tokenizer, torch::ScalarType dtype) {
  const OpenedTask opened = open_task(path);
  const tasks::AnsweringModel model = require_answers(opened).answering_model();
  if (!tokenizer.empty())
    fail_usage("--tokenizer: '", opened.file, "' holds its own, which it was trained with");
  OpenedLanguage out;
  out.language = model.language;
  if (model.vision) {
    out.llava = std::make_shared<models::Llava>(model.images, model.vision, model.language);
    out.llava->share_projector(model.projector);
    out.llava->to(dtype);
    out.llava->eval();
  } else {
    for (const tasks::Part& part : opened.task->parts()) part.module->to(dtype);
    tasks::set_training(opened.task->parts(), false);
    out.image_logits = model.image_logits;
    out.per_image = model.per_image;
  }
  out.tokeniser = model.tokeniser;
  out.image_token = model.image_token;
  out.preprocess = opened.info.preprocess;
  out.chat_template = model.chat;
  out.file = opened.file;
  out.notes = opened.notes;
  return out;
}

}  // namespace

const tasks::Answers& require_answers(const OpenedTask& opened) {
  if (const auto* answers = dynamic_cast<const tasks::Answers*>(opened.task.get())) return *answers;
  fail_usage("'", opened.file, "' was trained for task ", tasks::task_name(opened.info.task),
             ", which has no language model: it must be language, instruct, frozen or flamingo");
}

OpenedLanguage open_language(const std::string& path, const std::string& tokenizer, torch::ScalarType dtype) {
  const std::string weights = weights_file_of(path);
  if (read_weights_info(WeightFile(weights).metadata(), weights).ours)
    return open_run(path, tokenizer, dtype);
  OpenedLanguage out;
  const std::string folder = fs::is_directory(path) ? path : fs::path(path).parent_path().string();
  const std::string config_file = (fs::path(folder) / "config.json").string();
  if (!file_exists(config_file))
    fail("'", path, "' is no language model: there is no config.json that says what it is");
  const Value config = read_language_config(config_file);
  out.file = weights;
  const WeightFile file(out.file);
  const bool images = word_in(config, "model_type").starts_with("llava");
  const Value* text_part = config.find("text_config");
  const Value* vision_part = config.find("vision_config");
  if (images && (!text_part || !vision_part))
    fail_usage(config_file, " has no ", text_part ? "vision_config" : "text_config",
               ", which a model of images and text needs");
  Value text_config = images ? *text_part : config;
  if (images && word_in(text_config, "model_type").empty()) text_config.set("model_type", "llama");
  const models::LanguageConfig language_config = models::language_config_of(text_config, config_file);
  check_size(file, [&] { return models::count_parameters(models::LanguageModel(language_config)); });

  const nn::ParameterType in_its_type(dtype);
  out.language = std::make_shared<models::LanguageModel>(language_config);
  torch::nn::Module* whole = out.language.get();
  std::function<TensorPlace(const std::string&)> place = [&](const std::string& name) {
    return TensorPlace{out.language->rename(name)};
  };
  if (images) {
    const models::LlavaConfig llava =
        models::llava_config_of(config, number_in(*vision_part, "num_hidden_layers", 12), config_file);
    out.llava = std::make_shared<models::Llava>(llava, clip_tower(*vision_part), out.language);
    whole = out.llava.get();
    place = [&](const std::string& name) { return models::llava_place(name, *out.language); };
    out.image_token = number_in(config, "image_token_index", number_in(config, "image_token_id", -1));
    out.preprocess = clip_preprocess(number_in(*vision_part, "image_size", 224));
  }
  whole->to(dtype);
  load(*whole, file, place, out.notes);
  whole->eval();

  const std::string words = tokenizer.empty() ? folder : tokenizer;
  try {
    out.tokeniser = Tokeniser::load(words);
  } catch (const Error&) {
    if (!tokenizer.empty()) throw;
    fail_usage("'", folder, "' holds no tokeniser that can be read: name one with --tokenizer");
  }
  if (out.tokeniser->size() > language_config.vocabulary)
    fail_usage(words, " has ", out.tokeniser->size(), " tokens, the model has embeddings for ",
               language_config.vocabulary);
  if (images && out.image_token < 0) {
    const auto id = out.tokeniser->find("<image>");
    if (!id) fail_usage(config_file, " has no image_token_index, and the tokeniser no '<image>'");
    out.image_token = *id;
  }
  out.end_tokens = end_tokens_of(folder, text_config.find("eos_token_id") ? text_config : config,
                                 language_config.vocabulary);
  out.chat_template = chat_template_of(config, *out.tokeniser, images);
  return out;
}

}  // namespace tessera::train
