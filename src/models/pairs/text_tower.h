// The text Transformer that reads captions in CLIP (Radford et al. 2021, section 2.4), SigLIP (Zhai et al.
// 2023) and CoCa (Yu et al. 2022).
//
//   x_0 = token embedding + positions      y = x + attention(norm1(x))      x' = y + mlp(norm2(y))
//   text = text_projection(ln_final(x_L)[the position that is read])
#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include <cstdint>
#include <optional>
#include <string>

#include "core/config.h"
#include "models/base/model.h"
#include "models/pairs/text_encoder.h"
#include "nn/attention.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace tessera::models {

// A pre-norm block over tokens. Parameters norm1, attn, norm2, mlp, and also ls1, ls2 if `init_values`, their
// initial value, is above 0.
class TextBlock : public torch::nn::Module {
 public:
  TextBlock(int64_t dim, int64_t heads, int64_t hidden, nn::MlpForm mlp, double norm_eps,
            double init_values = 0);
  torch::Tensor forward(const torch::Tensor& x, const nn::AttentionExtras& extras);
  int64_t macs(int64_t tokens) const { return attn_->macs(tokens) + tokens * mlp_->macs(); }

 private:
  nn::LayerNorm norm1_{nullptr}, norm2_{nullptr};
  nn::LayerScale ls1_{nullptr}, ls2_{nullptr};
  nn::Attention attn_{nullptr};
  nn::AnyMlp mlp_{nullptr};
};

// A table of vectors. Parameter weight [entries, dim].
class TokenEmbedding : public torch::nn::Module {
 public:
  TokenEmbedding(int64_t entries, int64_t dim);
  torch::Tensor forward(const torch::Tensor& ids) const;  // int64 of any shape -> [..., dim]
  torch::Tensor weight;
};

// The activation of a text model's MLPs; a subset of nn::MlpForm.
enum class TextMlp { gelu, gelu_tanh, quick_gelu, relu, silu };
inline nn::MlpForm form_of(TextMlp mlp) {
  constexpr std::array forms = {nn::MlpForm::gelu, nn::MlpForm::gelu_tanh, nn::MlpForm::quick_gelu,
                                nn::MlpForm::relu, nn::MlpForm::silu};
  return forms[static_cast<size_t>(mlp)];
}

// Selects the token that becomes the text's vector. largest: the token with the largest id (OpenAI's and
// OpenCLIP's end of text). end_token: the first `end_token`. last: the last position, whatever its token
// (SigLIP). class_token: a learned token after all others (CoCa). first: the first token, which sees the
// others only if `causal` is false.
enum class TextPool { largest, end_token, last, class_token, first };

struct TextTowerConfig {
  int64_t vocab_size = 49408, context_length = 77, dim = 512, heads = 8, depth = 12;
  int64_t hidden = 0;  // width inside the MLP, 0 = 4 dim
  TextMlp mlp = TextMlp::gelu;
  double norm_eps = 1e-5;
  double init_values = 0;  // for LayerScale, 0 = none
  bool causal = true;
  TextPool pool = TextPool::largest;
  int64_t end_token = 49407, pad_token = 0;
  int64_t embed_dim = 512;  // width after the projection, 0 = none
  bool projection_bias = false;

  int64_t hidden_width() const { return hidden > 0 ? hidden : 4 * dim; }
};

// Parameters token_embedding.weight, positional_embedding, cls_emb (class_token), blocks, ln_final,
// text_projection.
class TextTower final : public TextEncoder, public nn::Stack {
 public:
  explicit TextTower(const TextTowerConfig& config);
  // As OpenCLIP: embeddings 0.02, positions 0.01, the last layers of residual branches smaller with depth.
  void initialise(uint64_t seed) override;

  // Maps ids int64 or int32 [batch, tokens], at most context_length, to [batch, embed_dim or dim]. If no
  // position sees later ones, positions after the end of every text in main memory are not computed.
  torch::Tensor forward(const torch::Tensor& ids, const Context& context = {}) override;
  // Returns all tokens after ln_final, [batch, tokens, dim]; a class token comes last. `seen` bool [batch,
  // tokens] marks the keys that are attended to; undefined = all.
  torch::Tensor encode(const torch::Tensor& ids, const torch::Tensor& seen = {},
                       const Context& context = {}) override;
  // Returns the vectors [batch, embed_dim or dim] of texts `ids` that encode() mapped to `tokens`.
  torch::Tensor read(const torch::Tensor& tokens, const torch::Tensor& ids) const override;
  // Returns the place that is read, int64 [batch]; for class_token the number of tokens.
  torch::Tensor read_places(const torch::Tensor& ids) const;
  // Returns bool [batch, tokens]: a text's tokens up to the position that is read; if that is the last, all
  // but padding.
  torch::Tensor text_places(const torch::Tensor& ids) const override;
  int64_t length_read(const torch::Tensor& ids) const override;
  torch::Tensor project(const torch::Tensor& x) const override {
    return text_projection_ ? text_projection_->forward(x) : x;
  }
  // For CoCa: the caption's vector after ln_final [batch, dim], and its tokens before that norm [batch,
  // tokens, dim], which its decoder reads. As in the training of the published files, padding is masked one
  // position late: key j is seen if token j - 1 is not padding.
  struct Coca {
    torch::Tensor pooled, tokens;
  };
  Coca read_coca(const torch::Tensor& ids, const Context& context = {});

  const TextTowerConfig& config() const { return config_; }
  int64_t vocabulary() const override { return config_.vocab_size; }
  int64_t macs() const override;
  const torch::Tensor& token_weights() const { return token_embedding_->weight; }
  std::vector<std::vector<torch::Tensor>> units() const override { return nn::parameters_of_each(*blocks_); }

 private:
  torch::Tensor embedded(const torch::Tensor& ids) const;
  torch::Tensor run(torch::Tensor x, const nn::AttentionExtras& extras, const Context& context);

  TextTowerConfig config_;
  std::shared_ptr<TokenEmbedding> token_embedding_;
  torch::Tensor positional_embedding_, cls_emb_;
  torch::nn::ModuleList blocks_{nullptr};
  nn::LayerNorm ln_final_{nullptr};
  nn::Linear text_projection_{nullptr};
};

// Initialises a Transformer block as CLIP does (OpenCLIP's init_parameters); `name` is relative to the block.
void first_values_of_text_block(const std::string& name, const torch::Tensor& parameter,
                                const nn::Filler& fill, int64_t dim, int64_t depth);

}  // namespace tessera::models

template <>
struct tessera::EnumNames<tessera::models::TextMlp> {
  static constexpr std::array names = {"gelu", "gelu_tanh", "quick_gelu", "relu", "silu"};
};
template <>
struct tessera::EnumNames<tessera::models::TextPool> {
  static constexpr std::array names = {"largest", "end_token", "last", "class_token", "first"};
};
