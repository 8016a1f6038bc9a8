#include "models/language/llava.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/text.h"
#include "nn/host_values.h"

namespace tessera::models {

ProjectorImpl::ProjectorImpl(int64_t in, int64_t out, const ProjectorOptions& options)
    : activation_(options.activation) {
  linear_1_ = register_module("linear_1", nn::Linear(in, out, options.bias));
  if (options.layers > 1) linear_2_ = register_module("linear_2", nn::Linear(out, out, options.bias));
}

torch::Tensor ProjectorImpl::forward(const torch::Tensor& features) const {
  const torch::Tensor y = linear_1_->forward(features);
  return linear_2_ ? linear_2_->forward(activate(y, activation_)) : y;
}

// Layers are counted as in transformers: hidden state 0 is the input of block 0, negative numbers count from
// the end.
LlavaConfig llava_config_of(const Value& hub, int64_t blocks, const std::string& where) {
  LlavaConfig llava;
  const auto from_behind = [&](const Value& layer) {
    if (!layer.is_int())
      fail_usage(where, ": vision_feature_layer holds ", layer.type_name(), ", must be integers");
    return layer.as_int() < 0 ? layer.as_int() : layer.as_int() - blocks - 1;
  };
  if (const Value* layer = hub.find("vision_feature_layer"); layer && layer->is_array()) {
    if (layer->as_array().empty()) fail_usage(where, ": vision_feature_layer names no layer");
    for (const Value& one : layer->as_array()) llava.more_blocks.push_back(from_behind(one));
    llava.select_block = llava.more_blocks.front();
    llava.more_blocks.erase(llava.more_blocks.begin());
  } else if (layer) {
    llava.select_block = from_behind(*layer);
  }
  const auto word = [&](const char* key) {
    const Value* found = hub.find(key);
    return found && found->is_string() ? found->as_string() : std::string();
  };
  llava.class_token = word("vision_feature_select_strategy") == "full";
  if (const std::string name = word("projector_hidden_act"); !name.empty())
    llava.projector_activation = published_activation(name, where + ": projector_hidden_act");
  if (const Value* bias = hub.find("multimodal_projector_bias"); bias && bias->is_bool())
    llava.projector_bias = bias->as_bool();
  return llava;
}

std::vector<int64_t> expand_image_tokens(const std::vector<int64_t>& ids, int64_t image_token,
                                         int64_t per_image) {
  std::vector<int64_t> out;
  for (const int64_t id : ids)
    out.insert(out.end(), id == image_token ? static_cast<size_t>(per_image) : 1, id);
  return out;
}

torch::Tensor splice(const torch::Tensor& embedded, const torch::Tensor& places,
                     const torch::Tensor& features, const torch::Tensor& host_places) {
  const int64_t wanted = nn::count_true(host_places.defined() ? host_places : places);
  check(wanted == features.size(0), "a text has ", wanted, " places for image features, but there are ",
        features.size(0));
  return embedded.masked_scatter(places.unsqueeze(-1), features.to(embedded.scalar_type()));
}

torch::Tensor next_token_loss_sum(const torch::Tensor& logits, const torch::Tensor& labels) {
  return at::cross_entropy_loss(logits.slice(1, 0, -1).flatten(0, 1), labels.slice(1, 1).flatten(), {},
                                at::Reduction::Sum, kIgnoredLabel);
}

Llava::Llava(const LlavaConfig& config, std::shared_ptr<Backbone> vision,
             std::shared_ptr<LanguageModel> language)
    : config_(config), vision_(std::move(vision)), language_(std::move(language)) {
  auto* const tokens = dynamic_cast<TokenEncoder*>(vision_.get());
  if (!tokens) fail_usage("LLaVA reads tokens of an image tower with one grid throughout, such as vit");
  std::vector<int64_t> blocks = {config_.select_block};
  blocks.insert(blocks.end(), config_.more_blocks.begin(), config_.more_blocks.end());
  for (const int64_t block : blocks)
    if (block >= 0 || -block > vision_->block_count())
      fail_usage("select_block = ", block, ": the image tower has ", vision_->block_count(), " blocks");
  register_module("vision", vision_);
  projector_ = register_module("multi_modal_projector",
                               Projector(std::ssize(blocks) * tokens->token_width(), language_->config().dim,
                                         ProjectorOptions{.layers = config_.projector_layers,
                                                          .activation = config_.projector_activation,
                                                          .bias = config_.projector_bias}));
  register_module("language_model", language_);
}

torch::Tensor Llava::image_features(const torch::Tensor& images) {
  auto& tower = dynamic_cast<TokenEncoder&>(*vision_);
  Taps taps;
  std::vector<std::string> names = {text("blocks.", vision_->block_count() + config_.select_block)};
  for (const int64_t block : config_.more_blocks)
    names.push_back(text("blocks.", vision_->block_count() + block));
  taps.wanted = [&](const std::string& given) {
    return std::find(names.begin(), names.end(), given) != names.end();
  };
  const Tokens tokens = tower.tokenise(images);
  tower.encode(tokens, {.taps = &taps});
  std::vector<torch::Tensor> features;
  for (const std::string& name : names) {
    const torch::Tensor& all = taps.kept.at(name);
    features.push_back(config_.class_token ? all : tokens.patches_of(all));
  }
  return projector_->forward(features.size() == 1 ? features.front() : torch::cat(features, -1));
}

torch::Tensor Llava::embed(const torch::Tensor& ids, int64_t image_token,
                           const torch::Tensor& features) const {
  return splice(language_->embed(ids), ids == image_token, features.flatten(0, -2));
}

Frozen::Frozen(const FrozenConfig& config, std::shared_ptr<Backbone> vision,
               std::shared_ptr<LanguageModel> language)
    : tokens_(config.tokens), vision_(std::move(vision)), language_(std::move(language)) {
  register_module("encoder", vision_);
  map_ = register_module("map", nn::Linear(vision_->embed_width(), config.tokens * language_->config().dim));
  register_module("lm", language_);
}

torch::Tensor Frozen::prefix(const torch::Tensor& images) {
  return map_->forward(vision_->embed(images)).unflatten(-1, {tokens_, -1});
}

torch::Tensor Frozen::forward(const torch::Tensor& prefix, const torch::Tensor& ids,
                              const torch::Tensor& mask) {
  TextInput input{.embedded = torch::cat({prefix, language_->embed(ids)}, 1)};
  if (mask.defined()) input.mask = torch::cat({mask.new_ones({mask.size(0), prefix.size(1)}), mask}, 1);
  return language_->forward(input);
}

torch::Tensor prefix_mask(int64_t prefix, int64_t total) {
  const torch::Tensor place = torch::arange(total, torch::kInt64);
  return (place.unsqueeze(0) <= place.unsqueeze(1)) | (place.unsqueeze(0) < prefix);
}

}  // namespace tessera::models
