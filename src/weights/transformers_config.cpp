// The config.json of transformers' image classifiers and of their backbones.
#include <algorithm>
#include <array>
#include <map>

#include "core/error.h"
#include "core/published_config.h"
#include "core/text.h"
#include "models/base/family.h"
#include "weights/hub_config.h"
#include "weights/two_tower_published.h"

namespace tessera::train {
namespace {

// The keys of all classes. Their defaults differ, see image_kinds().
struct ImageConfig {
  Value architectures = {}, id2label = {}, image_size = 224, patch_size = 16;
  std::string problem_type = "", hidden_act = "gelu", layer_type = "bottleneck";
  int64_t num_channels = 3, hidden_size = 768, num_hidden_layers = 12, num_attention_heads = 12;
  int64_t num_register_tokens = 4;
  int64_t intermediate_size = 3072, embed_dim = 96, window_size = 7, embedding_size = 64;
  std::vector<int64_t> depths = {}, num_heads = {3, 6, 12, 24}, hidden_sizes = {};
  double layer_norm_eps = 1e-12, mlp_ratio = 4, layer_scale_init_value = 0.1, layerscale_value = 1;
  bool qkv_bias = true, use_absolute_embeddings = false, use_absolute_position_embeddings = false;
  bool use_relative_position_bias = false, use_shared_relative_position_bias = false;
  bool use_mean_pooling = true, downsample_in_first_stage = false, downsample_in_bottleneck = false;
  bool use_swiglu_ffn = false, use_layer_scale = true;
  int64_t pool_size = 3;
  Value patch_sizes = {}, strides = {}, padding = {};
  bool has_head = false;  // by the class, no key

  template <class V>
  void visit(V& v) {
    v("architectures", architectures, "class that wrote the file");
    v("id2label", id2label, "names of classes by number");
    v("problem_type", problem_type, "one class an image, or several");
    v("image_size", image_size, "side in pixels");
    v("patch_size", patch_size, "side in pixels");
    v("num_channels", num_channels, between(1, 1024), "channels");
    v("hidden_size", hidden_size, between(1, 65536), "width of a token");
    v("num_hidden_layers", num_hidden_layers, between(1, 1024), "blocks");
    v("num_attention_heads", num_attention_heads, between(1, 1024), "heads");
    v("intermediate_size", intermediate_size, between(1, 1 << 20), "hidden width of the MLP");
    v("hidden_act", hidden_act, "activation");
    v("layer_norm_eps", layer_norm_eps, above(0), "of norms");
    v("qkv_bias", qkv_bias, "biases of q, k, v");
    v("embed_dim", embed_dim, between(1, 65536), "Swin: width of the first stage");
    v("num_heads", num_heads, between(1, 1024), "Swin: heads of a stage");
    v("window_size", window_size, between(1, 128), "Swin: cells along a side");
    v("mlp_ratio", mlp_ratio, above_to(0, 64), "Swin, DINOv2, PoolFormer: hidden width by width");
    v("use_absolute_embeddings", use_absolute_embeddings, "Swin: learned positions");
    v("depths", depths, between(1, 1024), "blocks of a stage");
    v("hidden_sizes", hidden_sizes, between(1, 65536), "widths of stages");
    v("layer_scale_init_value", layer_scale_init_value, "LayerScale, 0 = none");
    v("embedding_size", embedding_size, between(1, 65536), "ResNet: width of the stem");
    v("layer_type", layer_type, "ResNet: bottleneck or basic");
    v("downsample_in_first_stage", downsample_in_first_stage, "ResNet");
    v("downsample_in_bottleneck", downsample_in_bottleneck, "ResNet: stride of the first convolution");
    v("use_absolute_position_embeddings", use_absolute_position_embeddings, "BEiT: learned positions");
    v("use_relative_position_bias", use_relative_position_bias, "BEiT: a table in each block");
    v("use_shared_relative_position_bias", use_shared_relative_position_bias, "BEiT: one table");
    v("use_mean_pooling", use_mean_pooling, "BEiT: mean of patches instead of the class token");
    v("layerscale_value", layerscale_value, "DINOv2: first value of LayerScale");
    v("pool_size", pool_size, between(1, 31), "PoolFormer: side of the window");
    v("use_layer_scale", use_layer_scale, "PoolFormer");
    v("patch_sizes", patch_sizes, "PoolFormer: kernels between stages");
    v("strides", strides, "PoolFormer");
    v("padding", padding, "PoolFormer");
    v("use_swiglu_ffn", use_swiglu_ffn, "DINOv2: gated MLPs");
    v("num_register_tokens", num_register_tokens, between(0, 1024), "DINOv2 with registers");
  }
};

// Keys of training, of other heads, and those that repeat others.
// clang-format off
constexpr std::array kUnusedKeys = {
    "model_type", "label2id", "num_labels", "num_stages", "num_encoder_blocks", "stride", "num_layers",
    "stage_names", "out_features", "out_indices", "reshape_hidden_states", "transformers_version",
    "torch_dtype", "dtype", "_name_or_path", "_commit_hash", "initializer_range", "hidden_dropout_prob",
    "attention_probs_dropout_prob", "drop_path_rate", "encoder_stride", "path_norm", "pooler_act",
    "pooler_output_size", "use_mask_token", "mask_ratio", "norm_pix_loss", "decoder_num_attention_heads",
    "decoder_hidden_size", "decoder_num_hidden_layers", "decoder_intermediate_size", "apply_layernorm",
    "projection_dim", "attention_dropout", "initializer_factor", "vocab_size", "pool_scales",
    "use_auxiliary_head", "auxiliary_loss_weight", "auxiliary_channels", "auxiliary_num_convs",
    "auxiliary_concat_input", "semantic_loss_ignore_index", "add_fpn", "vision_use_head"};
// clang-format on

[[noreturn]] void refuse_key(const std::string& where, const char* key, const std::string& is,
                             const std::string& must) {
  fail_usage(where, ": ", key, " is ", printable(is), ", must be ", must);
}

// Returns a side, given as a number or as two equal ones.
int64_t square_side(const Value& given, const std::string& where, const char* key) {
  const bool pair =
      given.is_array() && given.as_array().size() == 2 && given.as_array()[0] == given.as_array()[1];
  const Value& side = pair ? given.as_array()[0] : given;
  if (!side.is_int() || side.as_int() < 1 || side.as_int() > 65536)
    refuse_key(where, key, toml_text(given), "the side of a square");
  return side.as_int();
}

void require_activation(const ImageConfig& config, const char* must, const std::string& where) {
  if (config.hidden_act != must) refuse_key(where, "hidden_act", config.hidden_act, must);
}

std::string mlp_form(const ImageConfig& config, const std::string& where) {
  static const std::map<std::string, std::string> names = {
      {"gelu", "gelu"},           {"gelu_python", "gelu"}, {"gelu_new", "gelu_tanh"},
      {"gelu_fast", "gelu_tanh"}, {"relu", "relu"},        {"gelu_pytorch_tanh", "gelu_tanh"},
      {"silu", "silu"},           {"swish", "silu"},       {"quick_gelu", "quick_gelu"}};
  const auto found = names.find(config.hidden_act);
  if (found == names.end())
    refuse_key(where, "hidden_act", config.hidden_act, "gelu, gelu_new, quick_gelu, relu or silu");
  return found->second;
}

Value vit_keys(const ImageConfig& config, const std::string& where) {
  return models::table({{"image_size", square_side(config.image_size, where, "image_size")},
                        {"patch_size", square_side(config.patch_size, where, "patch_size")},
                        {"in_channels", config.num_channels},
                        {"dim", config.hidden_size},
                        {"depth", config.num_hidden_layers},
                        {"heads", config.num_attention_heads},
                        {"mlp_ratio", models::mlp_ratio(config.intermediate_size, config.hidden_size)},
                        {"mlp", mlp_form(config, where)},
                        {"qkv_bias", config.qkv_bias},
                        {"norm_eps", config.layer_norm_eps}});
}

// The distillation token without a head of its own is a register with a position.
Value deit_keys(const ImageConfig& config, const std::string& where) {
  Value settings = vit_keys(config, where);
  settings.set("reg_tokens", 1);
  return settings;
}

Value distilled_keys(const ImageConfig& config, const std::string& where) {
  Value settings = vit_keys(config, where);
  settings.set("distilled", true);
  return settings;
}

Value beit_keys(const ImageConfig& config, const std::string& where) {
  Value settings = vit_keys(config, where);
  settings.set("qkv_bias", true);
  settings.set("positions", config.use_absolute_position_embeddings ? "learned" : "none");
  settings.set("relative_table", config.use_relative_position_bias);
  settings.set("shared_table", config.use_shared_relative_position_bias);
  settings.set("init_values", std::max(0.0, config.layer_scale_init_value));
  settings.set("global_pool", config.use_mean_pooling ? "avg" : "token");
  return settings;
}

// The head of the classifier reads the class token and the mean of the patches. Positions are resampled to the grid
// of an image.
Value dinov2_keys(const ImageConfig& config, const std::string& where) {
  ImageConfig sizes = config;
  sizes.intermediate_size = static_cast<int64_t>(static_cast<double>(config.hidden_size) * config.mlp_ratio);
  if (config.use_swiglu_ffn) sizes.intermediate_size = 2 * ((sizes.intermediate_size * 2 / 3 + 7) / 8 * 8);
  Value settings = vit_keys(sizes, where);
  if (config.use_swiglu_ffn) settings.set("mlp", "swiglu_packed");
  settings.set("init_values", config.layerscale_value > 0 ? config.layerscale_value : 1e-5);
  settings.set("global_pool", config.has_head ? "token_avg" : "token");
  settings.set("resample", "bicubic");
  return settings;
}

Value registers_keys(const ImageConfig& config, const std::string& where) {
  Value settings = dinov2_keys(config, where);
  settings.set("reg_tokens", config.num_register_tokens);
  settings.set("reg_positions", false);
  settings.set("resample", "antialias");
  return settings;
}

Value clip_keys(const ImageConfig& config, const std::string& where) {
  Value settings = vit_keys(config, where);
  settings.set("pre_norm", true);
  return settings;
}

Value siglip_keys(const ImageConfig& config, const std::string& where) {
  Value settings = vit_keys(config, where);
  settings.set("class_token", false);
  settings.set("global_pool", "map");
  return settings;
}

// The classifier of CLIP reads the mean of the patches without a norm.
Value clip_classifier_keys(const ImageConfig& config, const std::string& where) {
  Value settings = clip_keys(config, where);
  settings.set("global_pool", "avg");
  settings.set("final_norm", false);
  return settings;
}

// SigLIP and I-JEPA norm the patches before their mean, and have no class token.
Value mean_keys(const ImageConfig& config, const std::string& where) {
  Value settings = vit_keys(config, where);
  settings.set("class_token", false);
  settings.set("global_pool", "avg");
  settings.set("fc_norm", "off");
  return settings;
}

// transformers pads maps before windows are shifted, unless they consist of whole windows.
std::string swin_form(const ImageConfig& config, int64_t image, int64_t patch, const std::string& where) {
  bool whole = true, small = false;
  int64_t side = (image + patch - 1) / patch;
  for (size_t stage = 0; stage < config.depths.size(); ++stage, side = (side + 1) / 2) {
    whole = whole && (side % config.window_size == 0);
    small = small || side <= config.window_size;
  }
  if (!whole && small)
    refuse_key(where, "image_size", std::to_string(image),
               "of maps that are multiples of the window, or larger than it");
  return whole ? "timm" : "original";
}

Value swin_keys(const ImageConfig& config, const std::string& where) {
  require_activation(config, "gelu", where);
  const int64_t image = square_side(config.image_size, where, "image_size"),
                patch = square_side(config.patch_size, where, "patch_size");
  if (config.depths.size() > 8)
    refuse_key(where, "depths", counted(std::ssize(config.depths), "stage"), "up to 8");
  Value::Array dims;
  for (size_t stage = 0; stage < config.depths.size(); ++stage) dims.emplace_back(config.embed_dim << stage);
  return models::table({{"image_size", image},
                        {"patch_size", patch},
                        {"in_channels", config.num_channels},
                        {"dims", dims},
                        {"depths", Value::Array(config.depths.begin(), config.depths.end())},
                        {"heads", Value::Array(config.num_heads.begin(), config.num_heads.end())},
                        {"window_size", config.window_size},
                        {"mlp_ratio", config.mlp_ratio},
                        {"qkv_bias", config.qkv_bias},
                        {"block_norm_eps", config.layer_norm_eps},
                        {"last_norm_eps", config.layer_norm_eps},
                        {"positions", config.use_absolute_embeddings ? "learned" : "none"},
                        {"form", swin_form(config, image, patch, where)}});
}

Value stage_keys(const ImageConfig& config) {
  return models::table({{"in_channels", config.num_channels},
                        {"dims", Value::Array(config.hidden_sizes.begin(), config.hidden_sizes.end())},
                        {"depths", Value::Array(config.depths.begin(), config.depths.end())}});
}

// The key is the eps of the last norm; the others have 1e-6.
Value convnext_keys(const ImageConfig& config, const std::string& where) {
  require_activation(config, "gelu", where);
  Value settings = stage_keys(config);
  settings.set("patch_size", square_side(config.patch_size, where, "patch_size"));
  settings.set("init_values", std::max(0.0, config.layer_scale_init_value));
  settings.set("last_norm_eps", config.layer_norm_eps);
  return settings;
}

Value convnextv2_keys(const ImageConfig& config, const std::string& where) {
  Value settings = convnext_keys(config, where);
  settings.set("init_values", 0.0);
  settings.set("response_norm", true);
  return settings;
}

Value resnet_keys(const ImageConfig& config, const std::string& where) {
  require_activation(config, "relu", where);
  if (config.downsample_in_first_stage) refuse_key(where, "downsample_in_first_stage", "true", "false");
  const bool basic = config.layer_type == "basic";
  if (!basic && config.layer_type != "bottleneck")
    refuse_key(where, "layer_type", config.layer_type, "bottleneck or basic");
  Value settings = stage_keys(config);
  settings.set("block", config.layer_type);
  settings.set("stem_dim", config.embedding_size);
  settings.set("stride_first", config.downsample_in_bottleneck && !basic);
  return settings;
}

// The sizes of the convolutions between stages are those of the paper.
Value poolformer_keys(const ImageConfig& config, const std::string& where) {
  require_activation(config, "gelu", where);
  const auto usual = [&](const char* key, const Value& given, int64_t first, int64_t later) {
    Value::Array must = {first};
    must.resize(std::max<size_t>(1, config.depths.size()), later);
    const bool absent = given.is_table() && given.as_table().empty();
    if (!absent && given != Value(must)) refuse_key(where, key, toml_text(given), toml_text(Value(must)));
  };
  usual("patch_sizes", config.patch_sizes, 7, 3);
  usual("strides", config.strides, 4, 2);
  usual("padding", config.padding, 2, 1);
  Value settings = stage_keys(config);
  settings.set("mlp_ratio", config.mlp_ratio);
  settings.set("pool_size", config.pool_size);
  settings.set("init_values", config.use_layer_scale ? std::max(0.0, config.layer_scale_init_value) : 0.0);
  settings.set("form", "published");
  return settings;
}

// A class without its ending (`full`, or "Model"); its `model_type`, its family, and how its
// configuration is read.
struct Kind {
  const char *name, *type, *family;
  Value (*settings)(const ImageConfig& config, const std::string& where);
  ImageConfig defaults = {};
  const char* full = "ForImageClassification";  // ending of the class with all of the weights
};

const std::vector<Kind>& image_kinds() {
  const auto convnext = [](double scale) {
    return ImageConfig{.patch_size = 4,
                       .depths = {3, 3, 9, 3},
                       .hidden_sizes = {96, 192, 384, 768},
                       .layer_scale_init_value = scale};
  };
  static const std::vector<Kind> all = {
      {"ViT", "vit", "vit", vit_keys},
      {"ViTMSN", "vit_msn", "vit", vit_keys, {.layer_norm_eps = 1e-6}},
      {"ViTMAE", "vit_mae", "vit", vit_keys, {}, "ForPreTraining"},
      {"Dinov2", "dinov2", "vit", dinov2_keys, {.patch_size = 14, .layer_norm_eps = 1e-6}},
      {"Dinov2WithRegisters", "dinov2_with_registers", "vit", registers_keys, {.layer_norm_eps = 1e-6}},
      {"CLIPVision",
       "clip_vision_model",
       "vit",
       clip_keys,
       {.patch_size = 32, .hidden_act = "quick_gelu", .layer_norm_eps = 1e-5},
       "ModelWithProjection"},
      {"SiglipVision",
       "siglip_vision_model",
       "vit",
       siglip_keys,
       {.hidden_act = "gelu_pytorch_tanh", .layer_norm_eps = 1e-6},
       "Model"},
      {"IJepa", "ijepa", "vit", mean_keys},
      {"DeiT", "deit", "vit", deit_keys},
      {"Beit", "beit", "vit", beit_keys},
      {"Data2VecVision", "data2vec-vision", "vit", beit_keys},
      {"Swin", "swin", "swin", swin_keys, {.patch_size = 4, .depths = {2, 2, 6, 2}, .layer_norm_eps = 1e-5}},
      {"ConvNext", "convnext", "convnext", convnext_keys, convnext(1e-6)},
      {"ConvNextV2", "convnextv2", "convnext", convnextv2_keys, convnext(0)},
      {"PoolFormer",
       "poolformer",
       "poolformer",
       poolformer_keys,
       {.depths = {2, 2, 6, 2}, .hidden_sizes = {64, 128, 320, 512}, .layer_scale_init_value = 1e-5}},
      {"ResNet",
       "resnet",
       "resnet",
       resnet_keys,
       {.hidden_act = "relu", .depths = {3, 4, 6, 3}, .hidden_sizes = {256, 512, 1024, 2048}}}};
  return all;
}

// Classes that share their `model_type` with others. `inner` names the part of the configuration that is read.
struct OtherKind {
  Kind kind;
  const char* inner = "";
};

const std::vector<OtherKind>& other_kinds() {
  constexpr const char* kVision = "vision_config";
  static const std::vector<OtherKind> all = {
      {{"DeiTForImageClassificationWithTeacher", "deit", "vit", distilled_keys}},
      {{"CLIPForImageClassification",
        "clip",
        "vit",
        clip_classifier_keys,
        {.patch_size = 32, .hidden_act = "quick_gelu", .layer_norm_eps = 1e-5}},
       kVision},
      {{"SiglipForImageClassification",
        "siglip",
        "vit",
        mean_keys,
        {.hidden_act = "gelu_pytorch_tanh", .layer_norm_eps = 1e-6}},
       kVision}};
  return all;
}

// Returns the first of config.json's `architectures`, or without one the classifier of its `model_type`; "" without
// either.
std::string class_in_config(const Value& config) {
  const Value *all = config.find("architectures"), *type = config.find("model_type");
  if (all && all->is_array() && !all->as_array().empty() && all->as_array()[0].is_string())
    return all->as_array()[0].as_string();
  for (const Kind& kind : image_kinds())
    if (type && *type == Value(kind.type)) return std::string(kind.name) + kind.full;
  return "";
}

std::optional<OtherKind> find_kind(const std::string& name) {
  for (const Kind& kind : image_kinds())
    for (const char* ending : {kind.full, "Model"})
      if (name == std::string(kind.name) + ending) return OtherKind{kind};
  for (const OtherKind& other : other_kinds())
    if (name == other.kind.name) return other;
  return std::nullopt;
}

// Returns the table `inner` with the keys of the head, which are outside of it.
Value inner_config(const Value& tree, const char* inner, const std::string& where) {
  if (!*inner) return tree;
  const Value* table = tree.find(inner);
  if (!table || !table->is_table()) fail_usage(where, ": ", inner, " is missing, must be an object");
  Value out = *table;
  for (const char* key : {"architectures", "id2label", "problem_type"})
    if (const Value* value = tree.find(key)) out.set(key, *value);
  return out;
}

// Returns the names by number; none if they are the placeholders of transformers.
std::vector<std::string> label_names_in(const Value& id2label) {
  std::vector<std::string> names;
  bool given = false;
  for (size_t i = 0; id2label.is_table(); ++i) {
    const Value* name = id2label.find(std::to_string(i));
    if (!name || !name->is_string()) break;
    names.push_back(name->as_string());
    given = given || names.back() != text("LABEL_", i);
  }
  return given ? names : std::vector<std::string>{};
}

// Reads the preprocessing and the size of images.
void read_images(PublishedFolder& folder, const std::string& where, HubConfig& out) {
  const std::optional<Value> images = read_preprocess_config(folder, 0);
  const Value* own = out.settings.find("image_size");
  if (images) {
    out.preprocess = *images;
    out.prepared_by = "preprocessor_config.json";
    const Value& side = *images->find("size");
    const bool resampled = out.settings.find("resample") != nullptr;  // positions
    if (own && side != *own && !resampled)
      refuse_key(where, "image_size", toml_text(*own),
                 text("the ", toml_text(side), " pixels of preprocessor_config.json"));
    if (!own) out.settings.set("image_size", side);
  } else {
    out.preprocess.set("size", own ? *own : Value(224));
  }
}

}  // namespace

std::string unread_class(PublishedFolder& folder) {
  const std::string name = class_in_config(folder.read({"config.json"}));
  return find_kind(name) ? "" : name;
}

std::string readable_classes() {
  std::vector<std::string> names;
  for (const Kind& kind : image_kinds()) names.push_back(std::string(kind.name) + kind.full);
  for (const OtherKind& other : other_kinds()) names.emplace_back(other.kind.name);
  return join(names, ", ");
}

std::optional<HubConfig> read_transformers_config(PublishedFolder& folder) {
  const std::string where = folder.find({"config.json"});
  const Value tree = folder.read({"config.json"});
  const std::string name = class_in_config(tree);
  const std::optional<OtherKind> found = find_kind(name);
  if (!found) return std::nullopt;
  const Kind* kind = &found->kind;
  std::vector<std::string> unread;
  ImageConfig config =
      read_published<ImageConfig>(inner_config(tree, found->inner, where), where, unread, kind->defaults);
  config.has_head = name.ends_with(kind->full);
  std::erase_if(unread, [](const std::string& key) {
    return std::find(kUnusedKeys.begin(), kUnusedKeys.end(), key) != kUnusedKeys.end();
  });
  folder.note_unread(where, unread);
  HubConfig out;
  out.model = kind->family;
  out.settings = kind->settings(config, where);
  out.class_names = label_names_in(config.id2label);
  out.multi_label = config.problem_type == "multi_label_classification";
  if (config.problem_type == "regression")
    refuse_key(where, "problem_type", config.problem_type,
               "single_label_classification or multi_label_classification");
  read_images(folder, where, out);
  return out;
}

}  // namespace tessera::train
