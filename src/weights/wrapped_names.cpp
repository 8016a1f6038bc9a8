#include "weights/name_tables.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "core/text.h"

namespace tessera::train {
namespace {

// The first layer, under its published names in all families.
constexpr std::array kFirstLayers = {"visual.trunk.patch_embed.proj.weight",
                                     "visual.conv1.weight",
                                     "visual.layer1.0.conv1.weight",
                                     "vision_model.embeddings.patch_embedding.weight",
                                     "x_embedder.proj.weight",
                                     "encoder.conv_in.weight",
                                     "blocks.input.weight",
                                     "stem.0.weight",
                                     "stem.conv.weight",
                                     "stem1.0.weight",
                                     "preprocessor.patchifier.proj.weight",
                                     "features.0.0.weight",
                                     "downsample_layers.0.0.weight",
                                     "patch_embed.proj.weight",
                                     "patch_embed.projection.weight",
                                     "patch_embeds.0.proj.weight",
                                     "conv_proj.weight",
                                     "vit.embeddings.patch_embeddings.projection.weight",
                                     "deit.embeddings.patch_embeddings.projection.weight",
                                     "beit.embeddings.patch_embeddings.projection.weight",
                                     "data2vec_vision.embeddings.patch_embeddings.projection.weight",
                                     "swin.embeddings.patch_embeddings.projection.weight",
                                     "dinov2.embeddings.patch_embeddings.projection.weight",
                                     "dinov2_with_registers.embeddings.patch_embeddings.projection.weight",
                                     "ijepa.embeddings.patch_embeddings.projection.weight",
                                     "embeddings.patch_embeddings.projection.weight",
                                     "convnext.embeddings.patch_embeddings.weight",
                                     "convnextv2.embeddings.patch_embeddings.weight",
                                     "embeddings.patch_embeddings.weight",
                                     "resnet.embedder.embedder.convolution.weight",
                                     "embedder.embedder.convolution.weight",
                                     "layer1.0.conv1.weight"};
constexpr std::array kWrappers = {"model", "module",  "backbone",  "encoder",
                                  "net",   "network", "_orig_mod", "_fsdp_wrapped_module"};
constexpr std::array kHeads = {"head.",        "heads.",          "head_dist.", "neck.",
                               "decode_head.", "auxiliary_head.", "rpn_head.",  "roi_head."};

// Returns the prefix "model.backbone." of "model.backbone.patch_embed.proj.weight", none for other
// tensors.
std::optional<std::string> prefix_of(const std::string& name) {
  for (const std::string_view first : kFirstLayers) {
    if (!name.ends_with(first)) continue;
    const std::string prefix = name.substr(0, name.size() - first.size());
    if (prefix.empty()) return prefix;
    if (!prefix.ends_with('.')) return std::nullopt;
    for (const std::string& part : split(std::string_view(prefix).substr(0, prefix.size() - 1), '.'))
      if (std::find(kWrappers.begin(), kWrappers.end(), part) == kWrappers.end()) return std::nullopt;
    return prefix;
  }
  return std::nullopt;
}

// Returns a prefix of any words that all tensors have, "vit." of a module that holds its model as `vit`. Nothing for
// a few tensors, which may be a part of a model.
std::optional<std::string> prefix_of_all(const std::vector<std::string>& names) {
  constexpr size_t kFew = 4;
  if (names.size() < kFew) return std::nullopt;
  for (const std::string& name : names)
    for (const std::string_view first : kFirstLayers) {
      if (!name.ends_with(first)) continue;
      const std::string prefix = name.substr(0, name.size() - first.size());
      if (prefix.ends_with('.') && std::all_of(names.begin(), names.end(), [&](const std::string& one) {
            return one.starts_with(prefix);
          }))
        return prefix;
      break;
    }
  return std::nullopt;
}

// Returns "head.weight" if it follows any part of the prefix, since a head is next to its backbone.
std::optional<std::string> head_name(std::string_view name, std::string_view prefix) {
  while (true) {
    for (const std::string_view head : kHeads)
      if (name.starts_with(head)) return std::string(name);
    const size_t dot = prefix.find('.');
    if (dot == std::string_view::npos || !name.starts_with(prefix.substr(0, dot + 1))) return std::nullopt;
    name.remove_prefix(dot + 1);
    prefix.remove_prefix(dot + 1);
  }
}

}  // namespace

std::string without_wrappers(const std::string& name) {
  constexpr std::array kAnywhere = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"};
  std::vector<std::string> parts = split(name, '.');
  std::erase_if(parts, [&](const std::string& part) {
    return std::find(kAnywhere.begin(), kAnywhere.end(), part) != kAnywhere.end();
  });
  const auto first =
      std::find_if(parts.begin(), parts.end(), [](const std::string& part) { return part != "module"; });
  return join(std::vector<std::string>(first, parts.end()), ".");
}

UnwrappedNames unwrap_names(const std::vector<std::string>& given) {
  std::vector<std::string> plain;
  for (const std::string& name : given) plain.push_back(without_wrappers(name));
  const auto shortest = [](const std::vector<std::string>& names) {
    std::optional<std::string> prefix;
    for (const std::string& name : names)
      if (const auto found = prefix_of(name); found && (!prefix || found->size() < prefix->size()))
        prefix = found;
    return prefix;
  };
  // The first layer may itself be inside a wrapper.
  const std::optional<std::string> known = shortest(given), own = known ? known : prefix_of_all(given),
                                   prefix = own ? own : shortest(plain);
  UnwrappedNames out{own ? given : plain, prefix.value_or(""), {}};
  for (size_t i = 0; i < out.names.size(); ++i) {
    std::string& name = out.names[i];
    if (name.starts_with(out.prefix)) {
      name.erase(0, out.prefix.size());
    } else if (const auto head = head_name(name, out.prefix)) {
      name = *head;
    } else {
      out.beside.push_back(given[i]);
      name.clear();
    }
    name = without_wrappers(name);
  }
  return out;
}

}  // namespace tessera::train
