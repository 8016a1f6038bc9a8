// Settings of decoders from the config.json in published folders.
#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "models/language/language_model.h"

namespace tessera::models {
namespace {

class HubReader {
 public:
  HubReader(const Value& tree, const std::string& where) : tree_(tree), where_(where) {}

  int64_t integer(const char* key, int64_t otherwise) const {
    const Value* found = tree_.find(key);
    if (!found) return otherwise;
    if (!found->is_int()) fail_usage(where_, ": ", key, " is ", found->type_name(), ", must be an integer");
    return found->as_int();
  }
  double number(const char* key, double otherwise) const {
    const Value* found = tree_.find(key);
    if (!found) return otherwise;
    if (!found->is_number()) fail_usage(where_, ": ", key, " is ", found->type_name(), ", must be a number");
    return found->as_double();
  }
  std::vector<double> numbers(const char* key) const {
    std::vector<double> out;
    const Value* found = tree_.find(key);
    if (!found || !found->is_array()) return out;
    for (const Value& one : found->as_array()) {
      if (!one.is_number()) fail_usage(where_, ": ", key, " holds ", one.type_name(), ", must be numbers");
      out.push_back(one.as_double());
    }
    return out;
  }
  Activation activation(const char* key, const std::string& otherwise) const {
    return published_activation(word(key, otherwise), text(where_, ": ", key));
  }
  // Fails if a setting has a value that the models here do not support.
  void only(const char* key, bool value) const {
    if (flag(key, value) != value) fail_usage(where_, ": ", key, " must be ", value ? "true" : "false");
  }
  bool flag(const char* key, bool otherwise) const {
    const Value* found = tree_.find(key);
    return found && found->is_bool() ? found->as_bool() : otherwise;
  }
  std::string word(const char* key, const std::string& otherwise) const {
    const Value* found = tree_.find(key);
    return found && found->is_string() ? found->as_string() : otherwise;
  }
  int64_t wanted(const char* key) const {
    if (!tree_.find(key)) fail_usage(where_, " has no ", key, ", which a language model of its kind needs");
    return integer(key, 0);
  }
  const Value* table(const char* key) const {
    const Value* found = tree_.find(key);
    return found && found->is_table() ? found : nullptr;
  }
  const Value::Array* list(const char* key) const {
    const Value* found = tree_.find(key);
    return found && found->is_array() ? &found->as_array() : nullptr;
  }
  const std::string& where() const { return where_; }

 private:
  const Value& tree_;
  const std::string& where_;
};

void read_rope(const HubReader& hub, LanguageConfig& config) {
  config.theta = hub.number("rope_theta", 10000);
  const Value* table = hub.table("rope_parameters");
  if (!table) table = hub.table("rope_scaling");
  if (!table) return;
  const HubReader rope(*table, hub.where());
  config.theta = rope.number("rope_theta", config.theta);
  const double share = rope.number("partial_rotary_factor", hub.number("partial_rotary_factor", 1));
  if (share != 1)
    fail_usage(hub.where(), ": partial_rotary_factor is ", share, ", must be 1: all channels are rotated");
  const std::string type = rope.word("rope_type", rope.word("type", "default"));
  if (type == "default") return;
  config.rope_scaling = parse_enum<nn::RopeScalingKind>(type, hub.where() + ": rope_type");
  config.rope_trained =
      rope.number("original_max_position_embeddings",
                  hub.number("original_max_position_embeddings", static_cast<double>(config.context)));
  const bool longrope = config.rope_scaling == nn::RopeScalingKind::longrope;
  config.rope_factor =
      rope.number("factor", longrope ? static_cast<double>(config.context) / config.rope_trained : 1);
  if (config.rope_scaling == nn::RopeScalingKind::yarn) {
    config.rope_fast = rope.number("beta_fast", 32);
    config.rope_slow = rope.number("beta_slow", 1);
    config.rope_whole_pairs = rope.flag("truncate", true);
    const double own = rope.number("mscale", 0), all = rope.number("mscale_all_dim", 0);
    if (own != 0 && all != 0)
      config.rope_magnitude =
          nn::yarn_magnitude(config.rope_factor, own) / nn::yarn_magnitude(config.rope_factor, all);
  }
  config.rope_magnitude = rope.number("attention_factor", config.rope_magnitude);
  config.rope_short = rope.numbers("short_factor");
  config.rope_long = rope.numbers("long_factor");
  config.rope_low = rope.number("low_freq_factor", 1);
  config.rope_high = rope.number("high_freq_factor", 4);
}

// Returns the first block with a window. Windowed blocks must be the last ones; newer files list the kind of
// every block.
int64_t first_windowed(const HubReader& hub, int64_t depth) {
  const Value::Array& types = *hub.list("layer_types");
  const Value windowed("sliding_attention");
  const auto first = std::find(types.begin(), types.end(), windowed);
  if (std::ssize(types) != depth ||
      std::any_of(first, types.end(), [&](const Value& one) { return one != windowed; }))
    fail_usage(hub.where(), ": layer_types must name ", depth, " layers, those of sliding_attention last");
  return first - types.begin();
}

// Missing settings are those of LLaMA 7B: the published LLaVA 1.5 records only that it does not differ.
void read_llama(const HubReader& hub, LanguageConfig& config) {
  config.dim = hub.integer("hidden_size", 4096);
  config.depth = hub.integer("num_hidden_layers", 32);
  config.heads = hub.integer("num_attention_heads", 32);
  config.kv_heads = hub.integer("num_key_value_heads", config.heads);
  config.head_dim = hub.integer("head_dim", 0);
  config.hidden = hub.integer("intermediate_size", 11008);
  config.context = hub.integer("max_position_embeddings", 2048);
  config.eps = hub.number("rms_norm_eps", 1e-6);
  config.tied = hub.flag("tie_word_embeddings", false);
  config.attention_bias = hub.flag("attention_bias", false);
  config.mlp_bias = hub.flag("mlp_bias", false);
  config.activation = hub.activation("hidden_act", "silu");
  const bool windowed = config.kind == LanguageKind::mistral ||
                        (config.kind == LanguageKind::qwen2 && hub.flag("use_sliding_window", false));
  if (windowed) config.window = hub.integer("sliding_window", 0);
  if (windowed && config.kind == LanguageKind::qwen2)
    config.window_from = std::min(hub.integer("max_window_layers", 28), config.depth);
  if (windowed && hub.list("layer_types")) config.window_from = first_windowed(hub, config.depth);
  read_rope(hub, config);
}

// Null and values that disable a setting are skipped.
void read_mpt_attention(const HubReader& hub, LanguageConfig& config) {
  const Value* table = hub.table("attn_config");
  if (!table) return;
  const HubReader attention(*table, hub.where());
  config.clip_qkv = attention.number("clip_qkv", 0);
  config.attention_scale = attention.number("softmax_scale", 0);
  attention.only("alibi", true);
  attention.only("qk_ln", false);
}

}  // namespace

LanguageConfig language_config_of(const Value& tree, const std::string& where) {
  const HubReader hub(tree, where);
  LanguageConfig config;
  config.kind = parse_enum<LanguageKind>(hub.word("model_type", ""), where + ": model_type");
  config.vocabulary = hub.wanted("vocab_size");
  switch (config.kind) {
    case LanguageKind::gpt2:
      config.dim = hub.wanted("n_embd");
      config.depth = hub.wanted("n_layer");
      config.heads = hub.wanted("n_head");
      config.hidden = hub.integer("n_inner", 0);
      config.context = hub.integer("n_positions", 1024);
      config.eps = hub.number("layer_norm_epsilon", 1e-5);
      config.activation = hub.activation("activation_function", "gelu_new");
      if (!hub.flag("scale_attn_weights", true)) config.attention_scale = 1;
      config.scale_by_layer = hub.flag("scale_attn_by_inverse_layer_idx", false);
      config.untied = !hub.flag("tie_word_embeddings", true);
      break;
    case LanguageKind::bloom:
      config.dim = hub.integer("hidden_size", hub.integer("n_embed", 0));
      config.depth = hub.integer("n_layer", hub.integer("num_hidden_layers", 0));
      config.heads = hub.integer("n_head", hub.integer("num_attention_heads", 0));
      config.eps = hub.number("layer_norm_epsilon", 1e-5);
      config.norm_residual = hub.flag("apply_residual_connection_post_layernorm", false);
      config.untied = !hub.flag("tie_word_embeddings", true);
      break;
    case LanguageKind::mpt:  // `expansion_ratio` is not read: the published code always uses 4
      config.dim = hub.wanted("d_model");
      config.depth = hub.wanted("n_layers");
      config.heads = hub.wanted("n_heads");
      config.context = hub.integer("max_seq_len", 2048);
      config.eps = hub.number("layer_norm_epsilon", 1e-5);
      config.untied = !hub.flag("tie_word_embeddings", true);
      read_mpt_attention(hub, config);
      break;
    default:
      read_llama(hub, config);
  }
  // Checks like a recipe's settings: ranges first, then contradictions.
  return read_config<LanguageConfig>(write_config(config), where).complete();
}

}  // namespace tessera::models
