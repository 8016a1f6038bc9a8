#include "models/language/language_model.h"

namespace tessera::models {
namespace {

using Positions = LanguageForm::Positions;
using Packing = LanguageForm::Packing;

constexpr LanguageForm kGpt2 = {
    .norm = NormKind::layer,
    .norm_bias = true,
    .positions = Positions::learned,
    .packing = Packing::thirds,
    .attention_bias = true,
    .output_bias = true,
    .mlp_bias = true,
    .stored_in_out = true,
    .activation = Activation::gelu_tanh,
    .tied = true,
    .embedding = "transformer.wte",
    .positions_name = "transformer.wpe",
    .embedding_norm = "",
    .block = "transformer.h.",
    .attention_norm = "ln_1",
    .qkv = "attn.c_attn",
    .q = "",
    .k = "",
    .v = "",
    .out = "attn.c_proj",
    .mlp_norm = "ln_2",
    .gate = "",
    .up = "mlp.c_fc",
    .down = "mlp.c_proj",
    .last_norm = "transformer.ln_f",
};

constexpr LanguageForm kLlama = {
    .norm = NormKind::rms,
    .norm_bias = false,
    .positions = Positions::rotary,
    .packing = Packing::separate,
    .attention_bias = false,
    .output_bias = false,
    .mlp_bias = false,
    .stored_in_out = false,
    .activation = Activation::silu,
    .tied = false,
    .embedding = "model.embed_tokens",
    .positions_name = "",
    .embedding_norm = "",
    .block = "model.layers.",
    .attention_norm = "input_layernorm",
    .qkv = "",
    .q = "self_attn.q_proj",
    .k = "self_attn.k_proj",
    .v = "self_attn.v_proj",
    .out = "self_attn.o_proj",
    .mlp_norm = "post_attention_layernorm",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .down = "mlp.down_proj",
    .last_norm = "model.norm",
};

constexpr LanguageForm kQwen2 = [] {
  LanguageForm form = kLlama;
  form.attention_bias = true;
  return form;
}();

constexpr LanguageForm kBloom = {
    .norm = NormKind::layer,
    .norm_bias = true,
    .positions = Positions::alibi,
    .packing = Packing::by_head,
    .attention_bias = true,
    .output_bias = true,
    .mlp_bias = true,
    .stored_in_out = false,
    .activation = Activation::gelu_tanh,
    .tied = true,
    .embedding = "transformer.word_embeddings",
    .positions_name = "",
    .embedding_norm = "transformer.word_embeddings_layernorm",
    .block = "transformer.h.",
    .attention_norm = "input_layernorm",
    .qkv = "self_attention.query_key_value",
    .q = "",
    .k = "",
    .v = "",
    .out = "self_attention.dense",
    .mlp_norm = "post_attention_layernorm",
    .gate = "",
    .up = "mlp.dense_h_to_4h",
    .down = "mlp.dense_4h_to_h",
    .last_norm = "transformer.ln_f",
};

constexpr LanguageForm kMpt = {
    .norm = NormKind::layer,
    .norm_bias = false,
    .positions = Positions::alibi,
    .packing = Packing::thirds,
    .attention_bias = false,
    .output_bias = false,
    .mlp_bias = false,
    .stored_in_out = false,
    .activation = Activation::gelu,
    .tied = true,
    .embedding = "transformer.wte",
    .positions_name = "",
    .embedding_norm = "",
    .block = "transformer.blocks.",
    .attention_norm = "norm_1",
    .qkv = "attn.Wqkv",
    .q = "",
    .k = "",
    .v = "",
    .out = "attn.out_proj",
    .mlp_norm = "norm_2",
    .gate = "",
    .up = "ffn.up_proj",
    .down = "ffn.down_proj",
    .last_norm = "transformer.norm_f",
};

}  // namespace

const LanguageForm& language_form(LanguageKind kind) {
  switch (kind) {
    case LanguageKind::gpt2:
      return kGpt2;
    case LanguageKind::qwen2:
      return kQwen2;
    case LanguageKind::bloom:
      return kBloom;
    case LanguageKind::mpt:
      return kMpt;
    default:
      return kLlama;
  }
}

}  // namespace tessera::models
