#include "models/language/language_model.h"

namespace tessera::models {

const LanguageForm& language_form(LanguageKind kind) {
  static const LanguageForm gpt2 = {NormKind::layer,
                                    true,
                                    LanguageForm::Positions::learned,
                                    LanguageForm::Packing::thirds,
                                    true,
                                    true,
                                    true,
                                    true,
                                    Activation::gelu_tanh,
                                    true,
                                    "transformer.wte",
                                    "transformer.wpe",
                                    "",
                                    "transformer.h.",
                                    "ln_1",
                                    "attn.c_attn",
                                    "",
                                    "",
                                    "",
                                    "attn.c_proj",
                                    "ln_2",
                                    "",
                                    "mlp.c_fc",
                                    "mlp.c_proj",
                                    "transformer.ln_f"};
  static const LanguageForm llama = {NormKind::rms,
                                     false,
                                     LanguageForm::Positions::rotary,
                                     LanguageForm::Packing::separate,
                                     false,
                                     false,
                                     false,
                                     false,
                                     Activation::silu,
                                     false,
                                     "model.embed_tokens",
                                     "",
                                     "",
                                     "model.layers.",
                                     "input_layernorm",
                                     "",
                                     "self_attn.q_proj",
                                     "self_attn.k_proj",
                                     "self_attn.v_proj",
                                     "self_attn.o_proj",
                                     "post_attention_layernorm",
                                     "mlp.gate_proj",
                                     "mlp.up_proj",
                                     "mlp.down_proj",
                                     "model.norm"};
  static const LanguageForm qwen2 = [] {
    LanguageForm form = llama;
    form.attention_bias = true;
    return form;
  }();
  static const LanguageForm bloom = {NormKind::layer,
                                     true,
                                     LanguageForm::Positions::alibi,
                                     LanguageForm::Packing::by_head,
                                     true,
                                     true,
                                     true,
                                     false,
                                     Activation::gelu_tanh,
                                     true,
                                     "transformer.word_embeddings",
                                     "",
                                     "transformer.word_embeddings_layernorm",
                                     "transformer.h.",
                                     "input_layernorm",
                                     "self_attention.query_key_value",
                                     "",
                                     "",
                                     "",
                                     "self_attention.dense",
                                     "post_attention_layernorm",
                                     "",
                                     "mlp.dense_h_to_4h",
                                     "mlp.dense_4h_to_h",
                                     "transformer.ln_f"};
  static const LanguageForm mpt = {NormKind::layer,
                                   false,
                                   LanguageForm::Positions::alibi,
                                   LanguageForm::Packing::thirds,
                                   false,
                                   false,
                                   false,
                                   false,
                                   Activation::gelu,
                                   true,
                                   "transformer.wte",
                                   "",
                                   "",
                                   "transformer.blocks.",
                                   "norm_1",
                                   "attn.Wqkv",
                                   "",
                                   "",
                                   "",
                                   "attn.out_proj",
                                   "norm_2",
                                   "",
                                   "ffn.up_proj",
                                   "ffn.down_proj",
                                   "transformer.norm_f"};
  switch (kind) {
    case LanguageKind::gpt2:
      return gpt2;
    case LanguageKind::qwen2:
      return qwen2;
    case LanguageKind::bloom:
      return bloom;
    case LanguageKind::mpt:
      return mpt;
    default:
      return llama;
  }
}

}  // namespace tessera::models
