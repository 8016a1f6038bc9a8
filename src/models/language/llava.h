// LLaVA (Liu et al. 2023, "Visual instruction tuning"; 1.5: Liu et al. 2024, "Improved baselines"), and
// Frozen (Tsimpoukelli et al. 2021, "Multimodal few-shot learning with frozen language models").
//
//   H_image = W g(image)            g: patch tokens after an inner block of the tower; W: one layer, or
//                                   (1.5) two with GELU between them
//   p(answer | image, question) the language model with H_image in place of the token "<image>"
//
// Frozen's image is one vector, mapped to a few tokens before the text.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/base/encoder.h"
#include "models/language/language_model.h"

namespace tessera::models {

struct ProjectorOptions {
  int64_t layers = 2;  // 1: LLaVA's, 2: LLaVA 1.5's
  Activation activation = Activation::gelu;
  bool bias = true;
};

// One or two layers with an activation between them; parameters linear_1 and linear_2, as in the published
// llava-hf files.
class ProjectorImpl : public torch::nn::Module {
 public:
  ProjectorImpl(int64_t in, int64_t out, const ProjectorOptions& options = {});
  torch::Tensor forward(const torch::Tensor& features) const;

 private:
  nn::Linear linear_1_{nullptr}, linear_2_{nullptr};
  Activation activation_;
};
TORCH_MODULE(Projector);

// Returns the token ids with each image token repeated `per_image` times, once per feature that replaces it.
std::vector<int64_t> expand_image_tokens(const std::vector<int64_t>& ids, int64_t image_token,
                                         int64_t per_image);
// Returns the embeddings [batch, tokens, dim] with those at `places` (bool [batch, tokens]) replaced by the
// rows of features [count, dim], in order over the batch. Fails unless the numbers of places and rows are
// equal.
// `host_places`: the same places in main memory, where their number is found without waiting for a device.
torch::Tensor splice(const torch::Tensor& embedded, const torch::Tensor& places,
                     const torch::Tensor& features, const torch::Tensor& host_places = {});

// Labels with this value are ignored.
inline constexpr int64_t kIgnoredLabel = -100;
// Returns the cross entropy of each labelled token given the tokens before it, summed. logits [batch, tokens,
// vocabulary], labels int64 [batch, tokens]; label t is compared with the logits of t - 1.
torch::Tensor next_token_loss_sum(const torch::Tensor& logits, const torch::Tensor& labels);

struct LlavaConfig {
  int64_t select_block =
      -2;  // reads the tower's tokens after this block, counted from the end: -2 = the last but one
  bool class_token = false;  // keep it among the features
  int64_t projector_layers = 2;
  // Files by other authors may select more blocks, whose tokens are concatenated with those of select_block
  // for the projector.
  std::vector<int64_t> more_blocks = {};
  Activation projector_activation = Activation::gelu;
  bool projector_bias = true;

  template <class V>
  void visit(V& v) {
    v("select_block", select_block, between(-1000, -1),
      "block of the image tower that is read, from the last (-1)");
    v("class_token", class_token, "its class token is one of the features");
    v("projector_layers", projector_layers, between(1, 2), "1: LLaVA's, 2: LLaVA 1.5's");
  }
};

// Reads the config.json of a published LLaVA, except the settings of its two models. The image tower has
// `blocks` blocks. Usage errors begin with `where`.
LlavaConfig llava_config_of(const Value& hub, int64_t blocks, const std::string& where);

class Llava : public torch::nn::Module {
 public:
  Llava(const LlavaConfig& config, std::shared_ptr<Backbone> vision, std::shared_ptr<LanguageModel> language);

  // Maps [images, 3, height, width] to [images, tokens, dim of the language model].
  torch::Tensor image_features(const torch::Tensor& images);
  // Returns the token embeddings, with the features at the positions of the image token.
  torch::Tensor embed(const torch::Tensor& ids, int64_t image_token, const torch::Tensor& features) const;
  LanguageModel& language() { return *language_; }
  Backbone& vision() { return *vision_; }

 private:
  LlavaConfig config_;
  std::shared_ptr<Backbone> vision_;         // "vision"
  Projector projector_{nullptr};             // "multi_modal_projector"
  std::shared_ptr<LanguageModel> language_;  // "language_model"
};

struct FrozenConfig {
  int64_t tokens = 2;  // tokens that represent an image
};
class Frozen : public torch::nn::Module {
 public:
  Frozen(const FrozenConfig& config, std::shared_ptr<Backbone> vision,
         std::shared_ptr<LanguageModel> language);
  torch::Tensor prefix(const torch::Tensor& images);  // [batch, tokens, dim]
  // Returns logits [batch, prefix + tokens, vocabulary]; mask bool [batch, tokens] of the text.
  torch::Tensor forward(const torch::Tensor& prefix, const torch::Tensor& ids, const torch::Tensor& mask);
  LanguageModel& language() { return *language_; }

 private:
  int64_t tokens_;
  std::shared_ptr<Backbone> vision_;         // "encoder"
  nn::Linear map_{nullptr};                  // "map"
  std::shared_ptr<LanguageModel> language_;  // "lm"
};

// Returns the visible keys of a prefix language model (SimVLM), bool [total, total], row = query. Tokens of
// the prefix see the whole prefix; later tokens see the prefix and all tokens before them.
torch::Tensor prefix_mask(int64_t prefix, int64_t total);

}  // namespace tessera::models
