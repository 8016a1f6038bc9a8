// Decoders that continue a text token by token. The published kinds differ only in norms, positions and
// names: GPT-2 (Radford et al. 2019), LLaMA (Touvron et al. 2023) with its grouped heads and LLaMA 3's rotary
// scaling, Qwen2, Mistral, BLOOM and MPT.
//
//   x_0 = E[ids] (+ learned positions)
//   x  <- x + attention(norm(x))          causal; rotary positions, ALiBi, or none inside
//   x  <- x + mlp(norm(x))
//   logits = norm(x_depth) W_head^T       W_head = E with tied weights
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
#include "models/base/family.h"
#include "models/base/generation.h"
#include "models/language/key_value_cache.h"
#include "models/language/projection.h"
#include "nn/layer_division.h"
#include "nn/linear.h"
#include "nn/rope.h"
#include "nn/rope_scaling.h"
#include "nn/units.h"

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
  int64_t kv_heads = 0, head_dim = 0, hidden = 0;  // if 0: heads; dim / heads; the kind's default
  int64_t context = 2048;                          // context length in training
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
  bool attention_bias = false, mlp_bias = false;  // biases in addition to those of the kind

  template <class V>
  void visit(V& v) {
    v("kind", kind, choice<LanguageKind>(), "published kind of decoder");
    v("vocabulary", vocabulary, between(1, 1 << 22), "tokens");
    v("dim", dim, kWidth, "width of a token");
    v("depth", depth, kDepth, "blocks");
    v("heads", heads, kHeads, "attention heads");
    v("kv_heads", kv_heads, between(0, 4096),
      "heads of keys and values, shared by groups of heads; 0 = heads");
    v("head_dim", head_dim, between(0, 4096), "channels of a head, 0 = dim / heads");
    v("hidden", hidden, kHidden, "hidden width of the feed-forward network, 0 = the kind's own");
    v("context", context, between(1, 1 << 24), "context length in tokens");
    v("eps", eps, above(0), "eps of the norms");
    v("theta", theta, above(0), "base of rotary positions");
    v("rope_scaling", rope_scaling, choice<nn::RopeScalingKind>(),
      "extension of rotary positions to longer contexts");
    v("rope_factor", rope_factor, at_least(1), "factor of the extension");
    v("rope_trained", rope_trained, at_least(0), "context length before the extension");
    v("rope_low", rope_low, above(0), "llama3: low frequency factor");
    v("rope_high", rope_high, above(0), "llama3: high frequency factor");
    v("rope_fast", rope_fast, above(0), "yarn: pairs that rotate more often in rope_trained positions stay");
    v("rope_slow", rope_slow, above(0), "yarn: pairs that rotate more seldom are stretched by rope_factor");
    v("rope_whole_pairs", rope_whole_pairs, "yarn: the ramp between those begins and ends at a pair");
    v("rope_magnitude", rope_magnitude, at_least(0),
      "yarn, longrope: factor of the rotation, 0 = from rope_factor");
    v("rope_short", rope_short, "longrope: a divisor for each pair, up to rope_trained positions");
    v("rope_long", rope_long, "longrope: the same beyond");
    v("window", window, at_least(0), "nearest tokens that a token sees, 0 = all earlier tokens");
    v("activation", activation, choice<Activation>(),
      "activation of the feed-forward network, published = the kind's own");
    v("tied", tied, "the output layer is the embedding");
    v("untied", untied, "a separate output layer although the kind has tied weights");
    v("attention_scale", attention_scale, at_least(0),
      "factor of the attention scores, 0 = 1 / sqrt(head_dim)");
    v("scale_by_layer", scale_by_layer, "scores are divided by the number of the block too (GPT-2)");
    v("clip_qkv", clip_qkv, at_least(0), "q, k and v stay within +- this, 0 = anywhere (MPT)");
    v("norm_residual", norm_residual, "a branch is added to its norm's output (BLOOM)");
    v("window_from", window_from, at_least(0), "first block that has the window (Qwen2)");
    v("attention_bias", attention_bias,
      "biases of the layers around attention, in addition to the kind's own");
    v("mlp_bias", mlp_bias, "biases of the feed-forward network, in addition to the kind's own");
  }
  nn::RopeScaling scaling() const;
  // Returns the config with all zeros replaced. Throws usage errors if settings contradict each other.
  LanguageConfig complete() const;
};

// Converts a config.json of the transformers library ("model_type": "llama", …) to settings. Throws a usage
// error for an unknown kind or an unsupported setting.
LanguageConfig language_config_of(const Value& hub, const std::string& where);

struct TextInput {
  torch::Tensor ids = {};          // int64 [batch, tokens], or
  torch::Tensor embedded = {};     // [batch, tokens, dim]
  torch::Tensor mask = {};         // bool [batch, cached + tokens]: false for padding; undefined = all
  KeyValueCache* cache = nullptr;  // cache of earlier tokens, to which these are added
  // For one token after a cache with room for it: reads what changes from token to token there, instead of the mask and the cache's
  // length, which stays.
  const StepPlace* place = nullptr;
  // Called with each block's number and input; returns the block's new input (Flamingo's gated layers).
  std::function<torch::Tensor(int64_t block, const torch::Tensor& x)> before_block = {};
  // Called with each block's number and its output.
  std::function<void(int64_t block, const torch::Tensor& x)> after_block = {};
};

class LanguageModel : public torch::nn::Module, public nn::Stack, public nn::DividedLayer {
 public:
  explicit LanguageModel(const LanguageConfig& config);
  const LanguageConfig& config() const { return config_; }

  torch::Tensor embed(
      const torch::Tensor& ids) const;  // [batch, tokens] -> [batch, tokens, dim], without positions
  // Returns the tokens after the last norm, [batch, tokens, dim]. Padding tokens have undefined values. Fails
  // if there are more tokens than learned positions.
  torch::Tensor hidden(const TextInput& input);
  torch::Tensor logits(const torch::Tensor& hidden) const;  // [..., vocabulary]
  // Returns the same for this process's share of the words in a division (nn/layer_division.h).
  torch::Tensor logits_share(const torch::Tensor& hidden) const;
  torch::Tensor forward(const TextInput& input) { return logits(hidden(input)); }

  // False if a token's rotation depends on the length of the text: no step_place() then.
  bool steps_are_alike() const;
  // Returns the place of steps of one token after these, until the cache gets other memory. The mask bool [batch, tokens] is
  // false for padding among the first tokens; undefined: none.
  StepPlace step_place(const KeyValueCache& cache, const torch::Tensor& mask) const;
  // Fails if the model has learned positions, and fewer.
  void check_length(int64_t tokens) const;

  void initialise(uint64_t seed);
  // Changes the number of tokens. The first rows of the embedding, and of a separate output layer, stay; new
  // ones are 0.
  void resize_vocabulary(int64_t tokens);
  int64_t macs(int64_t tokens) const;  // for one text
  std::vector<std::vector<torch::Tensor>> units() const override;
  int64_t most_shares() const override { return config_.kv_heads; }

  std::string embedding_name() const;  // the parameter with one row per token

 private:
  struct Block {
    Norm attention_norm, mlp_norm;
    Projection packed{nullptr}, q{nullptr}, k{nullptr}, v{nullptr}, out{nullptr};
    Projection gate{nullptr}, up{nullptr}, down{nullptr};
    std::shared_ptr<ops::LinearCache> gated = std::make_shared<ops::LinearCache>();  // gate and up fused
  };
  struct Shared;  // shared by all blocks in one pass: mask and positions
  Block make_block(int64_t index);
  std::vector<torch::Tensor> unit(int64_t index) const;
  // Returns q, k and v of this process's heads, of all without a division: [batch, heads or kv_heads, tokens, head_dim].
  std::array<torch::Tensor, 3> project(const Block& block, int64_t index, const torch::Tensor& x,
                                       const nn::LayerDivision* division) const;
  // Returns the division of this thread if it divides the layers of the block; else null.
  const nn::LayerDivision* division_of_attention(const Block& block) const;
  const nn::LayerDivision* division_of_mlp(const Block& block) const;
  torch::Tensor attend(const Block& block, int64_t index, const torch::Tensor& x, const Shared& shared,
                       KeyValueCache* cache) const;
  // Returns the residual plus the projected values of the heads.
  torch::Tensor output(const Block& block, const torch::Tensor& read, const torch::Tensor& residual,
                       const nn::LayerDivision* division) const;
  torch::Tensor feed_forward(const Block& block, const torch::Tensor& x) const;
  torch::Tensor gated(const Block& block, const nn::DeferredNorm& x) const;
  Shared shared_of(const TextInput& input, const torch::Tensor& x) const;
  nn::RotationTables rotation_of(const torch::Tensor& places, int64_t keys, const torch::Tensor& x,
                                 bool kept) const;
  static Shared shared_of_step(const StepPlace& place);

  LanguageConfig config_;
  torch::Tensor embedding_, positions_, head_;
  Norm embedding_norm_, last_norm_;
  std::vector<Block> blocks_;
  std::shared_ptr<ops::LinearCache> head_cache_ = std::make_shared<ops::LinearCache>();
};

// Registers a module at a dotted path below `root`, creating plain modules on the way.
void register_at(torch::nn::Module& root, const std::string& path, std::shared_ptr<torch::nn::Module> module);
// Returns the parameters of the module at a path.
std::vector<torch::Tensor> parameters_at(const torch::nn::Module& root, const std::string& path);

struct LanguageForm {
  enum class Packing { separate, thirds, by_head };  // layout of q, k and v
  enum class Positions { learned, rotary, alibi };

  NormKind norm;
  bool norm_bias;
  Positions positions;
  Packing packing;
  bool attention_bias, output_bias, mlp_bias, stored_in_out;
  Activation activation;
  bool tied;
  // Paths of blocks are relative to `block` + number.
  const char *embedding, *positions_name, *embedding_norm, *block, *attention_norm, *qkv, *q, *k, *v, *out,
      *mlp_norm, *gate, *up, *down, *last_norm;
};

const LanguageForm& language_form(LanguageKind kind);

struct LanguagePrompt {
  torch::Tensor mask = {};      // bool [rows, tokens]: false for padding on the left; undefined = none
  torch::Tensor embedded = {};  // [rows, tokens, dim] instead of the prompt's ids (images among them)
  // Called before each block, as in TextInput.
  std::function<torch::Tensor(int64_t block, const torch::Tensor& x)> before_block = {};
  bool cached = true;  // false: all tokens are processed again for each new token
};

// Returns the number of padding tokens before each row of a mask, as in GenerationOptions::padding.
torch::Tensor padding_of(const torch::Tensor& mask);

// `model` must outlive the result; each row of the prompt is searched with `beams` beams.
NextTokenModel next_token_model(LanguageModel& model, LanguagePrompt prompt, int64_t beams);

}  // namespace tessera::models
