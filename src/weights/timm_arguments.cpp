#include "weights/hub_config.h"

#include <algorithm>
#include <array>
#include <functional>

#include "core/error.h"
#include "core/text.h"

namespace tessera::train {
namespace {

// null as a constructor's argument, as read_published_json() writes it.
const Value kNone("none");

std::string shown(const Value& value) { return value.is_string() ? value.as_string() : toml_text(value); }

// Returns our value of an argument; none if there is no equivalent.
using Convert = std::optional<Value> (*)(const Value& given);

std::optional<Value> same(const Value& given) { return given; }
// A number for all axes, if a list repeats one.
std::optional<Value> side(const Value& given) {
  if (!given.is_array() || given.as_array().empty()) return given;
  const Value::Array& list = given.as_array();
  return std::all_of(list.begin(), list.end(), [&](const Value& one) { return one == list[0]; }) ? list[0]
                                                                                                 : given;
}
std::optional<Value> zero_if_none(const Value& given) { return given == kNone ? Value(0.0) : given; }
std::optional<Value> on_off(const Value& given) {
  if (given == kNone) return Value("auto");
  return given.is_bool() ? std::optional<Value>(given.as_bool() ? "on" : "off") : std::nullopt;
}

// Words of theirs and ours.
using Words = std::initializer_list<std::pair<const char*, const char*>>;
std::optional<Value> word(const Value& given, Words words) {
  for (const auto& [theirs, ours] : words)
    if (given == Value(theirs)) return Value(ours);
  return std::nullopt;
}
std::optional<Value> vit_activation(const Value& given) {
  return word(given, {{"none", "gelu"},
                      {"gelu", "gelu"},
                      {"gelu_tanh", "gelu_tanh"},
                      {"quick_gelu", "quick_gelu"},
                      {"relu", "relu"},
                      {"silu", "silu"},
                      {"swish", "silu"}});
}
std::optional<Value> vit_norm(const Value& given) {
  return word(given, {{"none", "layer"}, {"layernorm", "layer"}, {"rmsnorm", "rms"}});
}
std::optional<Value> vit_pool(const Value& given) {
  return word(given,
              {{"token", "token"}, {"avg", "avg"}, {"avgmax", "avgmax"}, {"max", "max"}, {"map", "map"}});
}
std::optional<Value> vit_positions(const Value& given) {
  return word(given, {{"", "learned"}, {"none", "none"}, {"learn", "learned"}});
}
std::optional<Value> eva_pool(const Value& given) {
  return word(given, {{"avg", "avg"}, {"token", "token"}});
}
std::optional<Value> eva_mlp(const Value& given) {
  return given.is_bool() ? std::optional<Value>(given.as_bool() ? "swiglu" : "gelu") : std::nullopt;
}
// Rotary positions that are scaled to the grid of another size; none means unscaled.
std::optional<Value> grid(const Value& given) {
  return given == kNone ? std::optional<Value>(0) : side(given);
}
// Swin: the first width; the others must double from stage to stage.
std::optional<Value> doubled(const Value& given) {
  if (!given.is_int()) return std::nullopt;
  Value::Array dims;
  for (int64_t stage = 0; stage < 4; ++stage) dims.emplace_back(given.as_int() << stage);
  return Value(dims);
}
// Twins: no windows means global attention throughout.
std::optional<Value> windows(const Value& given) {
  return given == kNone ? Value(Value::Array{0, 0, 0, 0}) : given;
}

// Only one value is possible.
template <const char* kOnly>
std::optional<Value> only(const Value& given) {
  return shown(*side(given)) == kOnly || given == kNone ? std::optional<Value>(Value()) : std::nullopt;
}
constexpr char kAvg[] = "avg", kGelu[] = "gelu", kRelu[] = "relu", kTrue[] = "true", kFalse[] = "false",
               kEmpty[] = "", kPatch[] = "patch", kLayerNorm[] = "layernorm", kBatchNorm[] = "batchnorm2d",
               kSeven[] = "7", kZero[] = "0", kOne[] = "1", kEva[] = "eva", kCat[] = "cat", k32[] = "32",
               k64[] = "64", kEps[] = "1e-06";

struct Row {
  const char *family, *theirs;
  const char* ours;  // "" = none: the argument is only checked
  Convert convert = same;
};

constexpr std::array kRows = {
    Row{"vit", "img_size", "image_size", side},
    Row{"vit", "patch_size", "patch_size", side},
    Row{"vit", "in_chans", "in_channels"},
    Row{"vit", "embed_dim", "dim"},
    Row{"vit", "depth", "depth"},
    Row{"vit", "num_heads", "heads"},
    Row{"vit", "mlp_ratio", "mlp_ratio"},
    Row{"vit", "qkv_bias", "qkv_bias"},
    Row{"vit", "qk_norm", "qk_norm"},
    Row{"vit", "proj_bias", "proj_bias"},
    Row{"vit", "init_values", "init_values", zero_if_none},
    Row{"vit", "class_token", "class_token"},
    Row{"vit", "no_embed_class", "no_embed_class"},
    Row{"vit", "reg_tokens", "reg_tokens"},
    Row{"vit", "pre_norm", "pre_norm"},
    Row{"vit", "final_norm", "final_norm"},
    Row{"vit", "fc_norm", "fc_norm", on_off},
    Row{"vit", "global_pool", "global_pool", vit_pool},
    Row{"vit", "act_layer", "mlp", vit_activation},
    Row{"vit", "norm_layer", "norm", vit_norm},
    Row{"vit", "pos_embed", "positions", vit_positions},
    Row{"vit", "scale_attn_norm", "", only<kFalse>},
    Row{"vit", "scale_mlp_norm", "", only<kFalse>},
    Row{"swin", "img_size", "image_size", side},
    Row{"swin", "patch_size", "patch_size", side},
    Row{"swin", "in_chans", "in_channels"},
    Row{"swin", "embed_dim", "dims", doubled},
    Row{"swin", "depths", "depths"},
    Row{"swin", "num_heads", "heads"},
    Row{"swin", "window_size", "window_size", side},
    Row{"swin", "mlp_ratio", "mlp_ratio"},
    Row{"swin", "qkv_bias", "qkv_bias"},
    Row{"swin", "global_pool", "", only<kAvg>},
    Row{"swin", "act_layer", "", only<kGelu>},
    Row{"swin", "always_partition", "", only<kFalse>},
    Row{"swin", "head_dim", "", only<kEmpty>},
    Row{"twins_svt", "img_size", "image_size", side},
    Row{"twins_svt", "patch_size", "patch_size"},
    Row{"twins_svt", "in_chans", "in_channels"},
    Row{"twins_svt", "embed_dims", "dims"},
    Row{"twins_svt", "num_heads", "heads"},
    Row{"twins_svt", "mlp_ratios", "mlp_ratios"},
    Row{"twins_svt", "depths", "depths"},
    Row{"twins_svt", "sr_ratios", "sub_sampling"},
    Row{"twins_svt", "wss", "windows", windows},
    Row{"twins_svt", "global_pool", "", only<kAvg>},
    Row{"eva02", "img_size", "image_size", side},
    Row{"eva02", "patch_size", "patch_size", side},
    Row{"eva02", "in_chans", "in_channels"},
    Row{"eva02", "embed_dim", "dim"},
    Row{"eva02", "depth", "depth"},
    Row{"eva02", "num_heads", "heads"},
    Row{"eva02", "mlp_ratio", "mlp_ratio"},
    Row{"eva02", "swiglu_mlp", "mlp", eva_mlp},
    Row{"eva02", "qkv_bias", "qkv_bias"},
    Row{"eva02", "qkv_fused", "qkv_fused"},
    Row{"eva02", "qk_norm", "qk_norm"},
    Row{"eva02", "scale_mlp", "scale_mlp"},
    Row{"eva02", "scale_attn_inner", "scale_attn_inner"},
    Row{"eva02", "init_values", "init_values", zero_if_none},
    Row{"eva02", "class_token", "class_token"},
    Row{"eva02", "global_pool", "global_pool", eva_pool},
    Row{"eva02", "use_abs_pos_emb", "positions"},
    Row{"eva02", "use_rot_pos_emb", "rotary"},
    Row{"eva02", "ref_feat_shape", "reference_grid", grid},
    Row{"eva02", "rope_temperature", "rope_theta"},
    Row{"eva02", "rope_type", "", only<kCat>},
    Row{"eva02", "attn_type", "", only<kEva>},
    Row{"eva02", "num_reg_tokens", "", only<kZero>},
    Row{"eva02", "no_embed_class", "", only<kFalse>},
    Row{"eva02", "use_post_norm", "", only<kFalse>},
    Row{"poolformer", "in_chans", "in_channels"},
    Row{"poolformer", "depths", "depths"},
    Row{"poolformer", "dims", "dims"},
    Row{"poolformer", "global_pool", "", only<kAvg>},
    Row{"resnet", "in_chans", "in_channels"},
    Row{"resnet", "output_stride", "output_stride"},
    Row{"resnet", "img_size", "image_size", side},
    Row{"resnet", "global_pool", "", only<kAvg>},
    Row{"resnet", "act_layer", "", only<kRelu>},
    Row{"resnet", "norm_layer", "", only<kBatchNorm>},
    Row{"resnet", "aa_layer", "", only<kEmpty>},
    Row{"resnet", "cardinality", "", only<kOne>},
    Row{"resnet", "base_width", "", only<k64>},
    Row{"resnet", "stem_width", "", only<k64>},
    Row{"resnet", "stem_type", "", only<kEmpty>},
    Row{"resnet", "replace_stem_pool", "", only<kFalse>},
    Row{"resnet", "block_reduce_first", "", only<kOne>},
    Row{"resnet", "down_kernel_size", "", only<kOne>},
    Row{"resnet", "avg_down", "", only<kFalse>},
    Row{"convnext", "in_chans", "in_channels"},
    Row{"convnext", "depths", "depths"},
    Row{"convnext", "dims", "dims"},
    Row{"convnext", "patch_size", "patch_size"},
    Row{"convnext", "ls_init_value", "init_values", zero_if_none},
    Row{"convnext", "use_grn", "response_norm"},
    Row{"convnext", "global_pool", "", only<kAvg>},
    Row{"convnext", "output_stride", "", only<k32>},
    Row{"convnext", "kernel_sizes", "", only<kSeven>},
    Row{"convnext", "stem_type", "", only<kPatch>},
    Row{"convnext", "head_norm_first", "", only<kFalse>},
    Row{"convnext", "head_hidden_size", "", only<kEmpty>},
    Row{"convnext", "conv_bias", "", only<kTrue>},
    Row{"convnext", "act_layer", "", only<kGelu>},
    Row{"convnext", "norm_layer", "", only<kLayerNorm>},
    Row{"convnext", "norm_eps", "", only<kEps>},
};

// Arguments that affect only training or saving, or nothing at all. The number of classes follows from the
// head's tensors.
constexpr std::array kUnusedTimmKeys = {
    "num_classes", "drop_rate",       "drop_path_rate",   "drop_block_rate", "pos_drop_rate",
    "device",      "attn_drop_rate",  "proj_drop_rate",   "patch_drop_rate", "weight_init",
    "fix_init",    "head_init_scale", "zero_init_last",   "dtype",           "conv_mlp",
    "scriptable",  "exportable",      "dynamic_img_size", "strict_img_size", "pretrained_strict",
};

}  // namespace

Value settings_of_timm(const std::string& family, const Value& arguments, const std::string& where) {
  Value settings{Value::Table{}};
  for (const auto& [name, value] : arguments.as_table()) {
    if (std::find(kUnusedTimmKeys.begin(), kUnusedTimmKeys.end(), name) != kUnusedTimmKeys.end()) continue;
    const auto* const row = std::find_if(kRows.begin(), kRows.end(), [&, &key = name](const Row& one) {
      return family == one.family && key == one.theirs;
    });
    const std::string given = text(where, ": model_args.", printable(name), " is ", printable(shown(value)));
    if (row == kRows.end())
      fail_usage(given, ": family ", family, " has no such setting, so that other numbers would come out");
    const std::optional<Value> ours = row->convert(value);
    if (!ours) fail_usage(given, ", which family ", family, " cannot compute");
    const std::string key = row->ours;
    if (!key.empty() && *ours != kNone) settings.set(key, *ours);
  }
  return settings;
}

}  // namespace tessera::train
