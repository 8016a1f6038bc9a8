// Swin Transformers. Our names are timm's. timm merges patches at the start of a stage, other programs at the
// end of the previous one.
#include "weights/names/tables.h"

namespace tessera::train {
namespace {

// Index tables and masks follow from the sizes.
const NameRows kSwinComputed = {{"**.relative_position_index", ""}, {"**.attn_mask", ""}};

// Microsoft's first code.
NameRows swin_original() {
  return joined({kSwinComputed,
                 {{"layers.{}.downsample.**", "layers.{+1}.downsample.**", {}, "layers.0.downsample.**"},
                  {"head.*", "head.fc.*"}}});
}

NameRows swin_openmmlab() {
  return joined({{{"patch_embed.projection.*", "patch_embed.proj.*"},
                  {"stages.{}.downsample.**", "layers.{+1}.downsample.**"}},
                 below("stages.{}.blocks.{}.", "layers.{}.blocks.{}.",
                       joined({{{"attn.w_msa.relative_position_index", ""}},
                               {{"attn.w_msa.**", "attn.**"},
                                {"ffn.layers.0.0.*", "mlp.fc1.*"},
                                {"ffn.layers.1.*", "mlp.fc2.*"}}})),
                 {{"stages.{}.**", "layers.{}.**"}}});
}

// A block under the names in memory, which torch.save(model.state_dict()) writes.
NameRows swin_transformers_in_memory() {
  return joined({thirds("attention.q_proj.*", "attention.k_proj.*", "attention.v_proj.*", "attn.qkv.*"),
                 {{"attention.o_proj.*", "attn.proj.*"},
                  {"attention.relative_position_bias.relative_position_index", ""},
                  {"attention.relative_position_bias.**", "attn.**"},
                  {"mlp.**", "mlp.**"}}});
}

NameRows swin_transformers() {
  return joined({{{"embeddings.patch_embeddings.projection.*", "patch_embed.proj.*"},
                  {"embeddings.norm.*", "patch_embed.norm.*"},
                  {"hidden_states_norms.stage{+1}.*", "norm{}.*"},
                  {"encoder.layers.{}.downsample.**", "layers.{+1}.downsample.**"}},
                 below("encoder.layers.{}.blocks.{}.", "layers.{}.blocks.{}.",
                       joined({{{"layernorm_before.*", "norm1.*"},
                                {"layernorm_after.*", "norm2.*"},
                                {"attention.self.relative_position_index", ""}},
                               thirds("attention.self.query.*", "attention.self.key.*",
                                      "attention.self.value.*", "attn.qkv.*"),
                               {{"attention.output.dense.*", "attn.proj.*"},
                                {"attention.self.**", "attn.**"},
                                {"intermediate.dense.*", "mlp.fc1.*"},
                                {"output.dense.*", "mlp.fc2.*"}},
                               older(swin_transformers_in_memory())})),
                 {{"encoder.layers.{}.**", "layers.{}.**"}}});
}

// Whole classifiers. Dense predictors have only the rows above.
NameRows swin_transformers_classifier() {
  const NameRows trunk =
      joined({swin_transformers(),
              {{"embeddings.position_embeddings", "absolute_pos_embed"}, {"layernorm.*", "norm.*"}}});
  return joined({trunk, {{"classifier.*", "head.fc.*"}}, older(below("swin.", "", trunk))});
}

}  // namespace

std::vector<NameTable> swin_names() {
  return {{"microsoft", "swin", swin_original()},
          {"openmmlab", "swin", swin_openmmlab()},
          {"transformers", "swin", swin_transformers_classifier()}};
}

}  // namespace tessera::train
