// Supervision within images and texts, in addition to their pairs (Li et al. 2022, "Supervision exists everywhere: a
// data efficient contrastive language-image pre-training paradigm", DeCLIP).
//
//   pairs    mean over two views u, u' of an image and two forms v, v' of its text of CLIP's loss       (eq. 3)
//   images   -(cos(h(z), stop z') + cos(h(z'), stop z)) / 2, z = g(u): SimSiam, g projector, h predictor (eq. 1)
//   texts    mean over masked tokens of -log p(token | the masked text)                                  (BERT)
//   nearest  mean over u, u' and over v, v' of CLIP's loss from images to texts, with the text's nearest
//            neighbour among earlier texts in its place                                                  (eq. 4)
//   loss = pairs + 0.2 (images + texts + nearest)
//
// The second form of a text has two words swapped, or some left out (EDA, Wei & Zou 2019; replacements by synonyms
// need a dictionary and are left out). The masked text serves as the first form.
#pragma once

#include "ops/torch.h"

#include <array>
#include <cstdint>
#include <memory>

#include "core/config.h"
#include "core/random.h"
#include "data/transforms/transform.h"
#include "nn/linear.h"
#include "tasks/base/text_input.h"
#include "tasks/pairs/pair_loss.h"
#include "tasks/pairs/view_contrast.h"

namespace tessera::tasks {

struct DeclipConfig {
  bool views = false;
  double images = 0.2, texts = 0.2, nearest = 0.2, mask_ratio = 0.15, drop_ratio = 0.1;
  int64_t bank = 65536, hidden = 1024, bottleneck = 512;

  template <class V>
  void visit(V& v) {
    v("views", views, "two views of each image, and a changed form of each text (DeCLIP)");
    v("images", images, between(0, 1000), "factor of SimSiam's loss between the views");
    v("texts", texts, between(0, 1000), "factor of the loss of masked tokens of the texts, 0 = no masks");
    v("nearest", nearest, between(0, 1000),
      "factor of the loss with the nearest of earlier texts, 0 = no bank of texts");
    v("mask_ratio", mask_ratio, between(0, 1), "share of a text's tokens that is masked");
    v("drop_ratio", drop_ratio, between(0, 1), "share of the words that a changed text leaves out");
    v("bank", bank, between(1, 1 << 22), "earlier texts that are kept");
    v("hidden", hidden, between(1, 1 << 20), "width of SimSiam's projector");
    v("bottleneck", bottleneck, between(1, 1 << 20), "width inside its predictor");
  }
};

// Earlier texts, in a ring. Buffers rows [size, width], and pointer [1], the place of the next row.
class TextBank final : public torch::nn::Module {
 public:
  TextBank(int64_t size, int64_t width);
  void initialise(uint64_t seed);  // unit rows of normal numbers
  // Returns the most similar rows by cosine, of length 1, [texts, width], without a graph; `chunk` texts at a time. Compares in
  // the buffer's precision.
  torch::Tensor nearest(const torch::Tensor& texts, int64_t chunk) const;
  // Writes rows at the pointer. Rows that exceed the end are dropped, and the pointer returns to the start.
  void add(const torch::Tensor& texts);

 private:
  torch::Tensor rows_, pointer_;
};

// Returns SimSiam's loss, summed over the images [batch, dim].
torch::Tensor simsiam_sum(const torch::Tensor& p, const torch::Tensor& p2, const torch::Tensor& z,
                          const torch::Tensor& z2);

// Vectors of length 1 of this process' images and texts: two views, two forms; and the neighbours of the latter.
struct DeclipRows {
  std::array<torch::Tensor, 2> images, texts, neighbours = {};
};
// Return sums over this process' images.
PairLoss declip_pairs(const DeclipRows& rows, const torch::Tensor& scale, const PairOptions& options);
torch::Tensor declip_nearest(const DeclipRows& rows, const torch::Tensor& scale, const PairOptions& options);

// The modules of training: `projector`, `predictor`, `token_scores`, `bank`. Nothing else uses them.
class DeclipParts final : public torch::nn::Module {
 public:
  // `width`: channels of the shared space; `text_width`: channels of the text tower's tokens.
  DeclipParts(const DeclipConfig& config, int64_t width, int64_t text_width, int64_t vocabulary);
  void initialise(uint64_t seed);
  // Maps the projected images [batch, width], not normalised, to z, and z to p; `whole` images over all processes.
  torch::Tensor project(const torch::Tensor& x, int64_t whole, Collective& others) const;
  torch::Tensor predict(const torch::Tensor& z, int64_t whole, Collective& others) const;
  // Returns the sum over this process' masked tokens of their cross entropy. `targets` int [batch, tokens], negative
  // if a token is not masked; `tokens` [batch, tokens, text_width].
  torch::Tensor masked_sum(const torch::Tensor& tokens, const torch::Tensor& targets) const;
  const std::shared_ptr<TextBank>& bank() const { return bank_; }
  int64_t macs() const;

 private:
  std::array<nn::Linear, 3> projector_{nn::Linear{nullptr}, nn::Linear{nullptr}, nn::Linear{nullptr}};
  std::array<std::shared_ptr<WholeBatchNorm>, 4> norms_;
  std::array<nn::Linear, 2> predictor_{nn::Linear{nullptr}, nn::Linear{nullptr}};
  nn::Linear token_scores_{nullptr};
  std::shared_ptr<TextBank> bank_;
};

// Returns a text with two words swapped, or with a share of its words left out (at least one stays), by the stream.
std::string changed_text(const std::string& text, double drop_ratio, RandomStream& random);
// Fields "tokens" and "changed_tokens", i32 [length]: a caption of the sample and its changed form.
std::shared_ptr<const data::Transform> make_changed_text_transform(const TextInput& input, int64_t length,
                                                                   bool draw, double drop_ratio);

// Tokens that are chosen with probability `ratio` become those of masked_token().
struct TokenMask {
  double ratio = 0.15;
  int32_t start = 0, end = 0, pad = 0, mask = 0;
  int64_t vocabulary = 0;
};
// Masks the ids of one text, and writes the original ids of chosen tokens to `targets`, else kNotMasked.
inline constexpr int32_t kNotMasked = -100;
void mask_tokens(const TokenMask& rule, RandomStream& random, std::span<int32_t> ids,
                 std::span<int32_t> targets);

}  // namespace tessera::tasks
