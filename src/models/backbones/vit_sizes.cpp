// The published sizes of `vit`, with the test crops and pixel statistics of their weights.
#include <string_view>

#include "models/backbones/vit_config.h"
#include "models/base/family.h"

namespace tessera::models::vit {
namespace {

Value size(int64_t patch, int64_t dim, int64_t depth, int64_t heads, Value extra = {}) {
  Value settings = table({{"patch_size", patch}, {"dim", dim}, {"depth", depth}, {"heads", heads}});
  merge(settings, extra);
  return settings;
}

Value of_384() { return table({{"image_size", 384}}); }

// LayerScale starts at 1e-6, and the class token has no position.
Value deit3(int64_t patch, int64_t dim, int64_t depth, int64_t heads, Value extra = {}) {
  Value settings = size(patch, dim, depth, heads,
                        table({{"no_embed_class", true}, {"init_values", 1e-6}, {"drop_path_decay", false}}));
  merge(settings, extra);
  return settings;
}

// Attention pooling instead of a class token, and no class head.
Value siglip(int64_t image, int64_t patch, int64_t dim, int64_t depth, int64_t heads, double mlp_ratio = 4) {
  return size(patch, dim, depth, heads,
              table({{"image_size", image},
                     {"mlp_ratio", mlp_ratio},
                     {"class_token", false},
                     {"global_pool", "map"},
                     {"classes", 0}}));
}

// CPVT-GAP: only conditional positions; the mean of the normed patches, as in the authors' Twins.
Value cpvt_gap(int64_t dim, int64_t heads) {
  return size(16, dim, 12, heads,
              table({{"positions", "none"},
                     {"peg", true},
                     {"class_token", false},
                     {"global_pool", "avg"},
                     {"fc_norm", "off"}}));
}

// LayerScale starts at 1e-5, images of 518 pixels, no class head; with registers: Darcet et al. 2024.
Value dinov2(int64_t dim, int64_t depth, int64_t heads, int64_t registers = 0) {
  return size(14, dim, depth, heads,
              table({{"image_size", 518},
                     {"init_values", 1e-5},
                     {"reg_tokens", registers},
                     {"no_embed_class", registers > 0},
                     {"classes", 0}}));
}
Value dinov2_giant(int64_t registers = 0) {
  Value settings = dinov2(1536, 40, 24, registers);
  settings.set("mlp_ratio", 2.66667 * 2);
  settings.set("mlp", "swiglu_packed");
  return settings;
}

// Registers, and the mean of the patches instead of a class token.
Value registers_and_mean(int64_t dim, int64_t heads) {
  return size(16, dim, 12, heads,
              table({{"image_size", 256},
                     {"class_token", false},
                     {"no_embed_class", true},
                     {"reg_tokens", 4},
                     {"global_pool", "avg"}}));
}

// The test crops in timm's configurations: 0.9, and the whole image at 384 pixels.
Value most() { return table({{"crop", 0.9}}); }
Value whole() { return table({{"crop", 1.0}}); }
// timm's AugReg weights and the original ones expect pixels in [-1, 1].
Value augreg(Value crop = most()) {
  const Value half = Value::Array{0.5, 0.5, 0.5};
  merge(crop, table({{"mean", half}, {"std", half}}));
  return crop;
}

Value distilled(int64_t dim, int64_t heads, Value extra = {}) {
  Value settings = size(16, dim, 12, heads, table({{"distilled", true}}));
  merge(settings, extra);
  return settings;
}

// A tower of CLIP: a norm before the blocks (Radford et al. 2021). OpenAI's have quick_gelu.
Value clip(int64_t patch, int64_t dim, int64_t depth, int64_t heads, int64_t image = 224, bool quick = false,
           double mlp_ratio = 4) {
  return size(patch, dim, depth, heads,
              table({{"image_size", image},
                     {"pre_norm", true},
                     {"norm_eps", 1e-5},
                     {"mlp", quick ? "quick_gelu" : "gelu"},
                     {"mlp_ratio", mlp_ratio}}));
}
Value clip_pixels() {
  return table({{"crop", 1.0},
                {"mean", Value::Array{0.48145466, 0.4578275, 0.40821073}},
                {"std", Value::Array{0.26862954, 0.26130258, 0.27577711}}});
}

// The mean of the normed patches, without biases of q, k, v: timm's sizes between small and base.
Value gap(int64_t dim, int64_t heads, int64_t image) {
  return size(16, dim, 12, heads,
              table({{"image_size", image},
                     {"class_token", false},
                     {"global_pool", "avg"},
                     {"qkv_bias", false},
                     {"init_values", 1e-6},
                     {"fc_norm", "off"}}));
}

// The sizes that timm names wee, little, medium and betwixt, with registers.
Value with_registers(int64_t dim, int64_t depth, int64_t heads, int64_t registers, double mlp_ratio = 4,
                     int64_t image = 256) {
  Value settings = registers_and_mean(dim, heads);
  merge(settings, table({{"depth", depth},
                         {"reg_tokens", registers},
                         {"init_values", 1e-5},
                         {"mlp_ratio", mlp_ratio},
                         {"image_size", image}}));
  return settings;
}

// The shape that Alabdulmohsin et al. (2023) found for 150 million parameters, in timm's two forms.
Value so150m(const char* pool, int64_t image = 256) {
  Value settings = size(16, 896, 18, 14,
                        table({{"image_size", image},
                               {"mlp_ratio", 2.572},
                               {"class_token", false},
                               {"reg_tokens", 4},
                               {"global_pool", pool}}));
  if (std::string_view(pool) == "avg") settings.set("fc_norm", "off");
  return settings;
}
Value so150m2(int64_t image) {
  Value settings = with_registers(832, 21, 13, 1, 34.0 / 13, image);
  merge(settings, table({{"qkv_bias", false}, {"no_embed_class", false}}));
  return settings;
}

// SigLIP 2 in timm: an MLP with GELU's approximation.
Value siglip2(Value settings) {
  settings.set("mlp", "gelu_tanh");
  return settings;
}
// Images of 384 pixels: 27 patches of 14, the rest at the right and at the bottom is not read.
Value cropped(Value settings) {
  settings.set("drop_border", true);
  return settings;
}
// The mean of the normed patches in place of the attention pooling.
Value mean_of(Value settings) {
  merge(settings, table({{"global_pool", "avg"}, {"fc_norm", "off"}}));
  return settings;
}

}  // namespace

std::vector<Size> sizes() {
  std::vector<Size> published = {
      {"vit_tiny_patch16_224", {}, size(16, 192, 12, 3), augreg()},
      {"vit_tiny_patch16_384", {}, size(16, 192, 12, 3, of_384()), augreg(whole())},
      {"vit_small_patch16_224", {}, size(16, 384, 12, 6), augreg()},
      {"vit_small_patch16_384", {}, size(16, 384, 12, 6, of_384()), augreg(whole())},
      {"vit_small_patch32_224", {}, size(32, 384, 12, 6), augreg()},
      {"vit_small_patch32_384", {}, size(32, 384, 12, 6, of_384()), augreg(whole())},
      {"vit_base_patch8_224", {}, size(8, 768, 12, 12), augreg()},
      {"vit_base_patch16_224", {}, size(16, 768, 12, 12), augreg()},
      {"vit_base_patch16_384", {}, size(16, 768, 12, 12, of_384()), augreg(whole())},
      {"vit_base_patch32_224", {}, size(32, 768, 12, 12), augreg()},
      {"vit_base_patch32_384", {}, size(32, 768, 12, 12, of_384()), augreg(whole())},
      {"vit_large_patch16_224", {}, size(16, 1024, 24, 16), augreg()},
      {"vit_large_patch16_384", {}, size(16, 1024, 24, 16, of_384()), augreg(whole())},
      {"vit_large_patch32_384", {}, size(32, 1024, 24, 16, of_384()), augreg(whole())},
      {"vit_huge_patch14_224", {}, size(14, 1280, 32, 16, table({{"classes", 0}})), augreg()},
      {"deit_tiny_patch16_224", {}, size(16, 192, 12, 3), most()},
      {"deit_small_patch16_224", {}, size(16, 384, 12, 6), most()},
      {"deit_base_patch16_224", {}, size(16, 768, 12, 12), most()},
      {"deit_base_patch16_384", {}, size(16, 768, 12, 12, of_384()), whole()},
      {"deit_tiny_distilled_patch16_224", {}, distilled(192, 3), most()},
      {"deit_small_distilled_patch16_224", {}, distilled(384, 6), most()},
      {"deit_base_distilled_patch16_224", {}, distilled(768, 12), most()},
      {"deit_base_distilled_patch16_384", {}, distilled(768, 12, of_384()), whole()},
      {"deit3_tiny_patch16_224",  // the Vision-LSTM authors' ViT: fixed positions, LayerScale 1e-4
       {"deit3-tiny", "deit3-tiny-e400"},
       size(16, 192, 12, 3,
            table({{"positions", "sincos"}, {"no_embed_class", true}, {"init_values", 1e-4}})),
       whole()},
      {"deit3_small_patch16_224", {}, deit3(16, 384, 12, 6), most()},
      {"deit3_small_patch16_384", {}, deit3(16, 384, 12, 6, of_384()), whole()},
      {"deit3_medium_patch16_224", {}, deit3(16, 512, 12, 8), most()},
      {"deit3_base_patch16_224", {}, deit3(16, 768, 12, 12), most()},
      {"deit3_base_patch16_384", {}, deit3(16, 768, 12, 12, of_384()), whole()},
      {"deit3_large_patch16_224", {}, deit3(16, 1024, 24, 16), most()},
      {"deit3_large_patch16_384", {}, deit3(16, 1024, 24, 16, of_384()), whole()},
      {"deit3_huge_patch14_224", {}, deit3(14, 1280, 32, 16), most()},
      {"vit_base_patch16_siglip_224", {}, siglip(224, 16, 768, 12, 12), augreg()},
      {"vit_large_patch16_siglip_256", {}, siglip(256, 16, 1024, 24, 16), augreg()},
      {"vit_so400m_patch14_siglip_224", {}, siglip(224, 14, 1152, 27, 16, 3.7362), augreg()},
      {"vit_small_patch14_dinov2", {}, dinov2(384, 12, 6), whole()},
      {"vit_base_patch14_dinov2", {}, dinov2(768, 12, 12), whole()},
      {"vit_large_patch14_dinov2", {}, dinov2(1024, 24, 16), whole()},
      {"vit_giant_patch14_dinov2", {}, dinov2_giant(), whole()},
      {"vit_small_patch14_reg4_dinov2", {}, dinov2(384, 12, 6, 4), whole()},
      {"vit_base_patch14_reg4_dinov2", {}, dinov2(768, 12, 12, 4), whole()},
      {"vit_large_patch14_reg4_dinov2", {}, dinov2(1024, 24, 16, 4), whole()},
      {"vit_giant_patch14_reg4_dinov2", {}, dinov2_giant(4), whole()},
      {"vit_base_patch16_reg4_gap_256", {}, registers_and_mean(768, 12), augreg()},
      {"cpvt_small_gap_patch16_224", {"cpvt_small_gap"}, cpvt_gap(384, 6)},
      {"vit_small_patch8_224", {}, size(8, 384, 12, 6), augreg()},
      {"vit_giant_patch14_224", {}, size(14, 1408, 40, 16, table({{"mlp_ratio", 48.0 / 11}})), augreg()},
      {"vit_medium_patch16_gap_240", {}, gap(512, 8, 240), augreg(table({{"crop", 0.95}}))},
      {"vit_medium_patch16_gap_256", {}, gap(512, 8, 256), augreg(table({{"crop", 0.95}}))},
      {"vit_medium_patch16_gap_384", {}, gap(512, 8, 384), augreg(whole())},
      {"vit_betwixt_patch16_gap_256", {}, gap(640, 10, 256), augreg(table({{"crop", 0.95}}))},
      {"vit_wee_patch16_reg1_gap_256", {}, with_registers(256, 14, 4, 1, 5), augreg(table({{"crop", 0.95}}))},
      {"vit_little_patch16_reg1_gap_256",
       {},
       with_registers(320, 14, 5, 1, 5.6),
       augreg(table({{"crop", 0.95}}))},
      {"vit_little_patch16_reg4_gap_256",
       {},
       with_registers(320, 14, 5, 4, 5.6),
       augreg(table({{"crop", 0.95}}))},
      {"vit_medium_patch16_reg1_gap_256", {}, with_registers(512, 12, 8, 1), augreg(table({{"crop", 0.95}}))},
      {"vit_medium_patch16_reg4_gap_256", {}, with_registers(512, 12, 8, 4), augreg(table({{"crop", 0.95}}))},
      {"vit_mediumd_patch16_reg4_gap_256",
       {},
       with_registers(512, 20, 8, 4),
       augreg(table({{"crop", 0.95}}))},
      {"vit_mediumd_patch16_reg4_gap_384", {}, with_registers(512, 20, 8, 4, 4, 384), augreg(whole())},
      {"vit_betwixt_patch16_reg1_gap_256",
       {},
       with_registers(640, 12, 10, 1),
       augreg(table({{"crop", 0.95}}))},
      {"vit_betwixt_patch16_reg4_gap_256",
       {},
       with_registers(640, 12, 10, 4),
       augreg(table({{"crop", 0.95}}))},
      {"vit_betwixt_patch16_reg4_gap_384", {}, with_registers(640, 12, 10, 4, 4, 384), augreg(whole())},
      {"vit_so150m_patch16_reg4_map_256", {}, so150m("map"), augreg(table({{"crop", 0.95}}))},
      {"vit_so150m_patch16_reg4_gap_256", {}, so150m("avg"), augreg(table({{"crop", 0.95}}))},
      {"vit_so150m_patch16_reg4_gap_384", {}, so150m("avg", 384), augreg(whole())},
      {"vit_so150m2_patch16_reg1_gap_256", {}, so150m2(256), augreg(whole())},
      {"vit_so150m2_patch16_reg1_gap_384", {}, so150m2(384), augreg(whole())},
      {"vit_so150m2_patch16_reg1_gap_448", {}, so150m2(448), augreg(whole())},
      {"vit_base_patch32_clip_224", {}, clip(32, 768, 12, 12), clip_pixels()},
      {"vit_base_patch32_clip_256", {}, clip(32, 768, 12, 12, 256), clip_pixels()},
      {"vit_base_patch32_clip_384", {}, clip(32, 768, 12, 12, 384), clip_pixels()},
      {"vit_base_patch32_clip_448", {}, clip(32, 768, 12, 12, 448), clip_pixels()},
      {"vit_base_patch16_clip_224", {}, clip(16, 768, 12, 12), clip_pixels()},
      {"vit_base_patch16_clip_384", {}, clip(16, 768, 12, 12, 384), clip_pixels()},
      {"vit_large_patch14_clip_224", {}, clip(14, 1024, 24, 16), clip_pixels()},
      {"vit_large_patch14_clip_336", {}, clip(14, 1024, 24, 16, 336), clip_pixels()},
      {"vit_huge_patch14_clip_224", {}, clip(14, 1280, 32, 16), clip_pixels()},
      {"vit_huge_patch14_clip_336", {}, clip(14, 1280, 32, 16, 336), clip_pixels()},
      {"vit_huge_patch14_clip_378", {}, clip(14, 1280, 32, 16, 378), clip_pixels()},
      {"vit_giant_patch14_clip_224", {}, clip(14, 1408, 40, 16, 224, false, 48.0 / 11), clip_pixels()},
      {"vit_gigantic_patch14_clip_224", {}, clip(14, 1664, 48, 16, 224, false, 64.0 / 13), clip_pixels()},
      {"vit_base_patch32_clip_quickgelu_224", {}, clip(32, 768, 12, 12, 224, true), clip_pixels()},
      {"vit_base_patch16_clip_quickgelu_224", {}, clip(16, 768, 12, 12, 224, true), clip_pixels()},
      {"vit_large_patch14_clip_quickgelu_224", {}, clip(14, 1024, 24, 16, 224, true), clip_pixels()},
      {"vit_large_patch14_clip_quickgelu_336", {}, clip(14, 1024, 24, 16, 336, true), clip_pixels()},
      {"vit_huge_patch14_clip_quickgelu_224", {}, clip(14, 1280, 32, 16, 224, true), clip_pixels()},
      {"vit_base_patch16_siglip_256", {}, siglip(256, 16, 768, 12, 12), augreg()},
      {"vit_base_patch16_siglip_384", {}, siglip(384, 16, 768, 12, 12), augreg()},
      {"vit_base_patch16_siglip_512", {}, siglip(512, 16, 768, 12, 12), augreg()},
      {"vit_base_patch32_siglip_256", {}, siglip2(siglip(256, 32, 768, 12, 12)), augreg()},
      {"vit_large_patch16_siglip_384", {}, siglip(384, 16, 1024, 24, 16), augreg()},
      {"vit_large_patch16_siglip_512", {}, siglip2(siglip(512, 16, 1024, 24, 16)), augreg()},
      {"vit_so400m_patch14_siglip_378", {}, siglip(378, 14, 1152, 27, 16, 3.7362), augreg()},
      {"vit_so400m_patch14_siglip_384", {}, cropped(siglip(378, 14, 1152, 27, 16, 3.7362)), augreg()},
      {"vit_so400m_patch16_siglip_256", {}, siglip2(siglip(256, 16, 1152, 27, 16, 3.7362)), augreg()},
      {"vit_so400m_patch16_siglip_384", {}, siglip2(siglip(384, 16, 1152, 27, 16, 3.7362)), augreg()},
      {"vit_so400m_patch16_siglip_512", {}, siglip2(siglip(512, 16, 1152, 27, 16, 3.7362)), augreg()},
      {"vit_giantopt_patch16_siglip_256", {}, siglip2(siglip(256, 16, 1536, 40, 16)), augreg()},
      {"vit_giantopt_patch16_siglip_384", {}, siglip2(siglip(384, 16, 1536, 40, 16)), augreg()},
      {"vit_base_patch16_siglip_gap_224", {}, mean_of(siglip(224, 16, 768, 12, 12)), augreg()},
      {"vit_base_patch16_siglip_gap_256", {}, mean_of(siglip(256, 16, 768, 12, 12)), augreg()},
      {"vit_base_patch16_siglip_gap_384", {}, mean_of(siglip(384, 16, 768, 12, 12)), augreg()},
      {"vit_base_patch16_siglip_gap_512", {}, mean_of(siglip(512, 16, 768, 12, 12)), augreg()},
      {"vit_large_patch16_siglip_gap_256", {}, mean_of(siglip(256, 16, 1024, 24, 16)), augreg()},
      {"vit_large_patch16_siglip_gap_384", {}, mean_of(siglip(384, 16, 1024, 24, 16)), augreg()},
      {"vit_so400m_patch14_siglip_gap_224", {}, mean_of(siglip(224, 14, 1152, 27, 16, 3.7362)), augreg()},
      {"vit_so400m_patch14_siglip_gap_384",
       {},
       mean_of(cropped(siglip(378, 14, 1152, 27, 16, 3.7362))),
       augreg()},
  };
  return published;
}

}  // namespace tessera::models::vit
