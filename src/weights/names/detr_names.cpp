// DETR of transformers (DetrForObjectDetection). Our names are those of DETR's authors.
#include "weights/names/tables.h"

namespace tessera::train {
namespace {

NameRows attention(const std::string& theirs, const std::string& ours) {
  return joined({thirds(theirs + "q_proj.*", theirs + "k_proj.*", theirs + "v_proj.*", ours + "in_proj_*"),
                 {{theirs + "out_proj.*", ours + "out_proj.*"}}});
}

NameRows layer(const std::string& kind, NameRows norms) {
  return below(
      "model." + kind + ".layers.{}.", "transformer." + kind + ".layers.{}.",
      joined({attention("self_attn.", "self_attn."),
              std::move(norms),
              {{"self_attn_layer_norm.*", "norm1.*"}, {"fc1.*", "linear1.*"}, {"fc2.*", "linear2.*"}}}));
}

// The ResNet of transformers, which newer files contain instead of timm's.
NameRows own_resnet() {
  return older(below("model.backbone.conv_encoder.model.", "backbone.0.body.",
                     joined({{{"embedder.embedder.convolution.*", "conv1.*"},
                              {"embedder.embedder.normalization.*", "bn1.*"}},
                             below("encoder.stages.{}.layers.{}.", "layer{+1}.{}.",
                                   {{"shortcut.convolution.*", "downsample.0.*"},
                                    {"shortcut.normalization.*", "downsample.1.*"},
                                    {"layer.{}.convolution.*", "conv{+1}.*"},
                                    {"layer.{}.normalization.*", "bn{+1}.*"}})})));
}

NameRows detr_transformers() {
  return joined(
      {{{"model.backbone.**.num_batches_tracked", ""}},
       own_resnet(),
       {{"model.backbone.conv_encoder.model.**", "backbone.0.body.**"}},
       layer("encoder", {{"final_layer_norm.*", "norm2.*"}}),
       layer("decoder", joined({{{"encoder_attn_layer_norm.*", "norm2.*"}, {"final_layer_norm.*", "norm3.*"}},
                                attention("encoder_attn.", "multihead_attn.")})),
       {{"model.decoder.layernorm.*", "transformer.decoder.norm.*"},
        {"model.input_projection.*", "input_proj.*"},
        {"model.query_position_embeddings.*", "query_embed.*"},
        {"class_labels_classifier.*", "class_embed.*"},
        {"bbox_predictor.**", "bbox_embed.**"}}});
}

}  // namespace

std::vector<NameTable> detr_names() {
  return {{"detr", "detr", {}},
          {"transformers", "detr", detr_transformers(), "model.query_position_embeddings.weight"}};
}

}  // namespace tessera::train
