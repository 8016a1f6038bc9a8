#include "open/open_language.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "models/language/flamingo.h"
#include "nn/init.h"
#include "weights/language_files.h"
#include "weights/load_tensors.h"
#include "weights/name_tables.h"

namespace tessera::train {
namespace {

constexpr int64_t kHeadDim = 64;  // in every published OpenFlamingo
constexpr int64_t kMostLayers = 4096;
constexpr std::string_view kLanguage = "lang_encoder.";
constexpr const char* kNotWhole = "is no whole OpenFlamingo";
constexpr const char* kLatents = "perceiver.latents";

using Shapes = std::map<std::string, std::vector<int64_t>>;

// Maps tensors to the names of models::Flamingo. Those of the language model keep their published names,
// after "lang_encoder.".
std::vector<NamePlace> places_in(const WeightFile& file) {
  return names_of_family("flamingo").ours(names_of(file.tensors()));
}

Shapes shapes_of(const WeightFile& file) {
  Shapes shapes;
  const std::vector<NamePlace> places = places_in(file);
  for (size_t i = 0; i < places.size(); ++i) shapes[places[i].ours] = file.tensors()[i].shape;
  return shapes;
}

int64_t extent(const Shapes& shapes, const std::string& name, size_t axis, const std::string& file) {
  const auto found = shapes.find(name);
  if (found == shapes.end()) fail("'", file, "' is no OpenFlamingo: ", name, " is missing");
  if (std::ranges::find(found->second, 0) != found->second.end())
    fail("'", file, "': tensor ", name, " holds nothing");
  if (found->second.size() <= axis)
    fail("'", file, "': tensor ", name, " has ", found->second.size(), " axes, must have more than ", axis);
  return found->second[axis];
}

// Returns the numbers between a prefix and the next dot.
std::set<int64_t> numbers_behind(const Shapes& shapes, const std::string& prefix) {
  std::set<int64_t> numbers;
  for (auto found = shapes.lower_bound(prefix); found != shapes.end() && found->first.starts_with(prefix);
       ++found) {
    const size_t end = found->first.find('.', prefix.size());
    const auto number = parse_int(found->first.substr(prefix.size(), end - prefix.size()));
    if (number && *number >= 0 && *number < kMostLayers) numbers.insert(*number);
  }
  return numbers;
}

// Derives the configuration from the shapes in the file.
models::FlamingoConfig config_of(const Shapes& shapes, const std::string& file) {
  const std::set<int64_t> layers = numbers_behind(shapes, "perceiver.layers."),
                          gated = numbers_behind(shapes, "gated_cross_attn_layers.");
  if (layers.empty() || gated.empty())
    fail("'", file, "' is no OpenFlamingo: it has no ",
         layers.empty() ? "layers of a resampler" : "gated layers");
  const std::string resampler = "perceiver.layers.0.",
                    first = text("gated_cross_attn_layers.", *gated.begin(), ".");
  const auto at = [&](const std::string& name, size_t axis) { return extent(shapes, name, axis, file); };
  models::FlamingoConfig config;
  config.resampler = {.dim = at(kLatents, 1),
                      .depth = std::ssize(layers),
                      .heads = at(resampler + "0.to_q.weight", 0) / kHeadDim,
                      .head_dim = kHeadDim,
                      .latents = at(kLatents, 0),
                      .mlp_ratio = at(resampler + "1.1.weight", 0) / at(kLatents, 1),
                      .frames = shapes.contains("perceiver.frame_embs") ? at("perceiver.frame_embs", 0) : 0};
  config.gated = {.dim = at(first + "attn.norm.weight", 0),
                  .media_dim = at(first + "attn.to_kv.weight", 1),
                  .heads = at(first + "attn.to_q.weight", 0) / kHeadDim,
                  .head_dim = kHeadDim,
                  .mlp_ratio = at(first + "ff.1.weight", 0) / at(first + "attn.norm.weight", 0)};
  config.every = *gated.begin() + 1;
  if (config.resampler.heads < 1 || config.gated.heads < 1)
    fail("'", file, "': its attention is narrower than a head of ", kHeadDim, " channels");
  return config;
}

// Returns the number of embedding rows in the file; 0 if it has none.
int64_t embedding_rows(const Shapes& shapes, const models::LanguageModel& language) {
  for (const auto& [name, shape] : shapes)
    if (name.starts_with(kLanguage) && shape.size() == 2 && shape[1] == language.config().dim &&
        decoder_name(name.substr(kLanguage.size()), language) == language.embedding_name())
      return shape[0];
  return 0;
}

// Counts the parameters that the file must have, without memory for them.
int64_t count_added(const models::FlamingoConfig& config, int64_t blocks) {
  const nn::ShapesOnly shapes_only;
  return models::count_parameters(*models::Resampler(config.resampler)) +
         blocks / config.every * models::count_parameters(*models::GatedCrossAttention(config.gated));
}

// Adds tokens as OpenFlamingo's code does, then resizes the embeddings.
void add_special_tokens(OpenedLanguage& out, const std::string& source, const Shapes& shapes,
                        const std::string& file) {
  std::vector<std::string> added = {"<|endofchunk|>", "<image>"};
  if (out.tokeniser->special().pad < 0) added.push_back("<PAD>");
  out.tokeniser = out.tokeniser->with_tokens(added);
  const int64_t rows = embedding_rows(shapes, *out.language);
  if (rows > 0 && rows < out.tokeniser->size())
    fail("'", file, "' has embeddings for ", rows, " tokens, the tokeniser of '", source, "' ",
         out.tokeniser->size(), " with those of OpenFlamingo: it was trained with another");
  out.language->resize_vocabulary(rows > 0 ? rows : out.tokeniser->size());
  if (rows == 0)
    out.notes.push_back(text("'", file, "' brings no embeddings: those of <image> and <|endofchunk|> are 0"));
}

void check_language(const OpenedLanguage& out, const models::FlamingoConfig& config,
                    const std::string& file) {
  if (config.gated.dim != out.language->config().dim)
    fail_usage("--language: '", out.file, "' has tokens of ", out.language->config().dim, " channels, '",
               file, "' was trained with ", config.gated.dim);
  if (config.every > out.language->config().depth)
    fail_usage("--language: '", out.file, "' has ", out.language->config().depth, " blocks, '", file,
               "' was trained with at least ", config.every);
}

std::shared_ptr<models::Backbone> tower_of(const OpenedTask& opened, const models::FlamingoConfig& config,
                                           const std::string& file) {
  const std::shared_ptr<models::Backbone> tower = opened.task->backbones().at(0).model;
  const auto* const tokens = dynamic_cast<const models::TokenEncoder*>(tower.get());
  if (tokens && tokens->token_width() != config.resampler.dim)
    fail_usage("--tower: '", opened.file, "' has tokens of ", tokens->token_width(), " channels, '", file,
               "' was trained with ", config.resampler.dim);
  return tower;
}

// Returns the places of the file's tensors in the model; those of its decoder have our names.
std::vector<NamePlace> places_for(const models::LanguageModel& language, const WeightFile& file) {
  std::vector<NamePlace> places = places_in(file);
  for (NamePlace& place : places)
    if (place.ours.starts_with(kLanguage)) {
      const NamePlace own = decoder_places({place.ours.substr(kLanguage.size())}, language).front();
      place.ours = own.ours.empty() ? "" : std::string(kLanguage) + own.ours;
      place.older = place.older || own.older;
    }
  return places;
}

}  // namespace

bool is_open_flamingo(const WeightFile& file) {
  return std::ranges::any_of(places_in(file), [](const NamePlace& place) { return place.ours == kLatents; });
}

OpenedLanguage open_flamingo(const LanguageSource& source, const WeightFile& file, torch::ScalarType dtype) {
  if (source.language.empty() || source.tower.empty())
    fail_usage("'", file.path(),
               "' holds what OpenFlamingo adds to two other models: name the folder of its ",
               "language model with --language and the weights of its image tower with --tower");
  const Shapes shapes = shapes_of(file);
  models::FlamingoConfig config = config_of(shapes, file.path());
  OpenedLanguage out = open_language({.weights = source.language, .tokenizer = source.tokenizer}, dtype);
  if (!out.language || out.images) fail_usage("--language: '", out.file, "' is no decoder of texts alone");
  add_special_tokens(out, source.language, shapes, file.path());
  check_language(out, config, file.path());
  config.media_token = *out.tokeniser->find("<image>");

  const OpenedTask opened = open_task(source.tower);
  const std::shared_ptr<models::Backbone> tower = tower_of(opened, config, file.path());
  check_claims(count_added(config, out.language->config().depth), file, kNotWhole);
  tower->to(dtype);
  const nn::ParameterType in_its_type(dtype);
  const auto model = std::make_shared<models::Flamingo>(config, tower, out.language);
  model->to(dtype);
  load_language(
      *model, file, places_for(*out.language, file), out.notes,
      [](const std::string& name) {
        return name.starts_with(kLanguage) || name.starts_with("vision_encoder.");
      },
      kNotWhole);
  model->eval();
  out.images = models::ImageReading{
      .image_token = config.media_token,
      .among_words = false,
      .features =
          [model](const torch::Tensor& images) {
            return model->media(images.unsqueeze(0).unsqueeze(2)).squeeze(0);  // one frame each
          },
      .begin = [model](const torch::Tensor& prompt, const torch::Tensor& features,
                       int64_t beams) { return model->begin(prompt, features, beams); }};
  out.preprocess = opened.info.preprocess;
  out.vocabulary = out.language->config().vocabulary;
  out.end_tokens.push_back(*out.tokeniser->find("<|endofchunk|>"));
  out.chat_template.clear();
  out.file = file.path();
  return out;
}

}  // namespace tessera::train
