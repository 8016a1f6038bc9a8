// VisionLLaMA, pyramid (Chu et al. 2024, "VisionLLaMA: a unified LLaMA backbone for vision tasks"): the
// stages of Twins-SVT with SwiGLU and 2-D RoPE. Parameters have the names of the published code.
//
//   LSA  q, k rotated by the place inside their window
//   GSA  q rotated by the place on the grid, k by that of its cells
//   scores = head(norm(mean over the tokens of norm(x_L)))
// AS2DRoPE multiplies GSA's positions by rope_anchor / rows of the stage's grid. If the paper and the
// published code differ, the code is the default. The paper's forms are auto_scale_local, rope_keys = "mean"
// and rope_anchor = [56, 28, 14, 7]; its Table 16 is windows = [7, 7, 7, 0].
#include <algorithm>

#include "core/error.h"
#include "models/backbones/twins_stages.h"

namespace tessera::models::visionllama_pyramid {
namespace {

enum class Positions { none, learned, sincos };
enum class RopeKeys { published, mean };

}  // namespace
}  // namespace tessera::models::visionllama_pyramid

template <>
struct tessera::EnumNames<tessera::models::visionllama_pyramid::Positions> {
  static constexpr std::array names = {"none", "learned", "sincos"};
};
template <>
struct tessera::EnumNames<tessera::models::visionllama_pyramid::RopeKeys> {
  static constexpr std::array names = {"published", "mean"};
};

namespace tessera::models::visionllama_pyramid {
namespace {

struct Config : TwinsSettings, RotarySettings {
  NormKind norm = NormKind::layer;
  PlainMlp mlp = PlainMlp::swiglu;
  Positions positions = Positions::none;
  double init_values = 1e-4;
  bool peg = false, stage_norms = false, final_norm = true;
  RopeKeys rope_keys = RopeKeys::published;
  double rope_ntk = 1;
  bool rope_ntk_keys = false, auto_scale = false, auto_scale_local = false;
  std::vector<double> rope_anchor = {14, 14, 14, 14};

  template <class V>
  void visit(V& v) {
    visit_stages(v);
    v("norm", norm, choice<NormKind>(), "in the blocks and before the head");
    v("mlp", mlp, choice<PlainMlp>(), "the MLP of a block");
    v("mlp_ratio", mlp_ratio, kMlpRatio, "hidden width of the gelu MLP as a multiple of the token's");
    v("qkv_bias", qkv_bias, "biases of q, k, v");
    v("init_values", init_values, "first value of layer scale, 0 = none");
    v("stage_norms", stage_norms,
      "a norm after every stage instead of the last alone (published segmentation backbone)");
    v("final_norm", final_norm,
      "the norm before the head (published segmentation backbone without stage norms: false)");
    v("positions", positions, choice<Positions>(), "absolute positions of every stage in addition to RoPE");
    v("peg", peg, "conditional positional encoding after the first block of a stage (Chu et al. 2021)");
    visit_rope(v);
    v("rope_ntk", rope_ntk, above(0), "NTK-aware scaling: the base of global attention's queries times this");
    v("rope_ntk_keys", rope_ntk_keys, "the same for its keys (the published code scales the queries alone)");
    v("rope_keys", rope_keys, choice<RopeKeys>(),
      "place of a sub-sampled key: published (s i + 1 - 1 / s, read in rows of the full grid) or mean (of "
      "its cells: s i + (s - 1) / 2)");
    v("auto_scale", auto_scale, "AS2DRoPE: positions times rope_anchor / rows of the stage's grid");
    v("auto_scale_local", auto_scale_local, "inside windows too (the paper's form)");
    v("rope_anchor", rope_anchor, above(0),
      "rows of each stage's grid at which positions are not scaled (published code: 14 in all stages)");
    visit_drop_path(v);
  }

  void check() const {
    check_stages();
    for (size_t s = 0; s < dims.size(); ++s) check_rope(dims[s], heads[s], text(" in stage ", s));
    if (auto_scale && rope_scaling != nn::RopeScalingKind::none)
      fail_usage("model.rope_scaling goes with auto_scale = false: both adapt to larger grids");
    if (rope_anchor.empty() || (rope_anchor.size() != dims.size() && !same_anchor()))
      fail_usage("model.rope_anchor has ", rope_anchor.size(), " numbers, must have one per stage, ",
                 dims.size(), ", or the same for all");
    if (positions == Positions::sincos &&
        std::any_of(dims.begin(), dims.end(), [](int64_t dim) { return dim % 4 != 0; }))
      fail_usage("model.positions = \"sincos\" needs dims that are multiples of 4");
  }

  bool same_anchor() const {
    return std::all_of(rope_anchor.begin(), rope_anchor.end(),
                       [this](double anchor) { return anchor == rope_anchor[0]; });
  }
  double anchor(size_t stage) const { return same_anchor() ? rope_anchor[0] : rope_anchor[stage]; }

  // Returns the grid of each stage for image_size.
  std::vector<Extent> grids() const {
    const Extent image = extent_of(image_size, "image_size");
    std::vector<Extent> all;
    for (int64_t s = 0, side = patch_size; s < static_cast<int64_t>(dims.size()); ++s, side *= 2)
      all.push_back({image.height / side, image.width / side});
    return all;
  }

  TwinsPlan plan() const {
    TwinsPlan plan = plan_stages(*this, kind_of(mlp));
    plan.pegs = peg ? "pegs" : "";
    plan.final_norm = final_norm && !stage_norms;
    plan.block.residual.norm = norm;
    plan.block.residual.eps = norm == NormKind::layer ? 1e-5 : 1e-6;
    plan.block.residual.init_values = init_values;
    for (size_t s = 0; s < dims.size(); ++s)
      plan.ropes.push_back({.rotary = *this,
                            .query_theta = rope_theta * rope_ntk,
                            .key_theta = rope_theta * (rope_ntk_keys ? rope_ntk : 1),
                            .mean_keys = rope_keys == RopeKeys::mean,
                            .anchor = auto_scale ? anchor(s) : 0,
                            .scale_local = auto_scale_local,
                            .built = grids()[s]});
    return plan;
  }
};

class PyramidVisionLlama final : public TwinsBackbone {
 public:
  explicit PyramidVisionLlama(const Config& config)
      : TwinsBackbone(config.plan()), config_(config), grids_(config.grids()) {
    torch::nn::ModuleList norms;
    auto tables = std::make_shared<torch::nn::Module>();
    if (config.stage_norms) register_module("norm_list", norms);
    if (config.positions == Positions::learned) register_module("pos_embeds", tables);
    for (size_t s = 0; s < config.dims.size(); ++s) {
      const std::string name = std::to_string(s);
      if (config.stage_norms)
        norms_.push_back(
            register_norm(*norms, name.c_str(), config.norm, config.dims[s], plan().block.residual.eps));
      if (config.positions == Positions::learned)
        pos_embeds_.push_back(tables->register_parameter(
            name, nn::zeros({1, grids_[s].height * grids_[s].width, config.dims[s]})));
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
    if (config_.positions == Positions::none) return x;
    const int64_t rows = x.size(1), columns = x.size(2), dim = x.size(3);
    const auto s = static_cast<size_t>(stage);
    const torch::Tensor table =
        config_.positions == Positions::sincos
            ? nn::sincos_2d(rows, columns, dim).to(x.options())
            : nn::resample_tokens(pos_embeds_[s], 0, grids_[s].height, grids_[s].width, rows, columns,
                                  nn::Resample::bicubic_antialias);
    return x + table.view({1, rows, columns, dim});
  }

  torch::Tensor leave(int64_t stage, const torch::Tensor& x) override {
    return config_.stage_norms ? norms_[static_cast<size_t>(stage)](x) : x;
  }

  torch::Tensor read(const torch::Tensor& x) override {
    return norm_ ? norm_(norm_(x).mean({1, 2})) : x.mean({1, 2});
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

// The published segmentation backbone.
Value segmentation(Value stages) {
  stages.set("stage_norms", true);
  stages.set("classes", 0);
  return stages;
}

Value auto_scaled(Value stages) {
  stages.set("auto_scale", true);
  return stages;
}

}  // namespace

Family family() {
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
          {"visionllama_pyramid_small_seg_224",
           {},
           segmentation(stages_table({64, 128, 256, 512}, {2, 2, 10, 4}, {2, 4, 8, 16}))},
          {"visionllama_pyramid_base_seg_224",
           {},
           segmentation(stages_table({96, 192, 384, 768}, depths, {3, 6, 12, 24}))},
          {"visionllama_pyramid_large_seg_224", {}, segmentation(stages_table(large, depths, heads))},
      });
}

}  // namespace tessera::models::visionllama_pyramid
