#include "open/open_language.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/config.h"
#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/files/path.h"
#include "models/language/language_model.h"
#include "models/language/llava.h"
#include "nn/init.h"
#include "open/weights.h"
#include "weights/hub_config.h"
#include "weights/language_files.h"
#include "weights/load_tensors.h"
#include "weights/published_folder.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

// Builds CLIP's tower from its configuration; defaults are those of CLIP ViT-B/32.
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

// Returns the preprocessing of CLIP's images, or that in the folder. LLaVA's config.json may pad images to a
// square first.
data::Preprocess llava_preprocess(int64_t size, const Value& config, const std::string& where,
                                  PublishedFolder& folder) {
  data::Preprocess preprocess;
  preprocess.size = size;
  preprocess.crop = 1;
  preprocess.mean = {0.48145466, 0.4578275, 0.40821073};
  preprocess.std = {0.26862954, 0.26130258, 0.27577711};
  if (const auto own = read_preprocess_config(folder, size))
    preprocess = read_config<data::Preprocess>(*own, "preprocess", preprocess);
  const std::string ratio = word_in(config, "image_aspect_ratio");
  if (ratio == "pad") preprocess.crop_mode = "pad";
  if (!ratio.empty() && ratio != "pad" && ratio != "square")
    fail_usage(where, ": image_aspect_ratio is '", printable(ratio),
               "', must be pad or square: an image is one square here");
  if (preprocess.size != size)
    fail_usage(where, ": the image tower reads ", size, " pixels a side, the image processor makes ",
               preprocess.size);
  return preprocess;
}

std::string chat_template_of(const Value& config, const Tokeniser& tokeniser, bool images) {
  if (images) return "v1";
  if (tokeniser.find("<|im_start|>")) return "chatml_direct";
  if (tokeniser.find("<|start_header_id|>")) return "llama_3";
  if (word_in(config, "_name_or_path").find("chat") != std::string::npos) return "llava_llama_2";
  return "";
}

// Notes that a published folder has a template of its own: it is a program, which is not run.
void note_chat_template(PublishedFolder& files, const std::string& path, OpenedLanguage& out) {
  std::string file = files.find({"chat_template.jinja", "chat_template.json"});
  const std::string settings = (fs::path(path) / "tokenizer_config.json").string();
  try {
    if (file.empty() && file_exists(settings) && read_published_json(settings).find("chat_template"))
      file = settings;
  } catch (const Error&) {
    return;  // not read for anything else
  }
  if (file.empty()) return;
  const std::string used = out.chat_template.empty() ? "questions have no template"
                                                     : text("the template is '", out.chat_template, "'");
  out.notes.push_back(text(file, ": its chat template is not used; ", used, " (--template names another)"));
}

void note_extent(OpenedLanguage& out) {
  out.vocabulary = out.language->config().vocabulary;
  out.context = out.language->config().context;
}

// Opens weights of a Tessera run.
OpenedLanguage open_run(const LanguageSource& source, torch::ScalarType dtype) {
  const OpenedTask opened = open_task(source.weights, {.key = source.key, .raw = source.raw});
  const tasks::AnsweringModel model = require_answers(opened).answering_model();
  if (!source.tokenizer.empty())
    fail_usage("--tokenizer: '", opened.file, "' holds its own, which it was trained with");
  for (const tasks::Part& part : opened.task->parts()) part.module->to(dtype);
  tasks::set_training(opened.task->parts(), false);
  OpenedLanguage out;
  out.language = model.language;
  out.encoder_decoder = model.encoder_decoder;
  if (out.language) note_extent(out);
  if (out.encoder_decoder) {
    out.vocabulary = model.vocabulary, out.start_token = model.start;
    out.end_tokens = {model.end};
  }
  out.images = model.images;
  out.tokeniser = model.tokeniser;
  out.preprocess = opened.info.preprocess;
  out.chat_template = model.chat;
  out.file = opened.file;
  out.notes = opened.notes;
  return out;
}

// A published folder; its model_type determines the kind of model.
struct Folder {
  std::string path, config_file;
  Value config;
  const WeightFile& file;
  torch::ScalarType dtype;
  PublishedFolder& files;
};

// Checks that the file has as many parameters as the model that `make` returns.
template <class Make>
void check_language_claims(const WeightFile& file, const Make& make) {
  const nn::ShapesOnly shapes_only;
  check_claims(models::count_parameters(*make()), file, kMisfit);
}

void open_encoder_decoder(const Folder& folder, OpenedLanguage& out) {
  const models::Seq2SeqConfig config = models::t5_config_of(folder.config, folder.config_file);
  check_language_claims(folder.file, [&] { return models::make_seq2seq(config); });
  out.encoder_decoder = models::make_seq2seq(config);
  out.encoder_decoder->to(folder.dtype);
  load_language(*out.encoder_decoder, folder.file,
                language_places(names_of(folder.file.tensors()), "t5", config.tied ? "shared.weight" : ""),
                out.notes);
  out.encoder_decoder->eval();
  out.vocabulary = config.vocabulary;
  out.start_token = number_in(folder.config, "decoder_start_token_id", 0);
  if (out.start_token < 0 || out.start_token >= config.vocabulary)
    fail_usage(folder.config_file, ": decoder_start_token_id = ", out.start_token, ", must be 0 to ",
               config.vocabulary - 1);
}

models::ImageReading reading_of(const std::shared_ptr<models::Llava>& llava, int64_t image_token) {
  return {.image_token = image_token,
          .features = [=](const torch::Tensor& images) { return llava->image_features(images); },
          .begin =
              [=](const torch::Tensor& prompt, const torch::Tensor& features, int64_t beams) {
                models::LanguagePrompt read;
                if (features.defined()) read.embedded = llava->embed(prompt, image_token, features);
                return models::next_token_model(llava->language(), read, beams);
              }};
}

void open_text_decoder(const Folder& folder, OpenedLanguage& out) {
  const models::LanguageConfig config = models::language_config_of(folder.config, folder.config_file);
  check_language_claims(folder.file, [&] { return std::make_shared<models::LanguageModel>(config); });
  out.language = std::make_shared<models::LanguageModel>(config);
  out.language->to(folder.dtype);
  load_language(*out.language, folder.file, decoder_places(names_of(folder.file.tensors()), *out.language),
                out.notes);
  out.language->eval();
}

struct LlavaParts {
  std::shared_ptr<models::Llava> model;
  Value text_config;  // the decoder's
};
LlavaParts open_llava(const Folder& folder, OpenedLanguage& out) {
  const Value *text_part = folder.config.find("text_config"),
              *vision_part = folder.config.find("vision_config");
  if (!text_part || !vision_part)
    fail_usage(folder.config_file, " has no ", text_part ? "vision_config" : "text_config",
               ", which a model of images and text needs");
  Value text_config = *text_part;
  if (word_in(text_config, "model_type").empty()) text_config.set("model_type", "llama");
  const models::LanguageConfig config = models::language_config_of(text_config, folder.config_file);
  const models::LlavaConfig images = models::llava_config_of(
      folder.config, number_in(*vision_part, "num_hidden_layers", 12), folder.config_file);
  const auto make = [&] {
    out.language = std::make_shared<models::LanguageModel>(config);
    return std::make_shared<models::Llava>(images, clip_tower(*vision_part), out.language);
  };
  check_language_claims(folder.file, make);
  auto llava = make();
  llava->to(folder.dtype);
  load_language(*llava, folder.file,
                language_places(names_of(folder.file.tensors()), "llava",
                                out.language->config().tied ? out.language->embedding_name() : ""),
                out.notes);
  llava->eval();
  out.preprocess = llava_preprocess(number_in(*vision_part, "image_size", 224), folder.config,
                                    folder.config_file, folder.files);
  return {std::move(llava), std::move(text_config)};
}

// Returns the token of the configuration, else that of the tokeniser.
int64_t image_token_of(const Folder& folder, const Tokeniser& tokeniser) {
  for (const char* key : {"image_token_index", "image_token_id"})
    if (const int64_t id = number_in(folder.config, key, -1); id >= 0) return id;
  const auto id = tokeniser.find("<image>");
  if (!id) fail_usage(folder.config_file, " has no image_token_index, and the tokeniser no '<image>'");
  return *id;
}

void read_tokeniser(const std::string& given, const std::string& folder, OpenedLanguage& out) {
  const std::string words = given.empty() ? folder : given;
  try {
    out.tokeniser = Tokeniser::load(words);
  } catch (const Error& error) {
    if (!given.empty()) throw;
    fail_usage(error.what(), "; --tokenizer names another one");
  }
  if (out.tokeniser->size() > out.vocabulary)
    fail_usage(words, " has ", out.tokeniser->size(), " tokens, the model has embeddings for ",
               out.vocabulary);
}

OpenedLanguage open_folder(const LanguageSource& source, const WeightFile& file, torch::ScalarType dtype) {
  OpenedLanguage out;
  const std::string path = fs::is_directory(source.weights) ? without_cache(source.weights)
                                                            : fs::path(source.weights).parent_path().string();
  const std::string config_file = (fs::path(path) / "config.json").string();
  if (source.raw)
    fail_usage("'", source.weights,
               "' is no run of Tessera: raw weights are those of a checkpoint or run directory");
  if (!file_exists(config_file))
    fail("'", source.weights, "' is no language model: it has no config.json that names its model");
  PublishedFolder files(file.path());
  for (const char* read : {"config.json", "generation_config.json"}) files.find({read});
  const Folder folder{path, config_file, read_language_config(config_file), file, dtype, files};
  const std::string kind = word_in(folder.config, "model_type");
  const nn::ParameterType in_its_type(dtype);
  LlavaParts llava{.model = nullptr, .text_config = folder.config};
  if (kind == "t5" || kind == "mt5")
    open_encoder_decoder(folder, out);
  else if (kind.starts_with("llava"))
    llava = open_llava(folder, out);
  else
    open_text_decoder(folder, out);
  if (out.language) note_extent(out);
  read_tokeniser(source.tokenizer, path, out);
  if (source.tokenizer.empty())
    if (const std::string own =
            files.find({"tokenizer.json", "vocab.json", "tokenizer.model", "spiece.model"});
        own.ends_with("vocab.json"))
      files.find({"merges.txt"});
  out.chat_template = chat_template_of(folder.config, *out.tokeniser, llava.model != nullptr);
  if (out.language || llava.model) note_chat_template(files, path, out);
  for (std::string& line : files.lines()) out.notes.push_back(std::move(line));
  if (llava.model) out.images = reading_of(llava.model, image_token_of(folder, *out.tokeniser));
  out.end_tokens = end_tokens_of(
      path, llava.text_config.find("eos_token_id") ? llava.text_config : folder.config, out.vocabulary);
  return out;
}

}  // namespace

bool is_language_model(const std::string& path) {
  const WeightFile file(weights_file_of(path));
  const WeightsInfo info = read_weights_info(file.metadata(), file.path());
  if (info.ours) {
    const char* command = tasks::find_task(tasks::task_name(info.task)).command;
    return command && std::string_view(command) == "chat";
  }
  const fs::path config = fs::path(file.path()).parent_path() / "config.json";
  if (!file_exists(config.string())) return false;
  const std::string kind = word_in(read_language_config(config.string()), "model_type");
  const std::vector<std::string> decoders = tessera::names_of<models::LanguageKind>();
  return kind == "t5" || kind == "mt5" || kind.starts_with("llava") ||
         std::ranges::find(decoders, kind) != decoders.end();
}

const tasks::Answers& require_answers(const OpenedTask& opened) {
  if (const auto* answers = dynamic_cast<const tasks::Answers*>(opened.task.get())) return *answers;
  fail_usage("'", opened.file, "' was trained for task ", tasks::task_name(opened.info.task),
             ", which has no language model: it must be language, instruct, frozen or flamingo");
}

OpenedLanguage open_language(const LanguageSource& source, torch::ScalarType dtype) {
  const WeightFile file(weights_file_of(source.weights), source.key);
  const bool ours = read_weights_info(file.metadata(), file.path()).ours;
  const bool flamingo = !ours && is_open_flamingo(file);
  if (!flamingo && !(source.language.empty() && source.tower.empty()))
    fail_usage(source.language.empty() ? "--tower" : "--language",
               " is for the weights of OpenFlamingo, which '", file.path(), "' are not");
  if (flamingo) return open_flamingo(source, file, dtype);
  OpenedLanguage out = ours ? open_run(source, dtype) : open_folder(source, file, dtype);
  out.file = file.path();
  return out;
}

OpenedLanguage open_decoder(const std::string& path, torch::ScalarType dtype) {
  OpenedLanguage opened = open_language({.weights = path}, dtype);
  if (!opened.language)
    fail_usage("'", opened.file,
               "' is an encoder-decoder, must be a decoder (gpt2, llama, qwen2, mistral, bloom or mpt)");
  return opened;
}

}  // namespace tessera::train
