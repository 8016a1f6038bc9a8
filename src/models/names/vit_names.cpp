#include "models/names/vit_names.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace tessera::models {

std::string timm_vit_name(const std::string& published) {
  static const std::vector<std::pair<std::string, std::string>> whole = {
      {"class_token", "cls_token"},
      {"encoder.pos_embedding", "pos_embed"},
      {"encoder.ln.weight", "norm.weight"},
      {"encoder.ln.bias", "norm.bias"},
      {"heads.head.weight", "head.weight"},
      {"heads.head.bias", "head.bias"},
      {"conv_proj.weight", "patch_embed.proj.weight"},
      {"conv_proj.bias", "patch_embed.proj.bias"},
      {"cls_tokens.tokens", "cls_token"},
      {"pos_embed.embed", "pos_embed"},
      {"head.0.weight", "norm.weight"},
      {"head.0.bias", "norm.bias"},
      {"head.1.weight", "head.weight"},
      {"head.1.bias", "head.bias"},
      {"patch_embed.projection.weight", "patch_embed.proj.weight"},
      {"patch_embed.projection.bias", "patch_embed.proj.bias"},
      {"ln1.weight", "norm.weight"},
      {"ln1.bias", "norm.bias"},
      {"head.layers.head.weight", "head.weight"},
      {"head.layers.head.bias", "head.bias"},
  };
  for (const auto& [theirs, ours] : whole)
    if (published == theirs) return ours;
  if (published.ends_with(".relative_position_index")) return "";  // follows from the grid
  static const std::string stacks[] = {"encoder.layers.encoder_layer_", "layers.", "blocks."};
  const auto* found = std::find_if(std::begin(stacks), std::end(stacks),
                                   [&](const std::string& stack) { return published.starts_with(stack); });
  if (found == std::end(stacks)) return published;
  const std::string& block = *found;
  const size_t dot = published.find('.', block.size());
  if (dot == std::string::npos) return published;
  static const std::vector<std::pair<std::string, std::string>> inside = {
      {"ln_1.", "norm1."},
      {"ln_2.", "norm2."},
      {"mlp.0.", "mlp.fc1."},
      {"mlp.linear_1.", "mlp.fc1."},
      {"mlp.3.", "mlp.fc2."},
      {"mlp.linear_2.", "mlp.fc2."},
      {"self_attention.in_proj_", "attn.qkv."},
      {"self_attention.out_proj.", "attn.proj."},
      {"ln1.", "norm1."},
      {"ln2.", "norm2."},
      {"ffn.layers.0.0.", "mlp.fc1."},
      {"ffn.layers.1.", "mlp.fc2."},
      {"attn.gamma1.weight", "ls1.gamma"},
      {"ffn.gamma2.weight", "ls2.gamma"},
      {"attn.", "attn."},
      {"gamma_1", "ls1.gamma"},
      {"gamma_2", "ls2.gamma"},
  };
  const std::string rest = published.substr(dot + 1);
  for (const auto& [theirs, ours] : inside)
    if (rest.starts_with(theirs))
      return "blocks." + published.substr(block.size(), dot - block.size()) + "." + ours +
             rest.substr(theirs.size());
  return published;
}

}  // namespace tessera::models
