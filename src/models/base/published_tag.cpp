#include "models/base/model.h"

#include <array>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "models/base/family.h"

namespace tessera::models {
namespace {

enum class Pixels { usual, imagenet, half, clip };

// Preprocessing of weights that differs from that of their size; 0 and null: as usual.
struct Look {
  int64_t side = 0;
  double crop = 0;
  const char *interpolation = nullptr, *mode = nullptr;
  Pixels pixels = Pixels::usual;
  bool operator==(const Look&) const = default;
};
constexpr Look kUsual = {}, kWhole = {.crop = 1}, kImageNet = {.pixels = Pixels::imagenet},
               kSquashed = {.crop = 1, .mode = "squash"}, kAt384 = {.side = 384, .crop = 1, .mode = "squash"},
               kAt256 = {.side = 256, .crop = 1},
               kClipAt256 = {.side = 256, .crop = 1, .pixels = Pixels::clip}, kOld = {.crop = 0.875},
               kOldBilinear = {.crop = 0.875, .interpolation = "bilinear"}, kMost = {.crop = 0.9},
               kNearly = {.crop = 0.95}, kHalf = {.pixels = Pixels::half}, kSquash = {.mode = "squash"},
               kR384 = {.side = 384, .crop = 1};

// torchvision resizes the short side to `resized` for a crop of 224.
constexpr Look torchvision(double resized) {
  return {.side = 224, .crop = 224 / resized, .interpolation = "bilinear", .pixels = Pixels::imagenet};
}

struct Tag {
  const char* size;  // prefix of the sizes' names
  const char* tag;
  Look look = kUsual;
};

// The tags of timm's configurations, with their input size and test crop. If several lines fit, the first
// counts.
constexpr std::array kTags = {
    Tag{"vit_base_patch32_clip_224", "laion2b", kMost},
    Tag{"vit_base_patch32_clip_224", "laion2b_ft_in12k_in1k", kMost},
    Tag{"vit_base_patch32_clip_224", "laion2b_ft_in1k", kMost},
    Tag{"vit_base_patch32_clip_224", "laion400m_e32", kMost},
    Tag{"vit_base_patch32_clip_224", "openai", kMost},
    Tag{"vit_base_patch32_clip_224", "openai_ft_in12k_in1k", kMost},
    Tag{"vit_base_patch32_clip_224", "openai_ft_in1k", kMost},
    Tag{"vit_base_patch32_clip_quickgelu_", "laion400m_e32", kMost},
    Tag{"vit_base_patch32_clip_quickgelu_", "openai", kMost},
    Tag{"vit_base_patch16_clip_224", "laion2b_ft_in12k", kMost},
    Tag{"vit_base_patch16_clip_224", "openai", kMost},
    Tag{"vit_base_patch16_clip_224", "openai_ft_in12k", kMost},
    Tag{"vit_base_patch16_clip_224", "openai_ft_in1k", kMost},
    Tag{"vit_base_patch16_clip_quickgelu_", "openai", kMost},
    Tag{"vit_base_patch16_clip_224", "laion2b_ft_in12k_in1k", kNearly},
    Tag{"vit_base_patch16_clip_224", "openai_ft_in12k_in1k", kNearly},
    Tag{"vit_base_patch32_clip_384", "openai_ft_in12k_in1k", {.crop = 0.95, .mode = "squash"}},
    Tag{"vit_base_patch16_clip_384", "openai_ft_in12k_in1k", {.crop = 0.95, .mode = "squash"}},
    Tag{"vit_base_patch16_clip_384", "laion2b_ft_in12k_in1k", kSquash},
    Tag{"vit_base_patch16_clip_384", "laion2b_ft_in1k", kSquash},
    Tag{"vit_huge_patch14_clip_336", "laion2b_ft_in12k_in1k", kSquash},
    Tag{"vit_huge_patch14_clip_336", "laion2b_ft_in1k", kSquash},
    Tag{"vit_base_patch16_clip_384", "openai_ft_in1k", kSquash},
    Tag{"vit_large_patch14_clip_336", "openai_ft_in12k_in1k", kSquash},
    Tag{"vit_huge_patch14_clip_378", "metaclip2_worldwide", kSquash},
    Tag{"vit_large_patch14_clip_336", "laion2b_ft_in12k_in1k", {.mode = "squash", .pixels = Pixels::half}},
    Tag{"vit_large_patch14_clip_336", "laion2b_ft_in1k", {.mode = "squash", .pixels = Pixels::half}},
    Tag{"vit_large_patch14_clip_224", "laion2b", kHalf},
    Tag{"vit_large_patch14_clip_224", "laion2b_ft_in12k", kHalf},
    Tag{"vit_large_patch14_clip_224", "laion2b_ft_in12k_in1k", kHalf},
    Tag{"vit_large_patch14_clip_224", "laion2b_ft_in1k", kHalf},
    Tag{"vit_base_patch32_clip_", "datacompxl"},
    Tag{"vit_base_patch32_clip_", "laion2b_ft_in12k_in1k"},
    Tag{"vit_base_patch32_clip_", "metaclip_2pt5b"},
    Tag{"vit_base_patch32_clip_", "metaclip_400m"},
    Tag{"vit_base_patch16_clip_", "datacompxl"},
    Tag{"vit_base_patch16_clip_", "dfn2b"},
    Tag{"vit_base_patch16_clip_", "laion2b"},
    Tag{"vit_base_patch16_clip_", "laion2b_ft_in1k"},
    Tag{"vit_base_patch16_clip_", "laion400m_e32"},
    Tag{"vit_base_patch16_clip_", "metaclip_2pt5b"},
    Tag{"vit_base_patch16_clip_", "metaclip_400m"},
    Tag{"vit_large_patch14_clip_", "apple_mclip2_dfndr2b"},
    Tag{"vit_large_patch14_clip_", "datacompxl"},
    Tag{"vit_large_patch14_clip_", "dfn2b"},
    Tag{"vit_large_patch14_clip_", "dfn2b_s39b"},
    Tag{"vit_large_patch14_clip_", "laion400m_e32"},
    Tag{"vit_large_patch14_clip_", "metaclip_2pt5b"},
    Tag{"vit_large_patch14_clip_", "metaclip_400m"},
    Tag{"vit_large_patch14_clip_", "openai"},
    Tag{"vit_large_patch14_clip_", "openai_ft_in12k"},
    Tag{"vit_large_patch14_clip_", "openai_ft_in12k_in1k"},
    Tag{"vit_large_patch14_clip_", "openai_ft_in1k"},
    Tag{"vit_huge_patch14_clip_", "dfn5b"},
    Tag{"vit_huge_patch14_clip_", "laion2b"},
    Tag{"vit_huge_patch14_clip_", "laion2b_ft_in12k"},
    Tag{"vit_huge_patch14_clip_", "laion2b_ft_in12k_in1k"},
    Tag{"vit_huge_patch14_clip_", "laion2b_ft_in1k"},
    Tag{"vit_huge_patch14_clip_", "metaclip2_worldwide"},
    Tag{"vit_huge_patch14_clip_", "metaclip_2pt5b"},
    Tag{"vit_huge_patch14_clip_", "metaclip_altogether"},
    Tag{"vit_giant_patch14_clip_", "laion2b"},
    Tag{"vit_gigantic_patch14_clip_", "laion2b"},
    Tag{"vit_gigantic_patch14_clip_", "metaclip2_worldwide"},
    Tag{"vit_gigantic_patch14_clip_", "metaclip_2pt5b"},
    Tag{"vit_so400m_patch14_siglip_384", "webli", {.side = 384}},
    Tag{"vit_so400m_patch14_siglip_gap_384", "webli", kR384},
    Tag{"vit_so400m_patch14_siglip_378", "webli_ft_in1k", {.crop = 1, .mode = "squash"}},
    Tag{"vit_base_patch16_siglip_", "webli_i18n"},
    Tag{"vit_so400m_patch16_siglip_", "webli_i18n"},
    Tag{"vit_so400m_patch14_siglip_gap_224", "pali2_10b_pt"},
    Tag{"vit_so400m_patch14_siglip_gap_224", "pali2_3b_pt"},
    Tag{"vit_so400m_patch14_siglip_gap_224", "pali_mix"},
    Tag{"vit_so400m_patch14_siglip_gap_224", "pali_pt"},
    Tag{"vit_base_patch32_siglip_", "v2_webli"},
    Tag{"vit_giantopt_", "v2_webli"},
    Tag{"vit_wee_", "sbb_in1k"},
    Tag{"vit_little_", "sbb_in1k"},
    Tag{"vit_medium_", "sbb_in1k"},
    Tag{"vit_betwixt_", "sbb_in1k"},
    Tag{"vit_little_", "sbb_in12k"},
    Tag{"vit_medium_", "sbb_in12k"},
    Tag{"vit_mediumd_", "sbb_in12k"},
    Tag{"vit_betwixt_", "sbb_in12k"},
    Tag{"vit_little_", "sbb_in12k_ft_in1k"},
    Tag{"vit_medium_", "sbb_in12k_ft_in1k"},
    Tag{"vit_mediumd_", "sbb_in12k_ft_in1k"},
    Tag{"vit_betwixt_", "sbb_in12k_ft_in1k"},
    Tag{"vit_mediumd_", "sbb2_e200_in12k"},
    Tag{"vit_betwixt_", "sbb2_e200_in12k"},
    Tag{"vit_mediumd_", "sbb2_e200_in12k_ft_in1k"},
    Tag{"vit_betwixt_", "sbb2_e200_in12k_ft_in1k"},
    Tag{"vit_so150m2_patch16_reg1_gap_448", "sbb_e200_in12k_ft_in1k", kSquash},
    Tag{"vit_so150m2_", "sbb_e200_in12k"},
    Tag{"vit_so150m2_", "sbb_e200_in12k_ft_in1k"},
    Tag{"vit_so150m_", "sbb_e250_in12k"},
    Tag{"vit_so150m_", "sbb_e250_in12k_ft_in1k"},
    Tag{"vit_medium_patch16_gap_384", "sw_in12k_ft_in1k", {.crop = 0.95, .mode = "squash"}},
    Tag{"vit_medium_", "sw_in12k"},
    Tag{"vit_medium_", "sw_in12k_ft_in1k"},
    Tag{"vit_small_patch14_", "lvd142m"},
    Tag{"vit_base_patch14_", "lvd142m"},
    Tag{"vit_large_patch14_", "lvd142m"},
    Tag{"vit_giant_patch14_", "lvd142m"},
    Tag{"vit_base_patch16_siglip_", "webli"},
    Tag{"vit_base_patch16_siglip_", "v2_webli"},
    Tag{"vit_large_patch16_siglip_", "webli"},
    Tag{"vit_large_patch16_siglip_", "v2_webli"},
    Tag{"vit_so400m_", "webli"},
    Tag{"vit_so400m_", "v2_webli"},
    Tag{"vit_", "augreg_in21k_ft_in1k"},
    Tag{"vit_", "augreg2_in21k_ft_in1k"},
    Tag{"vit_", "augreg_in1k"},
    Tag{"vit_", "augreg_in21k"},
    Tag{"vit_", "orig_in21k"},
    Tag{"vit_", "orig_in21k_ft_in1k"},
    Tag{"vit_", "sam_in1k"},
    Tag{"vit_", "dino", kImageNet},
    Tag{"vit_", "mae", kImageNet},
    Tag{"vit_", "bamboo", {.crop = 1, .pixels = Pixels::clip}},
    Tag{"vit_base_patch16_224", kTorchvisionTag, torchvision(256)},
    Tag{"vit_base_patch32_224", kTorchvisionTag, torchvision(256)},
    Tag{"vit_large_patch16_224", kTorchvisionTag, torchvision(242)},
    Tag{"vit_base_patch16_384", kTorchvisionTag, {.crop = 1, .pixels = Pixels::imagenet}},
    Tag{"deit_", "fb_in1k"},
    Tag{"deit3_", "fb_in1k"},
    Tag{"deit3_", "fb_in22k_ft_in1k", kWhole},
    Tag{"swin_", "ms_in1k"},
    Tag{"swin_", "ms_in22k"},
    Tag{"swin_", "ms_in22k_ft_in1k"},
    Tag{"twins_svt_", "in1k"},
    Tag{"poolformer", "sail_in1k"},
    Tag{"eva02_", "mim_in22k"},
    Tag{"eva02_", "mim_m38m"},
    Tag{"eva02_", "mim_in22k_ft_in1k"},
    Tag{"eva02_", "mim_m38m_ft_in1k"},
    Tag{"eva02_", "mim_in22k_ft_in22k", kSquashed},
    Tag{"eva02_", "mim_m38m_ft_in22k", kSquashed},
    Tag{"eva02_", "mim_in22k_ft_in22k_in1k", kSquashed},
    Tag{"eva02_", "mim_m38m_ft_in22k_in1k", kSquashed},
    Tag{"eva02_", "merged2b"},
    Tag{"resnet50_clip", "openai"},
    Tag{"resnet50_clip", "yfcc15m"},
    Tag{"resnet50_clip", "cc12m"},
    Tag{"resnet101_clip", "openai"},
    Tag{"resnet101_clip", "yfcc15m"},
    Tag{"resnet50x", "openai"},
    Tag{"resnet", "a1_in1k"},
    Tag{"resnet", "a2_in1k"},
    Tag{"resnet", "a3_in1k", {.side = 160}},
    Tag{"resnet50", "a1h_in1k", {.side = 176, .crop = 0.9}},
    Tag{"resnet", "a1h_in1k"},
    Tag{"resnet", "b1k_in1k"},
    Tag{"resnet", "b2k_in1k"},
    Tag{"resnet", "c1_in1k"},
    Tag{"resnet", "c2_in1k"},
    Tag{"resnet", "d_in1k"},
    Tag{"resnet", "ra4_e3600_r224_in1k", {.crop = 0.9, .pixels = Pixels::half}},
    Tag{"resnet", "bamboo", kWhole},
    Tag{"resnet", "am_in1k", kOld},
    Tag{"resnet", "bt_in1k", kOld},
    Tag{"resnet", "ra_in1k", kOld},
    Tag{"resnet", "ram_in1k", kOld},
    Tag{"resnet", "gluon_in1k", kOld},
    Tag{"resnet", "fb_ssl_yfcc100m_ft_in1k", kOldBilinear},
    Tag{"resnet", "fb_swsl_ig1b_ft_in1k", kOldBilinear},
    Tag{"resnet", "tv_in1k", torchvision(256)},
    Tag{"resnet", "tv2_in1k", torchvision(232)},
    Tag{"convnext_femto", "d1_in1k"},
    Tag{"convnext_pico", "d1_in1k"},
    Tag{"convnext_atto", "d2_in1k"},
    Tag{"convnext_nano", "d1h_in1k", kNearly},
    Tag{"convnext_nano", "r384_ad_in12k", kR384},
    Tag{"convnext_nano", "r384_in12k", kR384},
    Tag{"convnext_nano", "r384_in12k_ft_in1k", kR384},
    Tag{"convnextv2_huge", "fcmae_ft_in22k_in1k_512", {.side = 512, .crop = 1, .mode = "squash"}},
    Tag{"convnext_", "fb_in1k"},
    Tag{"convnext_", "fb_in22k"},
    Tag{"convnext_", "fb_in22k_ft_in1k"},
    Tag{"convnext_", "fb_in22k_ft_in1k_384", kAt384},
    Tag{"convnext_", "in12k", {.crop = 0.95}},
    Tag{"convnext_", "in12k_ft_in1k", {.crop = 0.95}},
    Tag{"convnext_", "in12k_ft_in1k_384", kAt384},
    Tag{"convnext_", "dinov3_lvd1689m", kWhole},
    Tag{"convnext_", "eupe_lvd1689m", kAt256},
    Tag{"convnext_base", "clip_laion2b", kClipAt256},
    Tag{"convnext_base", "clip_laion2b_augreg", kClipAt256},
    Tag{"convnext_base", "clip_laiona", kClipAt256},
    Tag{"convnext_base", "clip_laiona_320", {.side = 320, .crop = 1, .pixels = Pixels::clip}},
    Tag{"convnext_base", "clip_laiona_augreg_320", {.side = 320, .crop = 1, .pixels = Pixels::clip}},
    Tag{"convnext_base", "clip_laion2b_augreg_ft_in1k", kClipAt256},
    Tag{"convnext_base", "clip_laion2b_augreg_ft_in12k", kClipAt256},
    Tag{"convnext_base", "clip_laion2b_augreg_ft_in12k_in1k", kClipAt256},
    Tag{"convnext_base",
        "clip_laion2b_augreg_ft_in12k_in1k_384",
        {.side = 384, .crop = 1, .mode = "squash", .pixels = Pixels::clip}},
    Tag{"convnext_base", "clip_laiona_augreg_ft_in1k_384", {.side = 384, .crop = 1, .pixels = Pixels::clip}},
    Tag{"convnext_tiny", kTorchvisionTag, torchvision(236)},
    Tag{"convnext_small", kTorchvisionTag, torchvision(230)},
    Tag{"convnext_base", kTorchvisionTag, torchvision(232)},
    Tag{"convnext_large", kTorchvisionTag, torchvision(232)},
    Tag{"convnextv2_", "fcmae_ft_in1k"},
    Tag{"convnextv2_", "fcmae"},
    Tag{"convnextv2_", "fcmae_ft_in22k_in1k"},
    Tag{"convnextv2_", "fcmae_ft_in22k_in1k_384", kAt384},
};

// Returns the keys of [preprocess] that differ from the size's.
Value keys_of(const Look& look) {
  Value keys;
  if (look.side > 0) keys.set("size", look.side);
  if (look.crop > 0) keys.set("crop", look.crop);
  if (look.interpolation) keys.set("interpolation", look.interpolation);
  if (look.mode) keys.set("crop_mode", look.mode);
  const auto pixels = [&](const Value::Array& mean, const Value::Array& deviation) {
    keys.set("mean", mean);
    keys.set("std", deviation);
  };
  if (look.pixels == Pixels::imagenet) pixels({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225});
  if (look.pixels == Pixels::half) pixels({0.5, 0.5, 0.5}, {0.5, 0.5, 0.5});
  if (look.pixels == Pixels::clip)
    pixels({0.48145466, 0.4578275, 0.40821073}, {0.26862954, 0.26130258, 0.27577711});
  return keys;
}

}  // namespace

PublishedName split_published_name(const std::string& name) {
  const size_t dot = name.find('.');
  return dot == std::string::npos ? PublishedName{name, ""}
                                  : PublishedName{name.substr(0, dot), name.substr(dot + 1)};
}

Value tag_preprocess(const PublishedName& name) {
  if (name.tag.empty()) return {};
  std::vector<std::string> known;
  for (const Tag& tag : kTags) {
    if (!name.size.starts_with(tag.size)) continue;
    known.emplace_back(tag.tag);
    if (name.tag != tag.tag) continue;
    return keys_of(tag.look);
  }
  fail_usage(
      "'", name.size, "' has no weights '", name.tag, "'",
      known.empty() ? text(": its weights have no tags") : text(", must be one of ", join(known, ", ")));
}

PublishedTags published_tags(const std::string& size) {
  PublishedTags out;
  for (const Tag& tag : kTags) {
    if (!size.starts_with(tag.size)) continue;
    if (out.usual.empty() && tag.look == kUsual) out.usual = tag.tag;
    if (tag.look != kUsual) out.others.emplace_back(tag.tag);
  }
  return out;
}

}  // namespace tessera::models
