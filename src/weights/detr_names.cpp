#include "weights/detr_names.h"

#include <array>
#include <map>
#include <string_view>

#include "core/error.h"
#include "core/text.h"

namespace tessera::train {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;

constexpr std::string_view kBody = "backbone.0.body.";
constexpr std::array<Pair, 8> kBeginnings = {{{"model.backbone.conv_encoder.model.", "backbone.0.body."},
                                              {"model.encoder.layers.", "transformer.encoder.layers."},
                                              {"model.decoder.layers.", "transformer.decoder.layers."},
                                              {"model.decoder.layernorm.", "transformer.decoder.norm."},
                                              {"model.input_projection.", "input_proj."},
                                              {"model.query_position_embeddings.", "query_embed."},
                                              {"class_labels_classifier.", "class_embed."},
                                              {"bbox_predictor.", "bbox_embed."}}};
// The longer of two that begin alike stands first. `final_layer_norm` is the last norm of a layer, the second of an encoder's and the
// third of a decoder's.
constexpr std::array<Pair, 6> kParts = {{{".self_attn_layer_norm.", ".norm1."},
                                         {".encoder_attn_layer_norm.", ".norm2."},
                                         {".encoder_attn.", ".multihead_attn."},
                                         {".fc1.", ".linear1."},
                                         {".fc2.", ".linear2."},
                                         {".final_layer_norm.", ".norm"}}};

std::string replaced(std::string name, size_t at, std::string_view old, std::string_view by) {
  return name.replace(at, old.size(), by);
}

// transformers' own ResNet, which newer files have instead of timm's, as the authors' (torchvision's).
std::string torchvision_name(const std::string& name, size_t body) {
  const std::vector<std::string> parts = split(name.substr(body), '.');
  const std::string& kind = parts.size() > 2 ? parts[parts.size() - 2] : parts.front();
  const bool norm = kind == "normalization";
  std::string ours;
  if (parts.size() == 4 && parts[0] == "embedder") ours = norm ? "bn1" : "conv1";
  if (parts.size() > 5 && parts[0] == "encoder" && parts[1] == "stages" && parts[3] == "layers") {
    ours = text("layer", parse_int(parts[2]).value_or(0) + 1, ".", parts[4]);
    if (parts[5] == "shortcut")
      ours += norm ? ".downsample.1" : ".downsample.0";
    else if (parts.size() > 6)
      ours += text(norm ? ".bn" : ".conv", parse_int(parts[6]).value_or(0) + 1);
  }
  return ours.empty() ? name : name.substr(0, body) + ours + "." + parts.back();
}

std::string authors_name(const std::string& given) {
  std::string name = given;
  for (const auto& [old, by] : kBeginnings)
    if (name.starts_with(old)) name = replaced(name, 0, old, by);
  if (name.starts_with(kBody)) return torchvision_name(name, kBody.size());
  if (!name.starts_with("transformer.")) return name;
  for (const auto& [old, by] : kParts) {
    const size_t at = name.find(old);
    if (at == std::string::npos) continue;
    name = replaced(name, at, old, by);
    if (old == ".final_layer_norm.")
      name.insert(at + by.size(), name.starts_with("transformer.encoder.") ? "2." : "3.");
  }
  return name;
}

}  // namespace

bool is_transformers_detr(const std::string& name) {
  return name == "model.query_position_embeddings.weight";
}

NamedTensors detr_of_transformers(const NamedTensors& tensors) {
  static const std::string query = ".q_proj.", key = ".k_proj.", value = ".v_proj.";
  const std::map<std::string, torch::Tensor> by_name(tensors.begin(), tensors.end());
  NamedTensors out;
  for (const auto& [name, tensor] : tensors) {
    if (name.find(key) != std::string::npos || name.find(value) != std::string::npos) continue;
    const size_t at = name.find(query);
    if (at == std::string::npos) {
      out.emplace_back(authors_name(name), tensor);
      continue;
    }
    const std::string before = name.substr(0, at), kind = name.substr(at + query.size());
    const auto k = by_name.find(before + key + kind), v = by_name.find(before + value + kind);
    if (k == by_name.end() || v == by_name.end())
      fail("'", before, "' has a q_proj and no ", k == by_name.end() ? "k_proj" : "v_proj");
    out.emplace_back(authors_name(before + ".in_proj_" + kind), torch::cat({tensor, k->second, v->second}));
  }
  return out;
}

namespace {

std::string transformers_name(std::string name) {
  const bool encoder = name.starts_with("transformer.encoder."),
             layer = name.find(".layers.") != std::string::npos;
  if (name.starts_with("transformer.") && layer)
    for (const auto& [theirs, authors] : kParts) {
      const std::string last = text(".norm", encoder ? 2 : 3, ".");
      const bool is_last = theirs == ".final_layer_norm.";
      const std::string_view old = is_last ? std::string_view(last) : authors;
      const size_t at = name.find(old);
      // The second norm of an encoder's layer is its last one.
      if (at == std::string::npos || (encoder && theirs == ".encoder_attn_layer_norm.")) continue;
      name.replace(at, old.size(), theirs);
      break;
    }
  for (const auto& [theirs, authors] : kBeginnings)
    if (name.starts_with(authors)) return name.replace(0, authors.size(), theirs);
  return name;
}

}  // namespace

NamedTensors transformers_of_detr(const NamedTensors& tensors) {
  NamedTensors out = split_projections(tensors, ".in_proj_", {".q_proj.", ".k_proj.", ".v_proj."});
  for (auto& [name, tensor] : out) name = transformers_name(name);
  return out;
}

}  // namespace tessera::train
