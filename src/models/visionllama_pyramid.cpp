// VisionLLaMA, pyramid (Chu et al. 2024, "VisionLLaMA: a unified LLaMA backbone for vision tasks"): the
// stages of Twins-SVT with SwiGLU and 2-D RoPE. Names of parameters are those of the published code.
//
//   LSA  q, k turned by the place inside their window;   GSA  q by the place on the grid, k by that of its
//   cells scores = head(norm(mean over the tokens of norm(x_L)))
// AS2DRoPE multiplies GSA's positions by rope_anchor / rows of the stage's grid. Where the paper and the
// published code differ, the code is the default: auto_scale_local, rope_keys = "mean" and rope_anchor = [56,
// 28, 14, 7] are the paper's forms, and windows = [7, 7, 7, 0] its Table 16.
#include <algorithm>

#include "core/error.h"
#include "models/twins_stages.h"

namespace tessera::models {
namespace {

struct Config {
  Value image_size = 224;
  int64_t patch_size = 4, classes = 1000;
  std::vector<int64_t> dims = {64, 128, 256, 512}, depths = {2, 2, 10, 4}, heads = {2, 4, 8, 16},
                       windows = {7, 7, 7, 7}, sub_sampling = {8, 4, 2, 1};
  std::string norm = "layer", mlp = "swiglu", positions = "none";
  double mlp_ratio = 4, init_values = 1e-4;
  bool qkv_bias = true, peg = false, stage_norms = false;
  std::string rope = "2d", rope_keys = "published";
  double rope_theta = 10000, rope_ratio = 1, rope_ntk = 1;
  bool rope_ntk_keys = false, rope_shared = true, auto_scale = false, auto_scale_local = false;
  std::vector<double> rope_anchor = {14, 14, 14, 14};
  double drop_path = 0;
  bool drop_path_decay = false;

  template <class V>
  void visit(V& v) {
    v("image_size", image_size, "side in pixels, or [height, width]");
    v("patch_size", patch_size, "side of a patch of the first stage in pixels; the others halve the grid");
    v("classes", classes, "outputs of the head, 0 = no head");
    v("dims", dims, "width of a token, a stage each");
    v("depths", depths, "blocks");
    v("heads", heads, "attention heads");
    v("windows", windows, "side of the windows of every second block, 0 = global attention in all");
    v("sub_sampling", sub_sampling, "cells along a side that share a key of global attention");
    v("norm", norm, "layer or rms, in the blocks and before the head");
    v("mlp", mlp, "swiglu or gelu");
    v("mlp_ratio", mlp_ratio, "hidden width of the gelu MLP as a multiple of the token's");
    v("qkv_bias", qkv_bias, "biases of q, k, v");
    v("init_values", init_values, "first value of layer scale, 0 = none");
    v("stage_norms", stage_norms,
      "a norm behind every stage instead of the last alone (published segmentation backbone)");
    v("positions", positions, "absolute positions of every stage besides RoPE: none, learned, sincos");
    v("peg", peg, "conditional positional encoding after the first block of a stage (Chu et al. 2021)");
    v("rope", rope, "2d, 1d or none");
    v("rope_theta", rope_theta, "base of the rotary frequencies");
    v("rope_ratio", rope_ratio, "share of each head's channels that is turned");
    v("rope_shared", rope_shared, "one table for all heads, else one over the whole width, a piece a head");
    v("rope_ntk", rope_ntk, "NTK-aware scaling: the base of global attention's queries times this");
    v("rope_ntk_keys", rope_ntk_keys, "of its keys too (the published code scales the queries alone)");
    v("rope_keys", rope_keys,
      "where a sub-sampled key stands: published (s i + 1 - 1 / s, read in rows of the full grid) or mean "
      "(of "
      "its cells: s i + (s - 1) / 2)");
    v("auto_scale", auto_scale, "AS2DRoPE: positions times rope_anchor / rows of the stage's grid");
    v("auto_scale_local", auto_scale_local, "inside windows too (the paper's form)");
    v("rope_anchor", rope_anchor,
      "rows of each stage's grid whose positions are not scaled (published code: 14 in all stages)");
    v("drop_path", drop_path, "rate of stochastic depth");
    v("drop_path_decay", drop_path_decay,
      "from 0 at the first block to drop_path at the last, else the same for all");
  }

  int64_t rope_channels(size_t stage) const {
    const int64_t width = rope_shared ? dims[stage] / heads[stage] : dims[stage];
    return rope == "none" ? 0 : static_cast<int64_t>(static_cast<double>(width) * rope_ratio);
  }

  void check() const {
    check_stages(image_size, patch_size, dims, depths, heads, windows, sub_sampling);
    check_choice("norm", norm, {"layer", "rms"});
    check_choice("mlp", mlp, {"swiglu", "gelu"});
    check_choice("positions", positions, {"none", "learned", "sincos"});
    check_choice("rope", rope, {"2d", "1d", "none"});
    check_choice("rope_keys", rope_keys, {"published", "mean"});
    check_share("rope_ratio", rope_ratio, 1);
    check_rate("drop_path", drop_path);
    if (classes < 0 || mlp_ratio <= 0)
      fail_usage("model.classes must not be negative, model.mlp_ratio must be positive");
    if (rope_theta <= 0 || rope_ntk <= 0) fail_usage("model.rope_theta and rope_ntk must be positive");
    if (rope_anchor.size() != dims.size() ||
        std::any_of(rope_anchor.begin(), rope_anchor.end(), [](double rows) { return !(rows > 0); }))
      fail_usage("model.rope_anchor must have a positive number a stage");
    for (size_t s = 0; s < dims.size(); ++s) {
      const int64_t step = (rope == "1d" ? 2 : 4) * (rope_shared ? 1 : heads[s]);
      if (rope_channels(s) % step != 0)
        fail_usage("model.rope = \"", rope, "\" turns ", rope_channels(s), " channels in stage ", s,
                   ", must be a multiple of ", step);
      if (positions == "sincos" && dims[s] % 4 != 0)
        fail_usage("model.positions = \"sincos\" needs dims that are multiples of 4");
    }
  }

  TwinsPlan plan() const {
    TwinsPlan plan{.patch_size = patch_size,
                   .classes = classes,
                   .dims = dims,
                   .depths = depths,
                   .heads = heads,
                   .windows = windows,
                   .sub_sampling = sub_sampling,
                   .hidden = {},
                   .drop_path = drop_path,
                   .drop_path_decay = drop_path_decay,
                   .pegs = peg ? "pegs" : "",
                   .final_norm = !stage_norms};
    plan.block.residual.norm = norm;
    plan.block.residual.eps = norm == "layer" ? 1e-5 : 1e-6;
    plan.block.residual.mlp = mlp;
    plan.block.residual.init_values = init_values;
    plan.block.qkv_bias = qkv_bias;
    for (size_t s = 0; s < dims.size(); ++s) {
      plan.hidden.push_back(default_hidden(mlp, dims[s], mlp_ratio));
      plan.ropes.push_back({.channels = rope_channels(s),
                            .shared = rope_shared,
                            .flat = rope == "1d",
                            .theta = rope_theta,
                            .query_theta = rope_theta * rope_ntk,
                            .key_theta = rope_theta * (rope_ntk_keys ? rope_ntk : 1),
                            .mean_keys = rope_keys == "mean",
                            .anchor = auto_scale ? rope_anchor[s] : 0,
                            .scale_local = auto_scale_local});
    }
    return plan;
  }
};

class PyramidVisionLlama final : public TwinsBackbone {
 public:
  explicit PyramidVisionLlama(const Config& config) : TwinsBackbone(config.plan()), config_(config) {
    const Extent image = extent_of(config.image_size, "image_size");
    int64_t rows = image.height / config.patch_size, columns = image.width / config.patch_size;
    torch::nn::ModuleList norms;
    auto tables = std::make_shared<torch::nn::Module>();
    if (config.stage_norms) register_module("norm_list", norms);
    if (config.positions == "learned") register_module("pos_embeds", tables);
    for (size_t s = 0; s < config.dims.size(); ++s, rows /= 2, columns /= 2) {
      const std::string name = std::to_string(s);
      grids_.push_back({rows, columns});
      if (config.stage_norms)
        norms_.push_back(
            register_norm(*norms, name.c_str(), config.norm, config.dims[s], plan().block.residual.eps));
      if (config.positions == "learned")
        pos_embeds_.push_back(
            tables->register_parameter(name, nn::zeros({1, rows * columns, config.dims[s]})));
    }
  }

  std::vector<std::string> no_weight_decay() const override {
    std::vector<std::string> names;
    for (size_t s = 0; s < pos_embeds_.size(); ++s) names.push_back("pos_embeds." + std::to_string(s));
    return names;
  }

  torch::Tensor fit(const std::string& name, const torch::Tensor& stored) const override {
    for (size_t s = 0; s < pos_embeds_.size(); ++s)
      if (name == "pos_embeds." + std::to_string(s))
        return nn::fit_square_tokens(stored, 0, grids_[s].height, grids_[s].width, config_.dims[s],
                                     nn::Resample::bicubic_antialias);
    return {};
  }

 protected:
  torch::Tensor enter(int64_t stage, const torch::Tensor& before) override {
    const torch::Tensor x = TwinsBackbone::enter(stage, before);
    if (config_.positions == "none") return x;
    const int64_t rows = x.size(1), columns = x.size(2), dim = x.size(3);
    const auto s = static_cast<size_t>(stage);
    const torch::Tensor table =
        config_.positions == "sincos"
            ? nn::sincos_2d(rows, columns, dim).to(x.options())
            : nn::resample_tokens(pos_embeds_[s], 0, grids_[s].height, grids_[s].width, rows, columns,
                                  nn::Resample::bicubic_antialias);
    return x + table.view({1, rows, columns, dim});
  }

  torch::Tensor leave(int64_t stage, const torch::Tensor& x) override {
    return config_.stage_norms ? norms_[static_cast<size_t>(stage)](x) : x;
  }

  torch::Tensor read(const torch::Tensor& x) override {
    return config_.stage_norms ? x.mean({1, 2}) : norm_(norm_(x).mean({1, 2}));
  }

  void first_values(const std::string& name, const torch::Tensor& parameter,
                    const nn::Filler& fill) const override {
    if (name.starts_with("pos_embeds.")) fill.truncated_normal(0.02);
    TwinsBackbone::first_values(name, parameter, fill);
  }

 private:
  Config config_;
  std::vector<Extent> grids_;
  std::vector<Norm> norms_;
  std::vector<torch::Tensor> pos_embeds_;
};

Value auto_scaled(Value stages) {
  stages.set("auto_scale", true);
  return stages;
}

}  // namespace

Family visionllama_pyramid_family() {
  const std::vector<int64_t> large = {128, 256, 512, 1024}, heads = {4, 8, 16, 32}, depths = {2, 2, 18, 2};
  return make_family<PyramidVisionLlama, Config>(
      "visionllama_pyramid", "VisionLLaMA, pyramid: Twins-SVT with 2-D RoPE and SwiGLU, four stages",
      {
          {"visionllama_pyramid_small_224",
           {"pllama_wols_small_patch16"},
           stages_table({64, 128, 256, 512}, {2, 2, 10, 4}, {2, 4, 8, 16})},
          {"visionllama_pyramid_base_224",
           {"pllama_wols_base_patch16"},
           stages_table({96, 192, 384, 768}, depths, {3, 6, 12, 24})},
          {"visionllama_pyramid_large_224",
           {"pllama_wols_large_patch16"},
           stages_table(large, depths, heads)},
          {"visionllama_pyramid_large_as_224",
           {"pllama_wols_large_as_patch16"},
           auto_scaled(stages_table(large, depths, heads))},
      });
}

}  // namespace tessera::models
