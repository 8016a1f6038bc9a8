// Image-text models: CLIP and CoCa of OpenAI and OpenCLIP, OpenCLIP with timm towers (SigLIP), and CLIPModel
// and SiglipModel of transformers. The image tower is under "visual.trunk.", the text tower under "text.".

#include "weights/names/tables.h"

namespace tessera::train {
namespace {

constexpr Join kOneAxis = {.axes = 1}, kTwoAxes = {.axes = 2};
const std::string kTrunk = "visual.trunk.", kText = "text.";

NameRows open_clip_block(const std::string& theirs, const std::string& ours) {
  return below(theirs + "{}.", ours + "{}.",
               {{"ln_1.*", "norm1.*"},
                {"ln_2.*", "norm2.*"},
                {"attn.in_proj_*", "attn.qkv.*"},
                {"attn.out_proj.*", "attn.proj.*"},
                {"mlp.c_fc.*", "mlp.fc1.*"},
                {"mlp.c_proj.*", "mlp.fc2.*"},
                {"ls_{}.*", "ls{}.*"}});
}

// nn.MultiheadAttention; our names separate q from k and v. `narrow`: context and q have the same channels,
// so the published weights are one tensor.
NameRows split_attention(const std::string& theirs, const std::string& ours, bool narrow) {
  const NameRows together = {{theirs + "in_proj_weight", ours + "q.weight", rows_of(0, 1, 3)},
                             {theirs + "in_proj_weight", ours + "kv.weight", rows_of(1, 3, 3)}},
                 apart = {{theirs + "q_proj_weight", ours + "q.weight"},
                          {theirs + "k_proj_weight", ours + "kv.weight", part(0, 2)},
                          {theirs + "v_proj_weight", ours + "kv.weight", part(1, 2)}};
  return joined({narrow ? together : apart,
                 older(narrow ? apart : together),
                 {{theirs + "in_proj_bias", ours + "q.bias", rows_of(0, 1, 3)},
                  {theirs + "in_proj_bias", ours + "kv.bias", rows_of(1, 3, 3)},
                  {theirs + "out_proj.*", ours + "proj.*"}}});
}

// OpenCLIP's own image tower. CoCa has a pooler before the last norm.
NameRows open_clip_vit(bool pooler) {
  NameRows rows = joined({{{"visual.proj", "visual.head.proj.weight", kTransposed},
                           {"visual.class_embedding", kTrunk + "cls_token", kTwoAxes},
                           {"visual.positional_embedding", kTrunk + "pos_embed", kOneAxis},
                           {"visual.conv1.*", kTrunk + "patch_embed.proj.*"},
                           {"visual.ln_pre.*", kTrunk + "norm_pre.*"},
                           {"visual.ln_post.*", (pooler ? "visual.ln_post." : kTrunk + "norm.") + "*"}},
                          open_clip_block("visual.transformer.resblocks.", kTrunk + "blocks.")});
  if (!pooler) return rows;
  return joined({rows,
                 split_attention("visual.attn_pool.attn.", "visual.attn_pool.attn.", false),
                 {{"visual.attn_pool.**", "visual.attn_pool.**"}}});
}

// timm's image towers.
NameRows open_clip_timm() {
  return {{"visual.trunk.**", "visual.trunk.**"}, {"visual.head.proj**", "visual.head.proj**"}};
}

// CLIP's ResNet; its norms count batches.
NameRows open_clip_resnet() { return {{"visual.**.num_batches_tracked", ""}, {"visual.**", kTrunk + "**"}}; }

NameRows open_clip_texts(const std::string& prefix) {
  return joined({open_clip_block(prefix + "transformer.resblocks.", kText + "blocks."),
                 below(prefix, kText,
                       {{"text_projection", "text_projection.weight", kTransposed},
                        {"text_projection.*", "text_projection.*"},
                        {"token_embedding.*", "token_embedding.*"},
                        {"positional_embedding", "positional_embedding"},
                        {"cls_emb", "cls_emb"},
                        {"ln_final.*", "ln_final.*"}})});
}

NameRows open_clip_decoder() {
  const std::string decoder = "text_decoder.";
  return joined({{{decoder + "text_projection", decoder + "text_projection.weight", kTransposed},
                  {decoder + "ln_final.*", decoder + "ln_final.*"},
                  {decoder + "cross_attn.{}.ln_1_kv.*", decoder + "cross_blocks.{}.norm_context.*"}},
                 split_attention(decoder + "cross_attn.{}.attn.", decoder + "cross_blocks.{}.attn.", true),
                 open_clip_block(decoder + "cross_attn.", decoder + "cross_blocks."),
                 open_clip_block(decoder + "resblocks.", decoder + "blocks.")});
}

// Scale and bias of the logits. Drops all other tensors (indices, sizes).
const NameRows kScales = {{"logit_scale", "logit_scale"}, {"logit_bias", "logit_bias"}, {"**", ""}};

NameRows open_clip(const NameRows& images, const std::string& texts) {
  return joined(
      {images, open_clip_texts(texts), older(open_clip_texts(texts.empty() ? kText : "")), kScales});
}

NameRows transformers_layers(const std::string& theirs, const std::string& ours) {
  return below(
      theirs + "encoder.layers.{}.", ours + "blocks.{}.",
      joined({{{"layer_norm1.*", "norm1.*"},
               {"layer_norm2.*", "norm2.*"},
               {"mlp.**", "mlp.**"},
               {"self_attn.out_proj.*", "attn.proj.*"}},
              thirds("self_attn.q_proj.*", "self_attn.k_proj.*", "self_attn.v_proj.*", "attn.qkv.*")}));
}

NameRows transformers_images(const std::string& theirs, const std::string& ours) {
  return joined({transformers_layers(theirs, ours),
                 below(theirs, ours,
                       {{"embeddings.class_embedding", "cls_token", kTwoAxes},
                        {"embeddings.patch_embedding.*", "patch_embed.proj.*"},
                        {"embeddings.position_embedding.weight", "pos_embed", kOneAxis},
                        {"pre_layrnorm.*", "norm_pre.*"},
                        {"post_layernorm.*", "norm.*"}})});
}

NameRows tower_transformers(const NameRows& own) {
  const std::string words = "text_model.";
  return joined({own, transformers_images("vision_model.", kTrunk), transformers_layers(words, kText),
                 below(words, kText,
                       {{"embeddings.token_embedding.*", "token_embedding.*"},
                        {"embeddings.position_embedding.weight", "positional_embedding"},
                        {"final_layer_norm.*", "ln_final.*"}}),
                 kScales});
}

const NameRows kClip = {{"visual_projection.weight", "visual.head.proj.weight"},
                        {"text_projection.weight", "text.text_projection.weight"}};

NameRows tower_siglip() {
  return joined({image_pool_rows("vision_model.head.", kTrunk + "attn_pool."),
                 {{"text_model.head.*", "text.text_projection.*"}}});
}

}  // namespace

NameRows image_tower_rows(const std::string& theirs, const std::string& ours) {
  return joined({{{theirs + "proj", ""}, {theirs + "embeddings.position_ids", ""}},
                 transformers_images(theirs, ours),
                 older(joined({open_clip_block(theirs + "transformer.resblocks.", ours + "blocks."),
                               below(theirs, ours,
                                     {{"class_embedding", "cls_token", kTwoAxes},
                                      {"positional_embedding", "pos_embed", kOneAxis},
                                      {"conv1.*", "patch_embed.proj.*"},
                                      {"ln_pre.*", "norm_pre.*"},
                                      {"ln_post.*", "norm.*"}})}))});
}

NameRows image_pool_rows(const std::string& theirs, const std::string& ours) {
  const std::string in = "attention.in_proj_";
  return below(theirs, ours,
               {{in + "*", "q.*", rows_of(0, 1, 3)},
                {in + "*", "kv.*", rows_of(1, 3, 3)},
                {"attention.out_proj.*", "proj.*"},
                {"probe", "latent"},
                {"layernorm.*", "norm.*"},
                {"mlp.**", "mlp.**"}});
}

std::vector<NameTable> tower_names() {
  return {{"transformers", "siglip", tower_transformers(tower_siglip()), "vision_model.head.**"},
          {"transformers", "clip", tower_transformers(kClip), "text_model.**"},
          {"open_clip", "clip_resnet", open_clip(open_clip_resnet(), ""), "visual.attnpool.**"},
          {"open_clip", "coca", open_clip(joined({open_clip_vit(true), open_clip_decoder()}), kText),
           "text_decoder.**"},
          {"open_clip", "siglip", open_clip(open_clip_timm(), kText), "visual.trunk.**"},
          {"open_clip", "clip", open_clip(open_clip_vit(false), ""), "visual.**"}};
}

}  // namespace tessera::train
