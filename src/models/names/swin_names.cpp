#include "models/names/swin_names.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "core/text.h"

namespace tessera::models {
namespace {

// "blocks.1.<old>.weight" with the new name in the place of the old, for the first of the pairs that is there.
std::string with_parts(std::string name, std::span<const std::pair<const char*, const char*>> pairs) {
  for (const auto& [old, fresh] : pairs)
    if (const size_t at = name.find(old); at != std::string::npos)
      return name.replace(at, std::string_view(old).size(), fresh);
  return name;
}

// "2.downsample.…" of a form that merges at the end of a stage as "3.downsample.…"; other parts as they are.
std::string merged_at_the_start(const std::string& part) {
  const size_t dot = part.find('.');
  const auto stage = parse_int(std::string_view(part).substr(0, dot));
  if (!stage || dot == std::string::npos || !part.substr(dot).starts_with(".downsample.")) return part;
  return std::to_string(*stage + 1) + part.substr(dot);
}

// mmseg's and mmdet's names.
std::string from_mmseg(const std::string& published) {
  static constexpr std::pair<const char*, const char*> parts[] = {
      {".attn.w_msa.", ".attn."}, {".ffn.layers.0.0.", ".mlp.fc1."}, {".ffn.layers.1.", ".mlp.fc2."}};
  return "layers." + with_parts(merged_at_the_start(published.substr(7)), parts);
}

// transformers' names; q, k and v are one tensor already.
std::string from_transformers(const std::string& published) {
  static constexpr std::pair<const char*, const char*> parts[] = {
      {".layernorm_before.", ".norm1."},     {".layernorm_after.", ".norm2."},
      {".attention.self.", ".attn."},        {".attention.output.dense.", ".attn.proj."},
      {".intermediate.dense.", ".mlp.fc1."}, {".output.dense.", ".mlp.fc2."}};
  return "layers." + with_parts(merged_at_the_start(published.substr(15)), parts);
}

}  // namespace

std::string timm_swin_name(const std::string& published) {
  static constexpr std::pair<const char*, const char*> first[] = {
      {"embeddings.patch_embeddings.projection.", "patch_embed.proj."},
      {"embeddings.norm.", "patch_embed.norm."},
      {"patch_embed.projection.", "patch_embed.proj."}};
  if (published.ends_with(".relative_position_index") || published.ends_with(".attn_mask")) return "";
  if (published == "head.weight" || published == "head.bias") return "head.fc" + published.substr(4);
  if (published.starts_with("stages.")) return from_mmseg(published);
  if (published.starts_with("encoder.layers.")) return from_transformers(published);
  if (published.starts_with("hidden_states_norms.stage")) {  // counted from 1
    const size_t number = std::string_view("hidden_states_norms.stage").size(),
                 dot = published.find('.', number);
    const auto stage = parse_int(published.substr(number, dot - number));
    if (stage && dot != std::string::npos) return "norm" + std::to_string(*stage - 1) + published.substr(dot);
  }
  return with_parts(published, first);
}

void upgrade_swin_names(std::vector<std::string>& names) {
  static const std::string layers = "layers.", merging = ".downsample.";
  const auto merges = [](const std::string& name) { return name.starts_with(layers + "0" + merging); };
  if (std::none_of(names.begin(), names.end(), merges)) return;
  for (std::string& name : names) {
    const size_t dot = name.find('.', layers.size());
    if (!name.starts_with(layers) || dot == std::string::npos ||
        name.compare(dot, merging.size(), merging) != 0)
      continue;
    if (const auto stage = parse_int(std::string_view(name).substr(layers.size(), dot - layers.size())))
      name = layers + std::to_string(*stage + 1) + name.substr(dot);
  }
}

}  // namespace tessera::models
