// Networks and auto-encoders of diffusers, and auto-encoders of CompVis. Our names are those of CompVis.
#include "weights/names/tables.h"

namespace tessera::train {
namespace {

// Every block repeats the embeddings of times and labels.
NameRows diffusers_dit() {
  const std::string embedders = "transformer_blocks.{each}.norm1.emb.";
  return joined({{{"pos_embed.proj.*", "x_embedder.proj.*"},
                  {"proj_out_1.*", "final_layer.adaLN_modulation.1.*"},
                  {"proj_out_2.*", "final_layer.linear.*"}},
                 below(embedders, "",
                       {{"timestep_embedder.linear_1.*", "t_embedder.mlp.0.*"},
                        {"timestep_embedder.linear_2.*", "t_embedder.mlp.2.*"},
                        {"class_embedder.embedding_table.*", "y_embedder.embedding_table.*"}}),
                 below("transformer_blocks.{}.", "blocks.{}.",
                       joined({{{"norm1.linear.*", "adaLN_modulation.1.*"}},
                               thirds("attn1.to_q.*", "attn1.to_k.*", "attn1.to_v.*", "attn.qkv.*"),
                               {{"attn1.to_out.0.*", "attn.proj.*"},
                                {"ff.net.0.proj.*", "mlp.fc1.*"},
                                {"ff.net.2.*", "mlp.fc2.*"}}}))});
}

// diffusers counts the decoder's levels from the coarsest. Older files have other names for attention layers.
NameRows autoencoder_side(const std::string& side) {
  const NameRows residual = {{"conv_shortcut.*", "nin_shortcut.*"}, {"**", "**"}};
  return below(side, side,
               joined({below("down_blocks.{}.resnets.{}.", "down.{}.block.{}.", residual),
                       {{"down_blocks.{}.downsamplers.0.**", "down.{}.downsample.**"}},
                       below("up_blocks.{-}.resnets.{}.", "up.{}.block.{}.", residual),
                       {{"up_blocks.{-}.upsamplers.0.**", "up.{}.upsample.**"}},
                       below("mid_block.resnets.{}.", "mid.block_{+1}.", residual),
                       below("mid_block.attentions.0.", "mid.attn_1.",
                             joined({{{"group_norm.*", "norm.*"},
                                      {"to_q.*", "q.*"},
                                      {"to_k.*", "k.*"},
                                      {"to_v.*", "v.*"},
                                      {"to_out.0.*", "proj_out.*"}},
                                     older({{"query.*", "q.*"},
                                            {"key.*", "k.*"},
                                            {"value.*", "v.*"},
                                            {"proj_attn.*", "proj_out.*"}})})),
                       {{"conv_norm_out.*", "norm_out.*"}}}));
}

// Checkpoints of whole models contain the auto-encoder, losses and moving averages.
NameRows diffusers_compvis() {
  return older({{"first_stage_model.loss.**", ""},
                {"first_stage_model.**", "**"},
                {"**", "", {}, "first_stage_model.**"},
                {"loss.**", ""},
                {"model_ema.**", ""}});
}

}  // namespace

std::vector<NameTable> diffusers_names() {
  return {
      {"diffusers", "dit", diffusers_dit()},
      {"compvis", "autoencoder_kl", diffusers_compvis()},
      {"diffusers", "autoencoder_kl", joined({autoencoder_side("encoder."), autoencoder_side("decoder.")})}};
}

}  // namespace tessera::train
