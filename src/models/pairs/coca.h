// CoCa (Yu et al. 2022, "CoCa: contrastive captioners are image-text foundation models"): two towers compared
// as in CLIP, and a decoder that writes the caption.
//
//   p_0, p_1 … = pooler(backbone tokens)         queries read the image (section 3.2); p_0: its vector
//   t, c       = text tower(caption)              a causal Transformer; c is its class token
//   logits     = decoder(t, p_1 …)                causal attention and attention to the image, alternating
//   loss       = l_contrast CLIP(p_0, c) + l_caption mean of -log p(t_{i+1} | t_1 … t_i, image)       (eq. 4)
//
// The form is OpenCLIP's; weights/names/tower_names.cpp has its names.
#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include <vector>

#include "models/pairs/text_tower.h"
#include "nn/cross_attention.h"

namespace tessera::models {

struct CocaConfig {
  TextTowerConfig text;                     // its pool is class_token
  int64_t image_width = 0;                  // width of the backbone's tokens
  int64_t embed_dim = 512;                  // width of the space and of the decoder's image tokens
  int64_t queries = 256, pooler_heads = 8;  // for the pooler; the first query is the image's vector
  int64_t decoder_depth = 12, decoder_heads = 8;
  int64_t decoder_hidden = 0;  // width inside its MLPs, 0 = as in the text tower
  double first_scale = 1 / 0.07;
};

// Attention to the image, then an MLP. Parameters norm1, norm_context, attn, norm2, mlp.
class CrossBlock : public torch::nn::Module {
 public:
  CrossBlock(int64_t dim, int64_t context_width, int64_t heads, int64_t hidden, nn::MlpForm mlp,
             double norm_eps);
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& context,
                        const nn::AttentionExtras& extras);
  int64_t macs(int64_t tokens, int64_t keys) const {
    return attn_->macs(tokens, keys) + tokens * mlp_->macs();
  }

 private:
  nn::LayerNorm norm1_{nullptr}, norm_context_{nullptr}, norm2_{nullptr};
  nn::CrossAttention attn_{nullptr};
  nn::AnyMlp mlp_{nullptr};
};

// All parts except the backbone.
class Coca final : public torch::nn::Module, public nn::Stack {
 public:
  explicit Coca(const CocaConfig& config);
  void initialise(uint64_t seed);

  // One side of the pair: its vector [batch, embed_dim], not normalised, and the tokens that the decoder
  // reads.
  struct Side {
    torch::Tensor embed, tokens;
  };
  // Reads the backbone's tokens [batch, tokens, image_width].
  Side image(const torch::Tensor& tokens, const Context& context = {});
  Side text(const torch::Tensor& ids, const Context& context = {});  // ids [batch, tokens]
  // Returns the logits of the token after each token of the text, [batch, tokens, vocab_size].
  torch::Tensor decode(const torch::Tensor& image_tokens, const torch::Tensor& text_tokens,
                       const Context& context = {});
  // Returns the attention of text tokens in the last block to the backbone's tokens [1, tokens, image_width],
  // through the pooler's queries: mean over heads, [tokens of the text, tokens of the image].
  torch::Tensor attention(const torch::Tensor& image_tokens, const torch::Tensor& ids);

  torch::Tensor scale() const { return logit_scale.exp(); }
  void bound_scale();  // exp(logit_scale) between 1 and 100
  int64_t macs(int64_t image_tokens) const;
  const CocaConfig& config() const { return config_; }
  std::vector<std::vector<torch::Tensor>> units() const override;

  torch::Tensor logit_scale;

 private:
  std::vector<torch::Tensor> unit(size_t index) const;  // a block and the one that reads the image

  CocaConfig config_;
  nn::AttentionPooler attn_pool_{nullptr};
  nn::LayerNorm ln_post_{nullptr}, decoder_norm_{nullptr};
  nn::Linear proj_{nullptr}, vocabulary_{nullptr};
  std::shared_ptr<TextTower> text_;
  torch::nn::ModuleList blocks_{nullptr}, cross_blocks_{nullptr};
};

}  // namespace tessera::models
