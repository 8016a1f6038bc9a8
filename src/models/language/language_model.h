// Decoders that continue a text, one token after the other, of the published kinds that differ in norms, positions and
// names only: GPT-2 (Radford et al. 2019), LLaMA (Touvron et al. 2023) with its grouped heads and LLaMA 3's rotary
// scaling, Qwen2, Mistral, BLOOM and MPT.
//
//   x_0 = E[ids] (+ learned positions)
//   x  <- x + attention(norm(x))          causal; rotary positions, ALiBi, or none inside
//   x  <- x + mlp(norm(x))
//   logits = norm(x_depth) W_head^T       W_head = E where the embedding is tied
//
// Parameters have the names and layouts of the published files.
#pragma once

#include "ops/torch.h"

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/config.h"
#include "models/base/activation.h"
#include "models/base/family.h"
#include "models/language/projection.h"
#include "nn/linear.h"
#include "nn/rope_scaling.h"

namespace tessera::models {

enum class LanguageKind { gpt2, llama, qwen2, mistral, bloom, mpt };

}  // namespace tessera::models

template <>
struct tessera::EnumNames<tessera::models::LanguageKind> {
  static constexpr std::array names = {"gpt2", "llama", "qwen2", "mistral", "bloom", "mpt"};
};

namespace tessera::models {

struct LanguageConfig {
  LanguageKind kind = LanguageKind::llama;
  int64_t vocabulary = 32000, dim = 512, depth = 8, heads = 8;
  int64_t kv_heads = 0, head_dim = 0, hidden = 0;  // 0: heads; dim / heads; what the kind has
  int64_t context = 2048;                          // positions that it was trained with
  double eps = 1e-5, theta = 10000;
  nn::RopeScalingKind rope_scaling = nn::RopeScalingKind::none;
  double rope_factor = 1, rope_trained = 0, rope_low = 1, rope_high = 4, rope_fast = 32, rope_slow = 1;
  double rope_magnitude = 0;
  bool rope_whole_pairs = true;
  std::vector<double> rope_short = {}, rope_long = {};
  int64_t window = 0;
  Activation activation = Activation::published;
  bool tied = false, untied = false;
  double attention_scale = 0, clip_qkv = 0;
  bool scale_by_layer = false, norm_residual = false;
  int64_t window_from = 0;
  bool attention_bias = false, mlp_bias = false;  // besides those that the kind has

  template <class V>
  void visit(V& v) {
    v("kind", kind, choice<LanguageKind>(), "published kind of decoder");
    v("vocabulary", vocabulary, between(1, 1 << 22), "tokens");
    v("dim", dim, kWidth, "width of a token");
    v("depth", depth, kDepth, "blocks");
    v("heads", heads, kHeads, "attention heads");
    v("kv_heads", kv_heads, between(0, 4096),
      "heads of keys and values that they share in groups, 0 = heads");
    v("head_dim", head_dim, between(0, 4096), "channels of a head, 0 = dim / heads");
    v("hidden", hidden, kHidden, "hidden width of the feed-forward network, 0 = what the kind has");
    v("context", context, between(1, 1 << 24), "tokens that it can read at once");
    v("eps", eps, above(0), "of the norms");
    v("theta", theta, above(0), "base of rotary positions");
    v("rope_scaling", rope_scaling, choice<nn::RopeScalingKind>(), "how rotary positions reach further");
    v("rope_factor", rope_factor, at_least(1), "how much further");
    v("rope_trained", rope_trained, at_least(0), "positions before that");
    v("rope_low", rope_low, above(0), "llama3: low frequency factor");
    v("rope_high", rope_high, above(0), "llama3: high frequency factor");
    v("rope_fast", rope_fast, above(0), "yarn: pairs that rotate more often in rope_trained positions stay");
    v("rope_slow", rope_slow, above(0), "yarn: pairs that rotate more seldom are stretched by rope_factor");
    v("rope_whole_pairs", rope_whole_pairs, "yarn: the ramp between those begins and ends at a pair");
    v("rope_magnitude", rope_magnitude, at_least(0),
      "yarn, longrope: factor of the rotation, 0 = what rope_factor makes it");
    v("rope_short", rope_short, "longrope: a divisor for each pair, up to rope_trained positions");
    v("rope_long", rope_long, "longrope: the same beyond");
    v("window", window, at_least(0), "nearest tokens that a token sees, 0 = all before it");
    v("activation", activation, choice<Activation>(),
      "of the feed-forward network, published = what the kind has");
    v("tied", tied, "the output layer is the embedding");
    v("untied", untied, "it is a layer of its own, where the kind ties it");
    v("attention_scale", attention_scale, at_least(0), "of the scores of attention, 0 = 1 / sqrt(head_dim)");
    v("scale_by_layer", scale_by_layer, "scores are divided by the number of the block too (GPT-2)");
    v("clip_qkv", clip_qkv, at_least(0), "q, k and v stay within +- this, 0 = anywhere (MPT)");
    v("norm_residual", norm_residual, "what is added to a branch is its norm's output (BLOOM)");
    v("window_from", window_from, at_least(0), "first block that has the window (Qwen2)");
    v("attention_bias", attention_bias, "biases of the layers around attention, besides those of the kind");
    v("mlp_bias", mlp_bias, "biases of the feed-forward network, besides those of the kind");
  }
  nn::RopeScaling scaling() const;
  // With all zeros replaced; usage errors where settings contradict each other.
  LanguageConfig complete() const;
};

// The settings that a config.json of the transformers library stands for ("model_type": "llama", …). A usage error
// for a kind that there is not, and for a setting that is not understood.
LanguageConfig language_config_of(const Value& hub, const std::string& where);

// Keys and values of the tokens that were read, with room for more, so that a further token copies nothing.
struct KeyValueCache {
  std::vector<torch::Tensor> keys, values;  // of each block, [batch, kv_heads, room, head_dim], rotated
  int64_t length = 0;                       // tokens that all blocks have
  // The keys and values of a block, [batch, kv_heads, length + tokens, head_dim], for the shape and dtype of the new
  // ones; the last `tokens` places are to be written.
  std::array<torch::Tensor, 2> extended(int64_t block, const torch::Tensor& like);
  // Rows of the batch in another order, or repeated.
  void select(const torch::Tensor& rows);
};

struct TextInput {
  torch::Tensor ids = {};          // int64 [batch, tokens], or
  torch::Tensor embedded = {};     // [batch, tokens, dim]
  torch::Tensor mask = {};         // bool [batch, cached + tokens]: which are no padding; undefined = all
  KeyValueCache* cache = nullptr;  // what stands before these tokens; they are added to it
  // Called with each block's number and its input; what it gives is the input then (Flamingo's gated layers).
  std::function<torch::Tensor(int64_t block, const torch::Tensor& x)> before_block = {};
  // Called with each block's number and its output.
  std::function<void(int64_t block, const torch::Tensor& x)> after_block = {};
};

class LanguageModel : public torch::nn::Module {
 public:
  explicit LanguageModel(const LanguageConfig& config);
  const LanguageConfig& config() const { return config_; }

  torch::Tensor embed(
      const torch::Tensor& ids) const;  // [batch, tokens] -> [batch, tokens, dim], without positions
  // Behind the last norm, [batch, tokens, dim]. Padded tokens give numbers without meaning. Fails where there are more
  // tokens than learned positions.
  torch::Tensor hidden(const TextInput& input);
  torch::Tensor logits(const torch::Tensor& hidden) const;  // [..., vocabulary]
  torch::Tensor forward(const TextInput& input) { return logits(hidden(input)); }

  void initialise(uint64_t seed);
  // For another number of tokens: the first rows of the embedding, and of an output layer of its own, stay; new ones are 0.
  void resize_vocabulary(int64_t tokens);
  int64_t macs(int64_t tokens) const;  // of one text

  std::string embedding_name() const;  // of the parameter with a row for each token
  // A published name as this model has it; "" for tensors that it does not need (masks, tied heads, rotary tables).
  std::string rename(const std::string& published) const;

 private:
  struct Block {
    Norm attention_norm, mlp_norm;
    Projection packed{nullptr}, q{nullptr}, k{nullptr}, v{nullptr}, out{nullptr};
    Projection gate{nullptr}, up{nullptr}, down{nullptr};
    std::shared_ptr<ops::LinearCache> gated = std::make_shared<ops::LinearCache>();  // gate and up in one
  };
  struct Shared;  // of all blocks in one pass: mask, positions
  Block make_block(int64_t index);
  std::array<torch::Tensor, 3> project(const Block& block, int64_t index, const torch::Tensor& x) const;
  torch::Tensor attend(const Block& block, int64_t index, const torch::Tensor& x, const Shared& shared,
                       KeyValueCache* cache) const;
  torch::Tensor feed_forward(const Block& block, const torch::Tensor& x) const;
  torch::Tensor gated(const Block& block, const nn::DeferredNorm& x) const;
  Shared shared_of(const TextInput& input, const torch::Tensor& x) const;

  LanguageConfig config_;
  torch::Tensor embedding_, positions_, head_;
  Norm embedding_norm_, last_norm_;
  std::vector<Block> blocks_;
  std::shared_ptr<ops::LinearCache> head_cache_ = std::make_shared<ops::LinearCache>();
};

// Adds a module at a dotted path below `root`, with plain modules on the way.
void register_at(torch::nn::Module& root, const std::string& path, std::shared_ptr<torch::nn::Module> module);

}  // namespace tessera::models
