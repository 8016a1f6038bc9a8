// Language and vision-language models, from transformers and from their authors.
#include "weights/names/tables.h"

namespace tessera::train {
namespace {

// Masks and position tables follow from the configuration.
const NameRows kLanguageComputed = {
    {"**.attn.bias", ""}, {"**.attn.masked_bias", ""}, {"**rotary_emb.inv_freq", ""}};

// Files of GPT-2, BLOOM, MPT and LLaMA omit the root prefix of transformers' models.
NameRows language_decoders() {
  return joined(
      {kLanguageComputed,
       older(below("", "transformer.",
                   {{"h.{}.**", "h.{}.**"},
                    {"blocks.{}.**", "blocks.{}.**"},
                    {"wte.*", "wte.*"},
                    {"wpe.*", "wpe.*"},
                    {"ln_f.*", "ln_f.*"},
                    {"norm_f.*", "norm_f.*"},
                    {"word_embeddings.*", "word_embeddings.*"},
                    {"word_embeddings_layernorm.*", "word_embeddings_layernorm.*"}})),
       older(below(
           "", "model.",
           {{"layers.{}.**", "layers.{}.**"}, {"embed_tokens.*", "embed_tokens.*"}, {"norm.*", "norm.*"}}))});
}

// Encoder and decoder share one embedding. Old files contain an unused table.
NameRows language_t5() {
  return {{"**.embed_tokens.weight", "shared.weight", {}, "", true},
          {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight", ""}};
}

// Names of llava-hf, of newer releases of transformers, and of liuhaotian.
NameRows language_llava() {
  const std::string projector = "multi_modal_projector.", own = "language_model.";
  return joined(
      {kLanguageComputed,
       image_tower_rows("vision_tower.vision_model.", "vision."),
       older(joined({image_tower_rows("model.vision_tower.vision_tower.vision_model.", "vision."),
                     image_tower_rows("model.vision_tower.vision_model.", "vision."),
                     image_tower_rows("model.vision_tower.", "vision."),
                     image_tower_rows("vision_tower.", "vision."),
                     below("model.mm_projector.", projector, {{"0.*", "linear_1.*"}, {"2.*", "linear_2.*"}}),
                     below("mm_projector.", projector, {{"0.*", "linear_1.*"}, {"2.*", "linear_2.*"}}),
                     {{"model.mm_projector.*", projector + "linear_1.*"},
                      {"model.multi_modal_projector.**", projector + "**"}}})),
       {{projector + "**", projector + "**"}},
       below(own, own, joined({language_decoders(), {{"**", "**"}}})),
       older(joined({{{"model.language_model.**", own + "model.**"}},
                     below("", own, language_decoders()),
                     {{"**", own + "**"}}}))});
}

// The gated layers are in the blocks of the language model, which keeps its program's names.
NameRows language_open_flamingo() {
  const NameRows rows =
      joined({image_tower_rows("vision_encoder.", "vision_encoder."),
              older({{"lang_encoder.{any}.{}.gated_cross_attn_layer.**", "gated_cross_attn_layers.{}.**"},
                     {"lang_encoder.**.decoder_layer.**", "lang_encoder.**.**"}})});
  return joined({rows, older(below("module.", "", rows)), older({{"module.**", "**"}})});
}

// Files of the bare encoder omit "bert."; files of TensorFlow's code name the norms' parameters otherwise. The output
// layer is the embedding.
NameRows language_bert() {
  const NameRows norms = {{"embeddings.LayerNorm.gamma", "embeddings.LayerNorm.weight"},
                          {"embeddings.LayerNorm.beta", "embeddings.LayerNorm.bias"},
                          {"encoder.layer.**.LayerNorm.gamma", "encoder.layer.**.LayerNorm.weight"},
                          {"encoder.layer.**.LayerNorm.beta", "encoder.layer.**.LayerNorm.bias"}};
  return joined(
      {{{"bert.embeddings.position_ids", ""},
        {"embeddings.position_ids", ""},
        {"cls.seq_relationship.*", ""}},
       older(joined(
           {below("bert.", "bert.", norms),
            below("", "bert.", norms),
            {{"cls.predictions.transform.LayerNorm.gamma", "cls.predictions.transform.LayerNorm.weight"},
             {"cls.predictions.transform.LayerNorm.beta", "cls.predictions.transform.LayerNorm.bias"},
             {"cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"},
             {"cls.predictions.decoder.bias", "cls.predictions.bias"},
             {"embeddings.**", "bert.embeddings.**"},
             {"encoder.layer.**", "bert.encoder.layer.**"},
             {"pooler.dense.*", "bert.pooler.dense.*"}}}))});
}

}  // namespace

std::vector<NameTable> language_names() {
  return {{"transformers", "decoder", language_decoders()},
          {"transformers", "t5", language_t5()},
          {"transformers", "bert", language_bert()},
          {"transformers", "llava", language_llava()},
          {"open_flamingo", "flamingo", language_open_flamingo()}};
}

}  // namespace tessera::train
