// How a language model reads an image between its text tokens.
#include "models/language/language_model.h"
#include "models/language/llava.h"
#include "models/language/projection.h"
#include "nn/host_values.h"
#include "ops/gpu.h"
#include "tasks/language/answering.h"

namespace tessera::tasks {
namespace {

// Rows may have fewer images than places; unused places are dropped. Keeps all if no row has an image.
torch::Tensor named_images(const torch::Tensor& images, const torch::Tensor& ids, int64_t image_token,
                           int64_t per_image) {
  const torch::Tensor places = ids == image_token, tokens = places.sum(1, /*keepdim=*/true);
  const int64_t all = images.size(0) * per_image, here = nn::count_true(places);
  if (here == 0 || here == all) return images;
  const torch::Tensor space = torch::arange(images.size(0) / ids.size(0), tokens.options());
  return images.index_select(
      0, ops::sent_to(images.device(), (tokens > space * per_image).flatten().nonzero().squeeze(1)));
}

}  // namespace

torch::Tensor embed_with_features(const models::LanguageModel& language, const TextIds& ids,
                                  int64_t image_token, const torch::Tensor& features) {
  const torch::Tensor words = language.embed(ids.there), places = ids.host == image_token;
  if (nn::count_true(places) == 0) return words + features.sum() * 0;
  return models::splice(words, ids.there == image_token, features.flatten(0, 1), places);
}

torch::Tensor ImageReader::logits(const torch::Tensor& images, const TextIds& ids, int64_t image_token,
                                  const models::Context& context) {
  return language()->forward(
      {.embedded = embed_with_features(
           *language(), ids, image_token,
           features(named_images(images, ids.host, image_token, per_image(images.size(3))), context))});
}

models::NextTokenModel ImageReader::begin(const torch::Tensor& prompt, const torch::Tensor& features,
                                          int64_t image_token, int64_t beams) {
  models::LanguagePrompt read;
  if (features.defined())
    read.embedded = embed_with_features(*language(), {prompt, prompt.to(torch::kCPU)}, image_token, features);
  return models::next_token_model(*language(), read, beams);
}

std::shared_ptr<models::LanguageModel> make_language_model(const AnsweringConfig& config) {
  auto model = std::make_shared<models::LanguageModel>(config.language);
  if (config.lora_rank > 0)
    models::add_lora(*model,
                     {.rank = config.lora_rank, .alpha = config.lora_alpha, .targets = config.lora_targets});
  return model;
}

}  // namespace tessera::tasks
