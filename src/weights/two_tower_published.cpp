#include "weights/two_tower_published.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/error.h"
#include "models/base/family.h"
#include "weights/name_tables.h"
#include "weights/stored_tensors.h"

namespace tessera::models {
namespace {

using Shape = std::vector<int64_t>;

// Initial value of LayerScale if a file has it, as in OpenCLIP's configurations.
constexpr double kLayerScale = 1e-4;

// Returns the name of a tensor in the image tower.
template <class... Parts>
std::string trunk(const Parts&... parts) {
  return text(kImageTower, parts...);
}

// Our tensors with the shapes of the published ones.
class Shapes {
 public:
  Shapes(const std::vector<train::NamePlace>& places, const PublishedShapes& tensors) {
    std::vector<TensorView> views;
    for (const auto& [name, shape] : tensors) views.push_back({name, DType::f32, shape, {}});
    const train::StoredTensors stored(views, places, "");
    for (const train::StoredTensor& tensor : stored.tensors()) shapes_[tensor.name()] = tensor.shape;
  }

  bool has(const std::string& name) const { return shapes_.contains(name); }
  // Returns one extent of a tensor. Throws Error if the file lacks it.
  int64_t extent(const std::string& name, size_t axis) const {
    const auto found = shapes_.find(name);
    if (found == shapes_.end()) fail("the file holds neither ", name, " nor its parts");
    if (axis >= found->second.size() || found->second[axis] < 1)
      fail("tensor ", name, " has ", found->second.size(), " axes, must have more than ", axis);
    return found->second[axis];
  }
  int64_t numel(const std::string& name) const {
    int64_t count = 1;
    if (!has(name)) fail("the file holds neither ", name, " nor its parts");
    for (const int64_t extent : shapes_.at(name)) count *= extent;
    return count;
  }
  // Returns the length of a list of modules.
  int64_t count(const std::string& prefix) const {
    std::set<std::string> numbers;
    for (auto found = shapes_.lower_bound(prefix); found != shapes_.end() && found->first.starts_with(prefix);
         ++found)
      numbers.insert(
          found->first.substr(prefix.size(), found->first.find('.', prefix.size()) - prefix.size()));
    return std::ssize(numbers);
  }

 private:
  std::map<std::string, Shape> shapes_;
};

// Published Transformers of these widths have 16 heads, all others have 64 channels per head.
int64_t usual_heads(int64_t width) {
  for (const int64_t wide : {1152, 1280, 1408, 1664})
    if (width == wide) return 16;
  return std::max<int64_t>(1, width / 64);
}
int64_t heads_of(int64_t hint, int64_t width) { return hint > 0 ? hint : usual_heads(width); }

int64_t side_of(int64_t cells, const char* what) {
  const auto side = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(cells))));
  if (side < 1 || side * side != cells) fail(what, " are of ", cells, " cells, must be a square grid");
  return side;
}

double eps_of(double hint, bool siglip) { return hint > 0 ? hint : siglip ? 1e-6 : 1e-5; }

// Returns one side, or [rows, columns] if the configuration sets them.
Value image_size_of(const TowerHints& hints, int64_t cells, int64_t patch) {
  constexpr const char* kWhat = "the image tower's positions";
  if (hints.image_rows == hints.image_columns) return Value(side_of(cells, kWhat) * patch);
  if (hints.image_rows / patch * (hints.image_columns / patch) != cells)
    fail(kWhat, " are of ", cells, " cells, must be those of ", hints.image_rows, " x ", hints.image_columns,
         " pixels in patches of ", patch);
  return Value(Value::Array{hints.image_rows, hints.image_columns});
}

// True if the image size is not a multiple of the patch: the published convolution drops the border.
bool drops_border(const TowerHints& hints, int64_t cells, int64_t patch) {
  const int64_t side = hints.image_side / patch;
  return hints.image_side % patch != 0 && side * side == cells;
}

Activation activation_of(Activation told, bool siglip) {
  return told != Activation::published ? told : siglip ? Activation::gelu_tanh : Activation::gelu;
}

Value vit_settings(const Shapes& shapes, const TowerHints& hints, bool siglip, bool coca) {
  const int64_t dim = shapes.extent(trunk("patch_embed.proj.weight"), 0),
                patch = shapes.extent(trunk("patch_embed.proj.weight"), 2);
  const bool class_token = shapes.has(trunk("cls_token"));
  const int64_t cells = shapes.numel(trunk("pos_embed")) / dim - (class_token ? 1 : 0);
  Value settings = table({{"image_size", image_size_of(hints, cells, patch)},
                          {"patch_size", patch},
                          {"dim", dim},
                          {"depth", shapes.count(trunk("blocks."))},
                          {"heads", heads_of(hints.image_heads, dim)},
                          {"mlp_ratio", mlp_ratio(shapes.extent(trunk("blocks.0.mlp.fc1.weight"), 0), dim)},
                          {"mlp", name_of(activation_of(hints.image_activation, siglip))},
                          {"drop_border", drops_border(hints, cells, patch)},
                          {"init_values", shapes.has(trunk("blocks.0.ls1.gamma")) ? kLayerScale : 0.0},
                          {"norm_eps", eps_of(hints.image_eps, siglip)},
                          {"pre_norm", shapes.has(trunk("norm_pre.weight"))},
                          {"patch_bias", shapes.has(trunk("patch_embed.proj.bias"))},
                          {"class_token", class_token},
                          {"global_pool", siglip                                  ? "map"
                                          : class_token && !hints.mean_of_patches ? "token"
                                                                                  : "avg"},
                          {"fc_norm", !hints.mean_of_patches  ? "auto"
                                      : hints.norm_after_mean ? "on"
                                                              : "off"},
                          {"classes", 0}});
  if (coca) settings.set("final_norm", false);
  if (const int64_t channels = shapes.extent(trunk("patch_embed.proj.weight"), 1); channels != 3)
    settings.set("in_channels", channels);
  return settings;
}

Value resnet_settings(const Shapes& shapes, const TowerHints& hints) {
  Value::Array dims, depths;
  for (int64_t stage = 1; shapes.has(trunk("layer", stage, ".0.conv3.weight")); ++stage) {
    const std::string layer = trunk("layer", stage, ".");
    dims.emplace_back(shapes.extent(layer + "0.conv3.weight", 0));
    depths.emplace_back(shapes.count(layer));
  }
  const int64_t width = shapes.extent(trunk("attnpool.positional_embedding"), 1);
  const int64_t cells = shapes.extent(trunk("attnpool.positional_embedding"), 0) - 1;
  return table({{"dims", dims},
                {"depths", depths},
                {"image_size", 32 * side_of(cells, "the image tower's positions")},
                {"heads", heads_of(hints.image_heads, width)},
                {"embed_dim", shapes.extent(trunk("attnpool.c_proj.weight"), 0)},
                {"classes", 0}});
}

TextTowerConfig text_config(const Shapes& shapes, const TowerHints& hints, bool with_siglip, bool coca) {
  const bool siglip = with_siglip && !hints.text_told;
  TextTowerConfig text;
  text.vocab_size = shapes.extent("text.token_embedding.weight", 0);
  text.dim = shapes.extent("text.token_embedding.weight", 1);
  text.context_length = shapes.extent("text.positional_embedding", 0) - (coca ? 1 : 0);
  text.depth = shapes.count("text.blocks.");
  text.heads = heads_of(hints.text_heads, text.dim);
  text.hidden = shapes.extent("text.blocks.0.mlp.fc1.weight", 0);
  text.mlp = parse_enum<TextMlp>(name_of(activation_of(hints.text_activation, siglip)), "the text tower");
  text.init_values = shapes.has("text.blocks.0.ls1.gamma") ? kLayerScale : 0;
  text.norm_eps = eps_of(hints.text_eps, siglip);
  text.pad_token = hints.pad_token;
  text.causal = !siglip && !hints.text_sees_all;
  text.pool = coca                             ? TextPool::class_token
              : hints.text_read_first          ? TextPool::first
              : siglip || hints.text_read_last ? TextPool::last
              : hints.end_token >= 0           ? TextPool::end_token
                                               : TextPool::largest;
  text.end_token = hints.end_token >= 0 ? hints.end_token : text.vocab_size - 1;
  text.embed_dim =
      shapes.has("text.text_projection.weight") ? shapes.extent("text.text_projection.weight", 0) : 0;
  text.projection_bias = shapes.has("text.text_projection.bias");
  return text;
}

}  // namespace

double mlp_ratio(int64_t hidden, int64_t dim) {
  return hidden % dim == 0 ? static_cast<double>(hidden / dim)
                           : (static_cast<double>(hidden) + 0.5) / static_cast<double>(dim);
}

const train::NameTable* tower_table(const std::vector<std::string>& names) {
  const auto has = [&](std::string_view beginning) {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return name.starts_with(beginning); });
  };
  const bool open_clip = has("visual.") && (has("token_embedding.") || has("text.token_embedding."));
  if (!open_clip && !(has("vision_model.") && has("text_model."))) return nullptr;
  for (const train::NameTable& table : train::name_tables())
    for (const char* family : {"siglip", "clip", "clip_resnet", "coca"})
      if (table.family() == family && table.reads(names)) return &table;
  return nullptr;
}

PublishedTowers describe_towers(const PublishedShapes& tensors, const TowerHints& hints) {
  std::vector<std::string> names;
  for (const auto& [name, shape] : tensors) names.push_back(name);
  const train::NameTable* const table = tower_table(names);
  check(table, "these are no tensors of images and texts");
  const bool resnet = table->family() == "clip_resnet";
  PublishedTowers out;
  out.family = resnet ? "resnet" : "vit";
  out.places = table->ours(names);
  if (hints.mean_of_patches && hints.norm_after_mean)
    for (train::NamePlace& place : out.places)
      if (const std::string norm = trunk("norm."); place.ours.starts_with(norm))
        place.ours = trunk("fc_norm.") + place.ours.substr(norm.size());
  const Shapes shapes(out.places, tensors);
  out.coca = shapes.has("text.cls_emb");
  out.siglip = shapes.has(trunk("attn_pool.latent"));
  const Value given =
      resnet ? resnet_settings(shapes, hints) : vit_settings(shapes, hints, out.siglip, out.coca);
  out.image = resolve_model(resnet ? "resnet50_clip" : "vit", given).settings;
  if (const Value* drops = out.image.find("drop_border"); drops && drops->is_bool() && drops->as_bool())
    out.image_side = hints.image_side;
  const TextTowerConfig text = text_config(shapes, hints, out.siglip, out.coca);
  const int64_t width = resnet ? shapes.extent(trunk("attnpool.c_proj.weight"), 0)
                               : shapes.extent(trunk("patch_embed.proj.weight"), 0);
  out.towers = {.text = text,
                .image_width = width,
                .embed_dim = text.embed_dim > 0 ? text.embed_dim : text.dim,
                .image_projection = shapes.has("visual.head.proj.weight"),
                .text_projection = text.embed_dim > 0,
                .logit_bias = shapes.has("logit_bias")};
  if (!out.coca) return out;
  if (hints.mean_of_patches)
    fail_usage("CoCa's image is the first query of its pooler, pool_type must be \"tok\"");
  if (text.init_values > 0) fail_usage("CoCa's text tower has no LayerScale here, the file's has");
  out.captioner = {.text = text,
                   .image_width = width,
                   .embed_dim = text.embed_dim,
                   .queries = shapes.extent("visual.attn_pool.query", 0),
                   .pooler_heads = hints.pooler_heads > 0 ? hints.pooler_heads : 8,
                   .decoder_depth = shapes.count("text_decoder.blocks."),
                   .decoder_heads = heads_of(hints.decoder_heads, text.dim),
                   .decoder_hidden = shapes.extent("text_decoder.blocks.0.mlp.fc1.weight", 0)};
  return out;
}

}  // namespace tessera::models
