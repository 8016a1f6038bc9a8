// The settings of `vit`: the differences between ViT, DeiT, DeiT III, CPVT, BEiT, CLIP, SigLIP and DINOv2.
#pragma once

#include <array>
#include <cstdint>

#include "core/error.h"
#include "models/base/family.h"
#include "models/base/isotropic.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace tessera::models {

enum class VitPool { token, avg, avgmax, max, map, token_avg };
enum class VitFcNorm { automatic, on, off };
enum class VitPositions { learned, sincos, relative, alibi, none, sincos_moco };
enum class VitResample { antialias, offset, bicubic };

}  // namespace tessera::models

template <>
struct tessera::EnumNames<tessera::models::VitPool> {
  static constexpr std::array names = {"token", "avg", "avgmax", "max", "map", "token_avg"};
};
template <>
struct tessera::EnumNames<tessera::nn::MlpForm> {
  static constexpr std::array names = {"gelu", "gelu_tanh", "quick_gelu", "relu", "silu", "swiglu_packed"};
};
template <>
struct tessera::EnumNames<tessera::models::VitFcNorm> {
  static constexpr std::array names = {"auto", "on", "off"};
};
template <>
struct tessera::EnumNames<tessera::models::VitPositions> {
  static constexpr std::array names = {"learned", "sincos", "relative", "alibi", "none", "sincos_moco"};
};
template <>
struct tessera::EnumNames<tessera::models::VitResample> {
  static constexpr std::array names = {"antialias", "offset", "bicubic"};
};

namespace tessera::models {

struct VitConfig : IsotropicSettings {
  double mlp_ratio = 4;
  nn::MlpForm mlp = nn::MlpForm::gelu;
  NormKind norm = NormKind::layer;
  double norm_eps = 1e-6;
  bool qkv_bias = true, proj_bias = true, qk_norm = false;
  double init_values = 0;
  VitPool global_pool = VitPool::token;
  VitFcNorm fc_norm = VitFcNorm::automatic;
  bool final_norm = true;
  bool class_token = true, no_embed_class = false, distilled = false, reg_positions = true;
  int64_t reg_tokens = 0;
  bool pre_norm = false, patch_bias = true, drop_border = false;
  VitPositions positions = VitPositions::learned;
  VitResample resample = VitResample::antialias;
  bool conv_stem = false;
  bool relative_table = false, shared_table = false, peg = false;
  int64_t head_dim = 0;

  VitConfig() { drop_path_decay = true; }

  template <class V>
  void visit(V& v) {
    visit_size(v);
    v("mlp_ratio", mlp_ratio, kMlpRatio, "hidden width of the MLP as a multiple of dim");
    v("mlp", mlp, choice<nn::MlpForm>(),
      "its activation; swiglu_packed: gate and up in one matrix, half of the hidden width each (DINOv2's "
      "giant)");
    v("norm", norm, choice<NormKind>(), "all norms");
    v("norm_eps", norm_eps, above(0), "eps of all norms (CLIP: 1e-5)");
    v("qkv_bias", qkv_bias, "biases of q, k, v");
    v("proj_bias", proj_bias, "biases of the projection after attention and of the MLP");
    v("qk_norm", qk_norm, "normalise q and k in each head");
    v("head_dim", head_dim, between(0, 4096), "channels of an attention head, 0 = dim / heads");
    v("init_values", init_values, "first value of LayerScale, 0 = no LayerScale");
    v("global_pool", global_pool, choice<VitPool>(),
      "the head reads the class token, the mean or maximum of the patches, half their sum (avgmax), the "
      "output of a learned query (map, SigLIP), or the class token and the mean next to each other "
      "(token_avg, DINOv2)");
    v("fc_norm", fc_norm, choice<VitFcNorm>(),
      "norm after the pooling instead of before; auto: with avg, avgmax and max");
    v("final_norm", final_norm, "a norm after the last block, before or after the pooling");
    v("class_token", class_token, "a learned token before the patches");
    v("no_embed_class", no_embed_class, "no position for class and register tokens (DeiT III)");
    v("distilled", distilled, "a distillation token with a head of its own (DeiT)");
    v("reg_tokens", reg_tokens, between(0, 4096), "register tokens (Darcet et al. 2024)");
    v("reg_positions", reg_positions, "positions for register tokens too; DINOv2 with registers has none");
    v("pre_norm", pre_norm, "a norm before the first block, no bias in the patch embedding (CLIP)");
    v("patch_bias", patch_bias, "a bias of the patch embedding, if pre_norm is false");
    v("drop_border", drop_border,
      "images may be larger than a whole number of patches: the rest is cropped (SigLIP at 384 in "
      "patches of 14)");
    v("positions", positions, choice<VitPositions>(),
      "sincos: fixed; sincos_moco: the same in MoCo v3's order; relative: a learned bias per head for row "
      "and "
      "column offsets, in each block; alibi: a fixed bias that falls with the distance");
    v("resample", resample, choice<VitResample>(),
      "bicubic interpolation of positions to another grid: antialias (timm), offset (DINO's multi-crop), or "
      "bicubic (transformers' DINOv2)");
    v("conv_stem", conv_stem,
      "four convolutions with batch norms in place of the patch embedding, in patches of 16 (MoCo v3)");
    v("relative_table", relative_table,
      "in addition to positions, in each block a learned bias per head for every offset of two patches, "
      "initially 0 (BEiT)");
    v("shared_table", shared_table, "the same with one table for all blocks (BEiT's pre-training)");
    v("peg", peg, "conditional positional encoding after the first block (CPVT)");
    visit_drop_path(v);
  }

  void check() const {
    check_size();
    if (reads_token() && !class_token)
      fail_usage("model.global_pool = \"", name_of(global_pool), "\" needs class_token = true");
    if (global_pool == VitPool::token_avg && fc_norm == VitFcNorm::on)
      fail_usage("model.global_pool = \"token_avg\" goes with fc_norm = \"off\"");
    if (positions == VitPositions::relative && global_pool == VitPool::token)
      fail_usage(
          "model.positions = \"relative\" needs a pooling of patches, such as global_pool = \"avg\": a class "
          "token has no place, so that the last block would not learn any");
    if (fixed_table() && dim % 4 != 0)
      fail_usage("model.positions = \"", name_of(positions), "\" needs dim to be a multiple of 4");
    if (conv_stem && (patch_size != 16 || dim % 8 != 0 || pre_norm || drop_border))
      fail_usage("model.conv_stem goes with patch_size = 16, dim a multiple of 8, and neither pre_norm nor ",
                 "drop_border; they are ", patch_size, " and ", dim);
    if ((relative_table || shared_table) && (distilled || reg_tokens > 0))
      fail_usage(
          "model.relative_table and model.shared_table go with distilled = false and reg_tokens = 0: their "
          "table has rows for one "
          "class token");
    if ((relative_table || shared_table) &&
        (positions == VitPositions::relative || positions == VitPositions::alibi))
      fail_usage("model.relative_table or model.shared_table with model.positions = \"", name_of(positions),
                 "\": both are biases of offsets, must be one of them");
    if (mlp == nn::MlpForm::swiglu_packed && (hidden() % 2 != 0 || global_pool == VitPool::map))
      fail_usage("model.mlp = \"swiglu_packed\" goes with an even hidden width, it is ", hidden(),
                 ", and not with global_pool = \"map\"");
    if (qk_norm && (norm != NormKind::layer || norm_eps != 1e-6))
      fail_usage("model.qk_norm goes with norm = \"layer\" and norm_eps = 1e-6");
    if (hidden() < 1) fail_usage("model.mlp_ratio ", mlp_ratio, " leaves the MLP no hidden width");
    if (distilled && (global_pool != VitPool::token || fc_norm == VitFcNorm::on || !final_norm ||
                      no_embed_class || reg_tokens > 0))
      fail_usage(
          "model.distilled goes with global_pool = \"token\", a norm before it, positions for all tokens, "
          "and no reg_tokens");
  }

  bool fixed_table() const {
    return positions == VitPositions::sincos || positions == VitPositions::sincos_moco;
  }
  int64_t hidden() const { return static_cast<int64_t>(static_cast<double>(dim) * mlp_ratio); }
  bool reads_token() const { return global_pool == VitPool::token || global_pool == VitPool::token_avg; }
  int64_t read_width() const { return global_pool == VitPool::token_avg ? 2 * dim : dim; }
  bool norm_after_pooling() const {
    const bool of_all = !reads_token() && global_pool != VitPool::map;
    return fc_norm == VitFcNorm::on || (fc_norm == VitFcNorm::automatic && of_all);
  }
};

namespace vit {
// Returns the published sizes.
std::vector<Size> sizes();
}  // namespace vit

}  // namespace tessera::models
