// Parts of a detector with texts as classes: GLIP (Li et al. 2022, "Grounded language-image pre-training").
//
//   fusion     v = norm(v), l = norm(l);  S = (W_v v)(W_l l)^T / sqrt(d) for each head           (eq. 4 to 6)
//              v + g_v W softmax(S) U_l l,   l + g_l W' softmax(S^T) U_v v                        v cells, l tokens
//   alignment  score of a cell v and a token l:  v . W (l / 2) / exp(s) + l . b + b0,  |l| = 1     (eq. 3)
//   class      mean, or largest, probability of the tokens of its name
//
// As in the published code, the residuals start from the normed values, and the mask of the text acts on the cells' side
// alone. Parameters have the published names.
#pragma once

#include "ops/torch.h"

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/config.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace tessera::models {

class GlipFusion final : public torch::nn::Module {
 public:
  GlipFusion(int64_t image_width, int64_t text_width, int64_t inner, int64_t heads);
  // Xavier-uniform matrices; the factors g begin at 1e-4.
  void initialise(uint64_t seed);
  // Maps cells [batch, cells, image_width] and tokens [batch, tokens, text_width] to the same shapes. `mask` [batch,
  // tokens], 0 for padding; undefined = all tokens.
  std::pair<torch::Tensor, torch::Tensor> forward(const torch::Tensor& cells, const torch::Tensor& tokens,
                                                  const torch::Tensor& mask) const;
  int64_t macs(int64_t cells, int64_t tokens) const;

 private:
  torch::Tensor split(const torch::Tensor& x) const;
  int64_t heads_;
  nn::LayerNorm norm_v_{nullptr}, norm_l_{nullptr};
  torch::Tensor gamma_v_, gamma_l_;
  nn::Linear v_{nullptr}, l_{nullptr}, values_v_{nullptr}, values_l_{nullptr}, out_v_{nullptr},
      out_l_{nullptr};
};

// Scores of cells with tokens, before the sigmoid; limited to +-50,000.
class TokenAlignment final : public torch::nn::Module {
 public:
  TokenAlignment(int64_t image_width, int64_t text_width);
  void initialise(uint64_t seed);  // probabilities begin at 0.01
  // [batch, cells, image_width] and [batch, tokens, text_width] -> [batch, cells, tokens].
  torch::Tensor forward(const torch::Tensor& cells, const torch::Tensor& tokens) const;
  int64_t macs(int64_t cells, int64_t tokens) const;

 private:
  torch::Tensor log_scale_, bias_lang_, bias0_;
  nn::Linear text_{nullptr};
};

// The forms of focal loss (Lin et al. 2017) between scores and targets [batch, cells, tokens], summed:
//   binary      of each token that the mask has; alpha below 0: without weights
//   softmax     over the tokens, the last of them means "no object"; targets are divided by their sum
//   binary_v2   of each token, with 1e-8 inside the logarithm
enum class TokenLoss { binary, softmax, binary_v2 };
// `mask` [batch, tokens], 0 for padding; undefined = all tokens.
torch::Tensor token_focal_loss(TokenLoss kind, const torch::Tensor& scores, const torch::Tensor& targets,
                               const torch::Tensor& mask, double alpha, double gamma);

// The tokens of each class in a prompt.
using TokenSpans = std::vector<std::vector<int64_t>>;
enum class TokenVote { mean, most };
// Maps probabilities [..., tokens] to those of the classes, [..., classes].
torch::Tensor class_probabilities(const torch::Tensor& tokens, const TokenSpans& classes, TokenVote vote);

}  // namespace tessera::models

template <>
struct tessera::EnumNames<tessera::models::TokenLoss> {
  static constexpr std::array names = {"binary", "softmax", "binary_v2"};
};
template <>
struct tessera::EnumNames<tessera::models::TokenVote> {
  static constexpr std::array names = {"mean", "most"};
};
