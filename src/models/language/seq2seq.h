// Encoder-decoders for text: the Transformer of Vaswani et al. 2017 ("Attention is all you need"), and T5
// (Raffel et al. 2020, "Exploring the limits of transfer learning with a unified text-to-text Transformer").
//
//   memory = encoder(E[source])        all tokens see each other
//   hidden = decoder(E[target])        a token sees earlier tokens, and the memory
//
// The Transformer of 2017 has sinusoidal positions, embeddings times sqrt(dim), LayerNorm after each branch
// (`pre_norm`: before it), biases and ReLU. T5 has no positions; its first block has a bias of each head for
// buckets of offsets, which all blocks share. T5 has RMSNorm before each branch, no biases, scores that are
// not divided by sqrt(head_dim), and ReLU or (1.1) gated GELU. Parameters have the names of
// torch.nn.Transformer (below "transformer.", with "embedding"), and of the published T5 files.
#pragma once

#include "ops/torch.h"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "models/base/generation.h"
#include "models/language/language_model.h"

namespace tessera::models {

enum class Seq2SeqKind { transformer, t5 };

}  // namespace tessera::models

template <>
struct tessera::EnumNames<tessera::models::Seq2SeqKind> {
  static constexpr std::array names = {"transformer", "t5"};
};

namespace tessera::models {

struct Seq2SeqConfig {
  Seq2SeqKind kind = Seq2SeqKind::transformer;
  int64_t vocabulary = 32128, dim = 512, heads = 8, head_dim = 0, hidden = 2048;
  int64_t encoder_depth = 6, decoder_depth = 6;
  bool pre_norm = false;                 // transformer
  int64_t buckets = 32, furthest = 128;  // t5: for offsets
  bool gated = false, tied = true;       // t5: version 1.1 is gated by gelu_tanh, with untied embeddings
  bool unscaled = false;                 // t5
  Activation activation = Activation::published;
  double eps = 1e-5;

  template <class V>
  void visit(V& v) {
    v("kind", kind, choice<Seq2SeqKind>(), "the Transformer of 2017, or T5");
    v("vocabulary", vocabulary, between(1, 1 << 22), "tokens");
    v("dim", dim, kWidth, "width of a token");
    v("heads", heads, kHeads, "attention heads");
    v("head_dim", head_dim, between(0, 4096), "channels of a head, 0 = dim / heads");
    v("hidden", hidden, between(1, 1 << 22), "hidden width of the feed-forward networks");
    v("encoder_depth", encoder_depth, kDepth, "blocks of the encoder");
    v("decoder_depth", decoder_depth, kDepth, "blocks of the decoder");
    v("pre_norm", pre_norm, "transformer: norms before the branches");
    v("buckets", buckets, between(4, 4096), "t5: buckets of offsets");
    v("furthest", furthest, between(2, 1 << 20), "t5: offset beyond which all share a bucket");
    v("gated", gated, "t5: gated GELU instead of ReLU");
    v("activation", activation, choice<Activation>(),
      "activation of the feed-forward networks, published = gelu_tanh if gated, else relu");
    v("tied", tied, "t5: the output layer is the embedding");
    v("unscaled", unscaled, "t5: the result of a tied output layer is not divided by sqrt(dim)");
    v("eps", eps, above(0), "eps of the norms");
  }
  Activation feed_forward() const {
    if (activation != Activation::published) return activation;
    return gated ? Activation::gelu_tanh : Activation::relu;
  }
};

// Reads a config.json with model_type "t5" or "mt5".
Seq2SeqConfig t5_config_of(const Value& hub, const std::string& where);
// A decoder's cache, so that target tokens and the memory are processed only once.
struct DecoderCache {
  using KeysValues = std::array<torch::Tensor, 2>;  // each [batch, heads, tokens, head_dim]
  std::vector<KeysValues> target, memory;           // per block
  int64_t length = 0;                               // number of target tokens that all blocks have cached

  // Appends `fresh` to the keys and values of earlier target tokens, and returns all of them.
  KeysValues extended(size_t block, const KeysValues& fresh);
  // For the memory: calls `read` the first time and then returns the same result.
  KeysValues of_memory(size_t block, const std::function<KeysValues()>& read);
  // Makes row i continue from the target state of row rows[i], with its own memory.
  void select(const torch::Tensor& rows);
};

class Seq2Seq : public torch::nn::Module, public nn::Stack {
 public:
  // Encodes the source, [batch, tokens, dim] after the encoder's last norm. Masks, here and below, are bool
  // [batch, tokens], false for padding; undefined = all true. Ids are int64 [batch, tokens].
  virtual torch::Tensor encode(const torch::Tensor& source, const torch::Tensor& source_mask) = 0;
  // Returns the logits [batch, tokens, vocabulary] of the token after each token of the target. With a cache,
  // these tokens follow the cached ones, without padding; after the first call, one token at a time.
  virtual torch::Tensor decode(const torch::Tensor& target, const torch::Tensor& target_mask,
                               const torch::Tensor& memory, const torch::Tensor& source_mask,
                               DecoderCache* cache = nullptr) = 0;
};
std::shared_ptr<Seq2Seq> make_seq2seq(const Seq2SeqConfig& config);

// For generate(). `model` must outlive the result. Without `cached`, each step reads the whole target.
NextTokenModel next_token_model(Seq2Seq& model, const torch::Tensor& source, const torch::Tensor& source_mask,
                                int64_t beams, bool cached = true);

}  // namespace tessera::models
