#include "models/language/seq2seq.h"

#include <cmath>

#include "core/error.h"
#include "nn/position.h"
#include "nn/relative_position.h"
#include "ops/attention.h"
#include "ops/gpu.h"

namespace tessera::models {
namespace {

constexpr double kUnseen = -1e9;
using KeysValues = DecoderCache::KeysValues;

// Returns the bias of the scores for padding keys, [batch, 1, 1, keys]; undefined without padding.
torch::Tensor padding_bias(const torch::Tensor& mask, const torch::Tensor& like) {
  if (!mask.defined()) return {};
  const torch::Tensor zeros =
      torch::zeros({mask.size(0), 1, 1, mask.size(1)}, like.options().requires_grad(false));
  return zeros.masked_fill(~mask.to(torch::kBool).view({mask.size(0), 1, 1, mask.size(1)}), kUnseen);
}

// Returns a table for tokens after `before` others. The device keeps that of whole texts.
torch::Tensor table_on(torch::Device device, const torch::Tensor& table, int64_t before) {
  return before == 0 ? ops::kept_on(device, table) : table.to(device);
}

torch::Tensor sum_of(const torch::Tensor& a, const torch::Tensor& b) {
  return !a.defined() ? b : b.defined() ? a + b : a;
}

torch::Tensor split_heads(const torch::Tensor& x, int64_t channels) {
  return x.unflatten(-1, {-1, channels}).transpose(1, 2).contiguous();
}

// Returns the number of earlier tokens in the cache.
int64_t read_before(const DecoderCache* cache, const torch::Tensor& target) {
  const int64_t before = cache ? cache->length : 0;
  check(before == 0 || target.size(1) == 1, "after the first call a decoder reads one token at a time, not ",
        target.size(1));
  return before;
}

// ----------------------------------------------------------------------------------- the Transformer of 2017

// As in torch.nn.MultiheadAttention: q, k and v in one matrix.
class JointAttentionImpl : public torch::nn::Module {
 public:
  JointAttentionImpl(int64_t dim, int64_t heads) : channels_(dim / heads) {
    weight_ = register_parameter("in_proj_weight", nn::zeros({3 * dim, dim}));
    bias_ = register_parameter("in_proj_bias", nn::zeros({3 * dim}));
    out_ = register_module("out_proj", nn::Linear(dim, dim));
  }
  KeysValues keys_and_values(const torch::Tensor& read) const { return {part(read, 1), part(read, 2)}; }
  torch::Tensor forward(const torch::Tensor& x, const KeysValues& read, const torch::Tensor& bias,
                        bool causal) {
    const torch::Tensor y = ops::attention(part(x, 0), read[0], read[1], {.bias = bias, .causal = causal});
    return out_->forward(y.transpose(1, 2).flatten(2));
  }

 private:
  torch::Tensor part(const torch::Tensor& from, size_t i) const {
    return split_heads(at::linear(from, weight_.chunk(3)[i], bias_.chunk(3)[i]), channels_);
  }
  int64_t channels_;
  torch::Tensor weight_, bias_;
  nn::Linear out_{nullptr};
};
TORCH_MODULE(JointAttention);

class ClassicLayerImpl : public torch::nn::Module {
 public:
  ClassicLayerImpl(const Seq2SeqConfig& config, bool decodes)
      : pre_norm_(config.pre_norm), activation_(config.feed_forward()) {
    const nn::LayerNormOptions norm{.eps = config.eps};
    self_ = register_module("self_attn", JointAttention(config.dim, config.heads));
    if (decodes) cross_ = register_module("multihead_attn", JointAttention(config.dim, config.heads));
    linear1_ = register_module("linear1", nn::Linear(config.dim, config.hidden));
    linear2_ = register_module("linear2", nn::Linear(config.hidden, config.dim));
    norm1_ = register_module("norm1", nn::LayerNorm(config.dim, norm));
    norm2_ = register_module("norm2", nn::LayerNorm(config.dim, norm));
    if (decodes) norm3_ = register_module("norm3", nn::LayerNorm(config.dim, norm));
  }

  // The inputs that all layers of a pass share.
  struct Pass {
    torch::Tensor bias, memory = {}, memory_bias = {};
    bool causal = false;
    DecoderCache* cache = nullptr;
  };
  torch::Tensor forward(torch::Tensor x, size_t index, const Pass& pass) {
    const auto branch = [&](nn::LayerNorm& norm, const auto& layer) {
      x = pre_norm_ ? x + layer(norm(x)) : norm(x + layer(x));
    };
    branch(norm1_, [&](const torch::Tensor& y) {
      const KeysValues own = self_->keys_and_values(y);
      return self_->forward(y, pass.cache ? pass.cache->extended(index, own) : own, pass.bias, pass.causal);
    });
    if (cross_)
      branch(norm2_, [&](const torch::Tensor& y) {
        const auto read = [&] { return cross_->keys_and_values(pass.memory); };
        return cross_->forward(y, pass.cache ? pass.cache->of_memory(index, read) : read(), pass.memory_bias,
                               false);
      });
    branch(cross_ ? norm3_ : norm2_, [&](const torch::Tensor& y) {
      return linear2_->forward(activate(linear1_->forward(y), activation_));
    });
    return x;
  }

 private:
  bool pre_norm_;
  Activation activation_;
  JointAttention self_{nullptr}, cross_{nullptr};
  nn::Linear linear1_{nullptr}, linear2_{nullptr};
  nn::LayerNorm norm1_{nullptr}, norm2_{nullptr}, norm3_{nullptr};
};
TORCH_MODULE(ClassicLayer);

class Classic final : public Seq2Seq {
 public:
  explicit Classic(const Seq2SeqConfig& config) : config_(config) {
    auto embedding = std::make_shared<torch::nn::Module>();
    embedding_ = embedding->register_parameter("weight", nn::zeros({config.vocabulary, config.dim}));
    register_at(*this, "embedding", embedding);
    for (const bool decodes : {false, true}) {
      const std::string side = decodes ? "transformer.decoder." : "transformer.encoder.";
      auto& layers = decodes ? decoder_ : encoder_;
      for (int64_t i = 0; i < (decodes ? config.decoder_depth : config.encoder_depth); ++i) {
        layers.emplace_back(config, decodes);
        register_at(*this, text(side, "layers.", i), layers.back().ptr());
      }
      auto& norm = decodes ? decoder_norm_ : encoder_norm_;
      norm = nn::LayerNorm(config.dim, nn::LayerNormOptions{.eps = config.eps});
      register_at(*this, side + "norm", norm.ptr());
    }
  }

  torch::Tensor encode(const torch::Tensor& source, const torch::Tensor& mask) override {
    torch::Tensor x = embed(source, 0);
    const ClassicLayerImpl::Pass pass{.bias = padding_bias(mask, x)};
    for (size_t i = 0; i < encoder_.size(); ++i) x = run(encoder_[i], i, x, pass);
    return encoder_norm_(x);
  }
  torch::Tensor decode(const torch::Tensor& target, const torch::Tensor& mask, const torch::Tensor& memory,
                       const torch::Tensor& source_mask, DecoderCache* cache) override {
    const int64_t before = read_before(cache, target);
    torch::Tensor x = embed(target, before);
    const ClassicLayerImpl::Pass pass{.bias = padding_bias(mask, x),
                                      .memory = memory,
                                      .memory_bias = padding_bias(source_mask, x),
                                      .causal = before == 0,
                                      .cache = cache};
    for (size_t i = 0; i < decoder_.size(); ++i) x = run(decoder_[i], i, x, pass);
    if (cache) cache->length += target.size(1);
    return at::linear(decoder_norm_(x), embedding_);
  }

  std::vector<std::vector<torch::Tensor>> units() const override {
    std::vector<std::vector<torch::Tensor>> all = nn::parameters_of_each(encoder_);
    for (auto& unit : nn::parameters_of_each(decoder_)) all.push_back(std::move(unit));
    return all;
  }

 private:
  torch::Tensor run(const ClassicLayer& layer, size_t index, const torch::Tensor& x,
                    const ClassicLayerImpl::Pass& pass) const {
    return nn::run_unit(
        x, {.body = [layer, index,
                     pass](const torch::Tensor& in) { return layer.ptr()->forward(in, index, pass); },
            .parameters = [&] { return layer->parameters(); },
            .recompute = checkpointing && is_training() && !pass.cache,
            .reads = pass.memory.defined() ? std::vector{pass.memory} : std::vector<torch::Tensor>{}});
  }
  // Embeds tokens that follow `before` others.
  torch::Tensor embed(const torch::Tensor& ids, int64_t before) const {
    const torch::Tensor x = torch::embedding(embedding_, ids) * std::sqrt(static_cast<double>(config_.dim));
    const torch::Tensor waves =
        nn::sinusoids(before + ids.size(1), config_.dim, nn::Waves::side_by_side).slice(0, before);
    return x + table_on(x.device(), waves, before).to(x.scalar_type());
  }
  Seq2SeqConfig config_;
  torch::Tensor embedding_;
  std::vector<ClassicLayer> encoder_, decoder_;
  nn::LayerNorm encoder_norm_{nullptr}, decoder_norm_{nullptr};
};

// -------------------------------------------------------------------------------------------------------- T5

class T5 final : public Seq2Seq {
 public:
  explicit T5(const Seq2SeqConfig& config) : config_(config) {
    if (config_.head_dim == 0) config_.head_dim = config.dim / config.heads;
    embedding_ = table_at("shared", config.vocabulary, config.dim);
    encoder_ = make_stack("encoder.", config.encoder_depth, false);
    decoder_ = make_stack("decoder.", config.decoder_depth, true);
    if (!config.tied) head_ = table_at("lm_head", config.vocabulary, config.dim);
  }

  torch::Tensor encode(const torch::Tensor& source, const torch::Tensor& mask) override {
    const torch::Tensor x = torch::embedding(embedding_, source);
    return run(encoder_, x, {.mask = mask});
  }
  torch::Tensor decode(const torch::Tensor& target, const torch::Tensor& mask, const torch::Tensor& memory,
                       const torch::Tensor& source_mask, DecoderCache* cache) override {
    const torch::Tensor x = torch::embedding(embedding_, target);
    const torch::Tensor hidden = run(decoder_, x,
                                     {.mask = mask,
                                      .memory = memory,
                                      .memory_mask = source_mask,
                                      .causal = true,
                                      .before = read_before(cache, target),
                                      .cache = cache});
    if (cache) cache->length += target.size(1);
    if (head_.defined()) return at::linear(hidden, head_);
    const double divisor = config_.unscaled ? 1 : std::sqrt(static_cast<double>(config_.dim));
    return at::linear(hidden / divisor, embedding_);
  }
  std::vector<std::vector<torch::Tensor>> units() const override {
    std::vector<std::vector<torch::Tensor>> all;
    for (const Stack* const stack : {&encoder_, &decoder_})
      for (size_t i = 0; i < stack->blocks.size(); ++i) all.push_back(parameters_of(*stack, i));
    return all;
  }

 private:
  struct Attention {
    nn::RmsNorm norm{nullptr};
    nn::Linear q{nullptr}, k{nullptr}, v{nullptr}, o{nullptr};
  };
  struct Block {
    Attention self, cross;
    nn::RmsNorm norm{nullptr};
    nn::Linear wi{nullptr}, wi_1{nullptr}, wo{nullptr};
  };
  struct Stack {
    std::string path;  // of a block, before its number
    std::vector<Block> blocks;
    torch::Tensor bias;  // [buckets, heads]
    nn::RmsNorm norm{nullptr};
  };

  torch::Tensor table_at(const std::string& path, int64_t rows, int64_t width) {
    auto holder = std::make_shared<torch::nn::Module>();
    torch::Tensor weight = holder->register_parameter("weight", nn::zeros({rows, width}));
    register_at(*this, path, holder);
    return weight;
  }
  nn::Linear linear_at(const std::string& path, int64_t in, int64_t out) {
    nn::Linear layer(in, out, false);
    register_at(*this, path, layer.ptr());
    return layer;
  }
  nn::RmsNorm norm_at(const std::string& path) {
    nn::RmsNorm norm(config_.dim, config_.eps);
    register_at(*this, path, norm.ptr());
    return norm;
  }

  Attention make_attention(const std::string& path, const char* name) {
    const int64_t width = config_.heads * config_.head_dim;
    const std::string inner = path + name + ".";
    return {norm_at(path + "layer_norm"), linear_at(inner + "q", config_.dim, width),
            linear_at(inner + "k", config_.dim, width), linear_at(inner + "v", config_.dim, width),
            linear_at(inner + "o", width, config_.dim)};
  }

  Stack make_stack(const std::string& side, int64_t depth, bool decodes) {
    Stack stack;
    stack.path = side + "block.";
    for (int64_t i = 0; i < depth; ++i) {
      const std::string path = text(side, "block.", i, ".layer.");
      Block block;
      block.self = make_attention(path + "0.", "SelfAttention");
      if (i == 0)
        stack.bias =
            table_at(path + "0.SelfAttention.relative_attention_bias", config_.buckets, config_.heads);
      if (decodes) block.cross = make_attention(path + "1.", "EncDecAttention");
      const std::string mlp = path + (decodes ? "2." : "1.");
      block.norm = norm_at(mlp + "layer_norm");
      block.wi = linear_at(mlp + (config_.gated ? "DenseReluDense.wi_0" : "DenseReluDense.wi"), config_.dim,
                           config_.hidden);
      if (config_.gated) block.wi_1 = linear_at(mlp + "DenseReluDense.wi_1", config_.dim, config_.hidden);
      block.wo = linear_at(mlp + "DenseReluDense.wo", config_.hidden, config_.dim);
      stack.blocks.push_back(std::move(block));
    }
    stack.norm = norm_at(side + "final_layer_norm");
    return stack;
  }

  // Returns the bias of `tokens` tokens after `before` others, [1, heads, tokens, before + tokens].
  torch::Tensor offsets_bias(const torch::Tensor& table, int64_t before, int64_t tokens, bool causal) const {
    const torch::Tensor key = torch::arange(before + tokens, torch::kInt64), query = key.slice(0, before);
    const torch::Tensor buckets = nn::relative_buckets(key.unsqueeze(0) - query.unsqueeze(1), !causal,
                                                       config_.buckets, config_.furthest);
    return torch::embedding(table, table_on(table.device(), buckets, before)).permute({2, 0, 1}).unsqueeze(0);
  }

  KeysValues keys_and_values(Attention& layer, const torch::Tensor& read) const {
    return {split_heads(layer.k->forward(read), config_.head_dim),
            split_heads(layer.v->forward(read), config_.head_dim)};
  }

  torch::Tensor attend(Attention& layer, const torch::Tensor& x, const torch::Tensor& normed,
                       const KeysValues& read, const torch::Tensor& bias, bool causal) {
    // T5's scores are not divided by sqrt(head_dim): instead, its initial weights are small.
    const double undo = std::sqrt(static_cast<double>(config_.head_dim));
    const torch::Tensor y = ops::attention(split_heads(layer.q->forward(normed) * undo, config_.head_dim),
                                           read[0], read[1], {.bias = bias, .causal = causal});
    return x + layer.o->forward(y.transpose(1, 2).flatten(2));
  }

  // The inputs of a stack's blocks in addition to x.
  struct Pass {
    torch::Tensor mask = {}, memory = {}, memory_mask = {};
    bool causal = false;
    int64_t before = 0;  // tokens that the cache has
    DecoderCache* cache = nullptr;
  };
  torch::Tensor run(Stack& stack, torch::Tensor x, const Pass& pass) {
    const bool decodes = pass.memory.defined(), causal = pass.causal && pass.before == 0;
    const torch::Tensor bias =
        sum_of(offsets_bias(stack.bias, pass.before, x.size(1), pass.causal), padding_bias(pass.mask, x));
    const torch::Tensor memory_bias = decodes ? padding_bias(pass.memory_mask, x) : torch::Tensor();
    std::vector<torch::Tensor> reads = {bias};
    if (decodes) reads.push_back(pass.memory);
    for (size_t i = 0; i < stack.blocks.size(); ++i) {
      const auto body = [this, &stack, i, pass, bias, memory_bias, causal](const torch::Tensor& in) {
        return run_block(stack.blocks[i], i, in, pass, bias, memory_bias, causal);
      };
      x = nn::run_unit(x, {.body = body,
                           .parameters = [&] { return parameters_of(stack, i); },
                           .recompute = checkpointing && is_training() && !pass.cache,
                           .reads = reads});
    }
    return stack.norm->forward(x);
  }
  // The first block holds the table of offsets, which all blocks read.
  std::vector<torch::Tensor> parameters_of(const Stack& stack, size_t index) const {
    std::vector<torch::Tensor> parameters = parameters_at(*this, text(stack.path, index));
    std::erase_if(parameters, [&](const torch::Tensor& one) { return one.is_same(stack.bias); });
    return parameters;
  }
  torch::Tensor run_block(Block& block, size_t index, torch::Tensor x, const Pass& pass,
                          const torch::Tensor& bias, const torch::Tensor& memory_bias, bool causal) {
    const torch::Tensor self_normed = block.self.norm->forward(x);
    const KeysValues own = keys_and_values(block.self, self_normed);
    x = attend(block.self, x, self_normed, pass.cache ? pass.cache->extended(index, own) : own, bias, causal);
    if (pass.memory.defined()) {
      const auto read = [&] { return keys_and_values(block.cross, pass.memory); };
      x = attend(block.cross, x, block.cross.norm->forward(x),
                 pass.cache ? pass.cache->of_memory(index, read) : read(), memory_bias, false);
    }
    const torch::Tensor normed = block.norm->forward(x);
    const torch::Tensor inner = activate(block.wi->forward(normed), config_.feed_forward());
    return x + block.wo->forward(config_.gated ? inner * block.wi_1->forward(normed) : inner);
  }

  Seq2SeqConfig config_;
  torch::Tensor embedding_, head_;
  Stack encoder_, decoder_;
};

}  // namespace

Seq2SeqConfig t5_config_of(const Value& hub, const std::string& where) {
  const auto integer = [&](const char* key, int64_t otherwise) {
    const Value* found = hub.find(key);
    if (found && !found->is_int())
      fail_usage(where, ": ", key, " is ", found->type_name(), ", must be an integer");
    return found ? found->as_int() : otherwise;
  };
  Seq2SeqConfig config{.kind = Seq2SeqKind::t5};
  config.vocabulary = integer("vocab_size", 32128);
  config.dim = integer("d_model", 512);
  config.heads = integer("num_heads", 8);
  config.head_dim = integer("d_kv", 64);
  config.hidden = integer("d_ff", 2048);
  config.encoder_depth = integer("num_layers", 6);
  config.decoder_depth = integer("num_decoder_layers", config.encoder_depth);
  config.buckets = integer("relative_attention_num_buckets", 32);
  config.furthest = integer("relative_attention_max_distance", 128);
  const Value *feed = hub.find("feed_forward_proj"), *tied = hub.find("tie_word_embeddings"),
              *eps = hub.find("layer_norm_epsilon");
  const std::string kind = feed && feed->is_string() ? feed->as_string() : "relu";
  config.gated = kind.starts_with("gated-");
  // "gated-gelu" always has the tanh form, unlike "gelu".
  const std::string activation = kind == "gated-gelu" ? "gelu_new" : config.gated ? kind.substr(6) : kind;
  config.activation = published_activation(activation, where + ": feed_forward_proj");
  config.tied = !tied || !tied->is_bool() || tied->as_bool();
  const Value* scaled = hub.find("scale_decoder_outputs");  // as written by newer releases of transformers
  config.unscaled = scaled && scaled->is_bool() && !scaled->as_bool();
  config.eps = eps && eps->is_number() ? eps->as_double() : 1e-6;
  return read_config<Seq2SeqConfig>(write_config(config), where);
}

std::shared_ptr<Seq2Seq> make_seq2seq(const Seq2SeqConfig& config) {
  if (config.head_dim == 0) check_width(config.dim, config.heads);
  if (config.kind == Seq2SeqKind::t5) return std::make_shared<T5>(config);
  return std::make_shared<Classic>(config);
}

DecoderCache::KeysValues DecoderCache::extended(size_t block, const KeysValues& fresh) {
  if (target.size() <= block) target.resize(block + 1);
  KeysValues& kept = target[block];
  for (size_t i = 0; i < kept.size(); ++i)
    kept[i] = kept[i].defined() ? torch::cat({kept[i], fresh[i]}, 2) : fresh[i];
  return kept;
}

DecoderCache::KeysValues DecoderCache::of_memory(size_t block, const std::function<KeysValues()>& read) {
  if (memory.size() <= block) memory.resize(block + 1);
  if (!memory[block][0].defined()) memory[block] = read();
  return memory[block];
}

void DecoderCache::select(const torch::Tensor& rows) {
  for (KeysValues& kept : target)
    for (torch::Tensor& part : kept) part = part.index_select(0, rows);
}

NextTokenModel next_token_model(Seq2Seq& model, const torch::Tensor& source, const torch::Tensor& source_mask,
                                int64_t beams, bool cached) {
  struct State {
    torch::Tensor memory, mask, target;
    DecoderCache cache;
  };
  const auto state = std::make_shared<State>();
  const torch::NoGradGuard no_grad;
  state->memory = model.encode(source, source_mask).repeat_interleave(beams, 0);
  if (source_mask.defined()) state->mask = source_mask.repeat_interleave(beams, 0);
  return {.next =
              [&model, state, cached](const torch::Tensor& fresh) {
                state->target =
                    state->target.defined() && !cached ? torch::cat({state->target, fresh}, 1) : fresh;
                return model
                    .decode(state->target, {}, state->memory, state->mask, cached ? &state->cache : nullptr)
                    .select(1, -1);
              },
          // Rows of the same prompt share one memory.
          .reorder =
              [state](const torch::Tensor& rows) {
                state->target = state->target.index_select(0, rows);
                state->cache.select(rows);
              }};
}

}  // namespace tessera::models
