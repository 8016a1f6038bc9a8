// Vision Transformers. Our names are timm's.
#include "weights/names/tables.h"

namespace tessera::train {
namespace {

NameRows vit_torchvision() {
  return joined({{{"class_token", "cls_token"},
                  {"encoder.pos_embedding", "pos_embed"},
                  {"encoder.ln.*", "norm.*"},
                  {"heads.head.*", "head.*"},
                  {"conv_proj.*", "patch_embed.proj.*"}},
                 below("encoder.layers.encoder_layer_{}.", "blocks.{}.",
                       {{"ln_1.*", "norm1.*"},
                        {"ln_2.*", "norm2.*"},
                        {"mlp.0.*", "mlp.fc1.*"},
                        {"mlp.3.*", "mlp.fc2.*"},
                        {"mlp.linear_1.*", "mlp.fc1.*", {}, "", true},
                        {"mlp.linear_2.*", "mlp.fc2.*", {}, "", true},
                        {"self_attention.in_proj_*", "attn.qkv.*"},
                        {"self_attention.out_proj.*", "attn.proj.*"}})});
}

// mmpretrain and mmseg. The second names of LayerScale are those of their BEiT.
NameRows vit_openmmlab() {
  return joined({{{"patch_embed.projection.*", "patch_embed.proj.*"},
                  {"ln1.*", "norm.*"},
                  {"head.layers.head.*", "head.*"}},
                 below("layers.{}.", "blocks.{}.",
                       {{"ln1.*", "norm1.*"},
                        {"ln2.*", "norm2.*"},
                        {"ffn.layers.0.0.*", "mlp.fc1.*"},
                        {"ffn.layers.1.*", "mlp.fc2.*"},
                        {"attn.gamma1.weight", "ls1.gamma"},
                        {"ffn.gamma2.weight", "ls2.gamma"},
                        {"gamma_1", "ls1.gamma", {}, "", true},
                        {"gamma_2", "ls2.gamma", {}, "", true},
                        {"attn.relative_position_index", ""},
                        {"attn.**", "attn.**"}})});
}

// The ViT in the code of Vision-LSTM.
NameRows vit_vision_lstm() {
  return {{"cls_tokens.tokens", "cls_token"},
          {"pos_embed.embed", "pos_embed"},
          {"head.0.*", "norm.*"},
          {"head.1.*", "head.*"}};
}

// BEiT's keys have no bias.
NameRows vit_beit() {
  return joined({{{"rel_pos_bias.relative_position_index", ""}},
                 below("blocks.{}.", "blocks.{}.",
                       {{"gamma_1", "ls1.gamma"},
                        {"gamma_2", "ls2.gamma"},
                        {"attn.q_bias", "attn.qkv.bias", part(0, 3), "", true},
                        {"attn.v_bias", "attn.qkv.bias", part(2, 3), "", true},
                        {"attn.relative_position_index", ""}})});
}

// A block of transformers' ViT, DeiT and BEiT; transformers 5 has other names in memory.
NameRows transformers_vit_block() {
  const std::string attention = "attention.attention.";
  return joined({{{"layernorm_before.*", "norm1.*"}, {"layernorm_after.*", "norm2.*"}},
                 thirds(attention + "query.*", attention + "key.*", attention + "value.*", "attn.qkv.*"),
                 {{"attention.output.dense.*", "attn.proj.*"},
                  {"intermediate.dense.*", "mlp.fc1.*"},
                  {"output.dense.*", "mlp.fc2.*"},
                  {"lambda_1", "ls1.gamma", {}, "", true},
                  {"lambda_2", "ls2.gamma", {}, "", true},
                  {attention + "relative_position_bias.relative_position_index", "", {}, "", true},
                  {attention + "relative_position_bias.**", "attn.**", {}, "", true}}});
}

// The same block under the names in memory, which torch.save(model.state_dict()) writes.
NameRows transformers_vit_block_in_memory() {
  return joined({{{"layernorm_before.*", "norm1.*"}, {"layernorm_after.*", "norm2.*"}},
                 thirds("attention.q_proj.*", "attention.k_proj.*", "attention.v_proj.*", "attn.qkv.*"),
                 {{"attention.o_proj.*", "attn.proj.*"},
                  {"mlp.**", "mlp.**"},
                  {"lambda_1", "ls1.gamma"},
                  {"lambda_2", "ls2.gamma"},
                  {"relative_position_bias.relative_position_index", ""},
                  {"relative_position_bias.**", "attn.**"}}});
}

// A block of DINOv2; its giant has gate and up in one matrix.
NameRows transformers_dino_block() {
  const std::string attention = "attention.attention.";
  return joined({thirds(attention + "query.*", attention + "key.*", attention + "value.*", "attn.qkv.*"),
                 thirds("attention.q_proj.*", "attention.k_proj.*", "attention.v_proj.*", "attn.qkv.*"),
                 {{"attention.output.dense.*", "attn.proj.*"},
                  {"attention.o_proj.*", "attn.proj.*"},
                  {"norm1.*", "norm1.*"},
                  {"norm2.*", "norm2.*"},
                  {"mlp.weights_in.*", "mlp.fc1.*"},
                  {"mlp.weights_out.*", "mlp.fc2.*"},
                  {"mlp.**", "mlp.**"},
                  {"layer_scale1.lambda1", "ls1.gamma"},
                  {"layer_scale2.lambda1", "ls2.gamma"}}});
}

NameRows transformers_vit() {
  return joined({{{"embeddings.cls_token", "cls_token"},
                  {"embeddings.position_embeddings", "pos_embed"},
                  {"embeddings.patch_embeddings.projection.*", "patch_embed.proj.*"},
                  {"layernorm.*", "norm.*"},
                  {"embeddings.mask_token", "", {}, "", true},
                  {"pooler.dense.*", "", {}, "", true},
                  {"pooler.layernorm.*", "fc_norm.*", {}, "", true},
                  {"encoder.relative_position_bias.relative_position_index", "", {}, "", true},
                  {"encoder.relative_position_bias.**", "rel_pos_bias.**", {}, "", true},
                  {"shared_position_bias.relative_position_index", "", {}, "", true},
                  {"shared_position_bias.**", "rel_pos_bias.**", {}, "", true}},
                 below("encoder.layer.{}.", "blocks.{}.", transformers_vit_block()),
                 older(below("layers.{}.", "blocks.{}.", transformers_vit_block_in_memory()))});
}

// The classifiers of CLIP and SigLIP read patches: CLIP's without the last norm, SigLIP's without the pooling. The
// patches of SigLIP have a bias.
NameRows image_classifier_rows() {
  const std::string images = "vision_model.", last = images + "post_layernorm.*", classifier = "classifier.*";
  return {{last, "norm.*", {}, images + "embeddings.patch_embedding.bias"},
          {last, "", {}, classifier},
          {images + "head.**", "", {}, classifier}};
}

NameRows vit_transformers() {
  NameRows rows = joined({below("vit.", "", transformers_vit()), {{"classifier.*", "head.*"}}});
  for (const char* prefix : {"deit.", "beit.", "data2vec_vision.", "ijepa.", ""})
    rows = joined({rows, older(below(prefix, "", transformers_vit()))});
  // MAE's decoder does not belong to the encoder.
  rows = joined({rows, older({{"decoder.**", ""}})});
  for (const std::string prefix : {"dinov2.", "dinov2_with_registers.", ""})
    rows = joined({rows, older(below(prefix + "encoder.layer.{}.", "blocks.{}.", transformers_dino_block())),
                   older(below(prefix, "", transformers_vit())),
                   older({{prefix + "embeddings.register_tokens", "reg_token"}})});
  // The image towers of CLIP and SigLIP alone; the projection into the space of texts is no part of the ViT.
  rows = joined({rows, older({{"visual_projection.weight", ""}})});
  rows = joined({rows, older(image_classifier_rows())});
  for (const std::string prefix : {"vision_model.", ""})
    rows = joined({rows, older(joined({image_tower_rows(prefix, ""),
                                       image_pool_rows(prefix + "head.", "attn_pool.")}))});
  // Without a head of its own the distillation token is one of the registers.
  const std::string token = "deit.embeddings.distillation_token", head = "distillation_classifier.";
  return joined({rows, older({{token, "dist_token", {}, head + "*"},
                              {token, "reg_token"},
                              {"embeddings.distillation_token", "reg_token"},
                              {"cls_classifier.*", "head.*"},
                              {head + "*", "head_dist.*"}})});
}

}  // namespace

std::vector<NameTable> vit_names() {
  return {{"torchvision", "vit", vit_torchvision()},
          {"openmmlab", "vit", vit_openmmlab()},
          {"vision-lstm", "vit", vit_vision_lstm()},
          {"beit", "vit", vit_beit()},
          {"transformers", "vit", vit_transformers()}};
}

}  // namespace tessera::train
