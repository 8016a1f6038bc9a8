// BERT (Devlin et al. 2019, "BERT: Pre-training of deep bidirectional transformers for language understanding").
//
//   x  = LayerNorm(E[ids] + S[segments] + P[places])
//   y  = LayerNorm(x + attention(x))                       each token sees all tokens of the text
//   x' = LayerNorm(y + W2 gelu(W1 y))
//   masked tokens:  softmax(E LayerNorm(gelu(W x)) + b)    E is the embedding above
//   classes:        W_c tanh(W_p x[0])                     x[0] is the token [CLS]
//
// Parameters have the names of the files of transformers ("bert.", "cls.predictions.", "classifier.").
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"
#include "models/base/family.h"
#include "nn/linear.h"
#include "nn/units.h"

namespace tessera::models {

struct BertConfig {
  int64_t vocabulary = 30522, dim = 768, depth = 12, heads = 12, hidden = 0, context = 512, segments = 2;
  Activation activation = Activation::gelu;
  double eps = 1e-12;

  template <class V>
  void visit(V& v) {
    v("vocabulary", vocabulary, between(1, 1 << 22), "tokens");
    v("dim", dim, kWidth, "width of a token");
    v("depth", depth, kDepth, "blocks");
    v("heads", heads, kHeads, "attention heads");
    v("hidden", hidden, kHidden, "hidden width of the feed-forward network, 0 = 4 dim");
    v("context", context, between(1, 1 << 20), "context length in tokens");
    v("segments", segments, between(1, 1024), "kinds of segments: a text, and a second one after it");
    v("activation", activation, choice<Activation>(), "activation of the feed-forward network");
    v("eps", eps, above(0), "eps of the norms");
  }
  // Throws usage errors if settings contradict each other.
  void check() const;
  int64_t hidden_width() const { return hidden > 0 ? hidden : 4 * dim; }
};

// Reads a config.json of transformers with model_type "bert". Throws a usage error for an unsupported setting.
BertConfig bert_config_of(const Value& hub, const std::string& where);

// Outputs in addition to the tokens.
struct BertHeads {
  bool tokens = false;  // scores of the vocabulary at each place
  int64_t classes = 0;  // scores of a whole text, 0 = none
  bool pooled = false;  // the pooler alone, which classes need anyway
};

struct BertInput {
  torch::Tensor ids;            // int64 [batch, tokens]
  torch::Tensor mask = {};      // bool [batch, tokens], false for padding; undefined = all true
  torch::Tensor segments = {};  // int64 [batch, tokens]; undefined = all 0
};

class Bert final : public torch::nn::Module, public nn::Stack {
 public:
  explicit Bert(const BertConfig& config, const BertHeads& heads = {});
  const BertConfig& config() const { return config_; }

  // Returns the tokens of the last block, [batch, tokens, dim]. Fails if there are more tokens than positions.
  torch::Tensor hidden(const BertInput& input) const;
  // Reads those: the scores of each place [batch, tokens, vocabulary], or of any rows [..., dim].
  torch::Tensor token_scores(const torch::Tensor& hidden) const;
  torch::Tensor pooled(const torch::Tensor& hidden) const;        // [batch, dim]
  torch::Tensor class_scores(const torch::Tensor& hidden) const;  // [batch, classes]

  // Fills matrices with normal numbers of deviation 0.02, as in the published code; biases stay 0.
  void initialise(uint64_t seed);
  int64_t macs(int64_t tokens) const;  // for one text, with the heads
  std::vector<std::vector<torch::Tensor>> units() const override;

 private:
  struct Block {
    nn::Linear query{nullptr}, key{nullptr}, value{nullptr}, out{nullptr}, up{nullptr}, down{nullptr};
    nn::LayerNorm attention_norm{nullptr}, output_norm{nullptr};
  };
  Block make_block(int64_t index);
  std::vector<torch::Tensor> unit(size_t index) const;
  torch::Tensor run_block(const Block& block, const torch::Tensor& x, const torch::Tensor& bias) const;

  BertConfig config_;
  torch::Tensor words_, positions_, segments_, token_bias_;
  nn::LayerNorm embedding_norm_{nullptr}, transform_norm_{nullptr};
  std::vector<Block> blocks_;
  nn::Linear transform_{nullptr}, pooler_{nullptr}, classifier_{nullptr};
};

// Returns the cross entropy of class scores [batch, classes] with labels int64 [batch], summed over the batch; for one
// class, the squared error with labels of any type.
torch::Tensor bert_class_loss(const torch::Tensor& scores, const torch::Tensor& labels);

}  // namespace tessera::models
