// SimVLM (Wang et al. 2022, "SimVLM: simple visual language model pretraining with weak supervision"). Its
// only loss is that of the next token of a text. The start of the text, with the image, is read in both
// directions (PrefixLM, eq. 3).
//
//   x_0 = [image tokens W + image positions; token embedding + text positions]
//   decoder only:     one stack; image and prefix see each other, later tokens see all tokens before them
//   encoder-decoder:  the encoder reads image and prefix; the decoder reads the text from the prefix's last
//                     token on, and the encoder's output by cross attention (the paper's form)
//   logits = norm(x_L) E^T                    E the token embedding
//
// No published code exists.
#pragma once

#include <torch/nn/modules/container/modulelist.h>

#include "models/pairs/text_tower.h"
#include "nn/cross_attention.h"

namespace tessera::models {

struct SimVlmConfig {
  int64_t vocab_size = 32000, context_length = 64, dim = 512, heads = 8, depth = 8;
  int64_t decoder_depth = 8;  // 0 = decoder only
  int64_t hidden = 0;         // width inside the MLP, 0 = 4 dim
  double norm_eps = 1e-5;
  int64_t image_width = 0, image_tokens = 0;  // the backbone's

  int64_t hidden_width() const { return hidden > 0 ? hidden : 4 * dim; }
};

// All parts except the backbone.
class SimVlm final : public torch::nn::Module, public nn::Stack {
 public:
  explicit SimVlm(const SimVlmConfig& config);
  void initialise(uint64_t seed);

  // `image` [batch, image_tokens, image_width] are the backbone's tokens; ids int64 [batch, tokens]. `prefix`
  // and `valid` int64 [batch]: the number of first tokens that are read in both directions (encoder-decoder:
  // at least 1), and that are not padding. Returns [batch, tokens, vocab_size]: the logits of the token after
  // each token from the prefix's last one on. For an encoder-decoder, earlier rows are undefined.
  torch::Tensor forward(const torch::Tensor& image, const torch::Tensor& ids, const torch::Tensor& prefix,
                        const torch::Tensor& valid, const Context& context = {});
  // Returns the attention of one text's tokens to its image in the last block, mean over heads: [tokens,
  // image_tokens].
  torch::Tensor attention(const torch::Tensor& image, const torch::Tensor& ids, const torch::Tensor& prefix,
                          const torch::Tensor& valid);
  int64_t macs() const;
  const SimVlmConfig& config() const { return config_; }
  std::vector<std::vector<torch::Tensor>> units() const override;

 private:
  torch::Tensor entered(const torch::Tensor& image, const torch::Tensor& text) const;
  torch::Tensor decoder_only(const torch::Tensor& image, const torch::Tensor& text,
                             const torch::Tensor& prefix, const torch::Tensor& valid, const Context& context);
  torch::Tensor through_layers(torch::Tensor x, const torch::Tensor& bias, const Context& context);
  torch::Tensor encoder_decoder(const torch::Tensor& image, const torch::Tensor& text,
                                const torch::Tensor& prefix, const torch::Tensor& valid,
                                const Context& context);

  SimVlmConfig config_;
  nn::Linear proj_{nullptr};
  torch::Tensor image_positions_, text_positions_;
  std::shared_ptr<TokenEmbedding> token_;
  torch::nn::ModuleList layers_{nullptr}, decoder_{nullptr};
  nn::LayerNorm norm_{nullptr}, decoder_norm_{nullptr};
};

// Returns the sum of -log p of the tokens after the prefix's last one on (a scalar with its graph), and their
// number. ids, prefix and valid as above, logits [batch, tokens, vocab].
struct PrefixLoss {
  torch::Tensor sum, count;
};
PrefixLoss prefix_loss(const torch::Tensor& logits, const torch::Tensor& ids, const torch::Tensor& prefix,
                       const torch::Tensor& valid);

}  // namespace tessera::models
