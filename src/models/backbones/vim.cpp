// Vision Mamba (Zhu et al. 2024, "Vision Mamba: efficient visual representation learning with bidirectional
// state space model"). Parameters have the names of the published code; its layers.N are blocks.N here.
//
//   x' = x + mamba(norm(x))                   a scan from the first token and one from the last
//   scores = head(norm_f(x_L)[class token])   in the middle of the patches, before them, or one at each end
// The published code adds the mixer's output to the residual at the start of the next block (Add, Norm,
// Mixer), which gives the same sum. Its float residual corresponds to x here.
#include <cmath>

#include "core/error.h"
#include "core/random.h"
#include "models/base/family.h"
#include "models/base/isotropic.h"
#include "models/base/patch_mask.h"
#include "nn/drop_path.h"
#include "nn/init.h"
#include "nn/mamba.h"
#include "nn/patch_embed.h"
#include "nn/position.h"
#include "nn/rope.h"

namespace tessera::models::vim {
namespace {

enum class ClassToken { middle, head, both, none };
enum class Pooling { mean, last, max };
enum class StepInit { random, constant };

}  // namespace
}  // namespace tessera::models::vim

template <>
struct tessera::EnumNames<tessera::models::vim::ClassToken> {
  static constexpr std::array names = {"middle", "head", "both", "none"};
};
template <>
struct tessera::EnumNames<tessera::models::vim::Pooling> {
  static constexpr std::array names = {"mean", "last", "max"};
};
template <>
struct tessera::EnumNames<tessera::models::vim::StepInit> {
  static constexpr std::array names = {"random", "constant"};
};
template <>
struct tessera::EnumNames<tessera::nn::MambaDirections> {
  static constexpr std::array names = {"none", "v1", "v2"};
};

namespace tessera::models::vim {
namespace {

struct Config : IsotropicSettings {
  int64_t stride = 0, state = 16, conv_kernel = 4, expand = 2, dt_rank = 0;
  nn::MambaDirections directions = nn::MambaDirections::v2;
  bool divide = true, conv_bias = true, proj_bias = false, positions = true;
  ClassToken class_token = ClassToken::middle;
  Pooling pooling = Pooling::mean;
  NormKind norm = NormKind::rms;
  double norm_eps = 1e-5, init_values = 0;
  bool rope = false, rope_residual = false, layer_pairs = false;
  int64_t rope_span = 14;
  double flip_ratio = 0;
  double dt_min = 0.001, dt_max = 0.1, dt_scale = 1, dt_floor = 1e-4;
  StepInit dt_init = StepInit::random;

  Config() { depth = 24, heads = 1, drop_path_decay = true; }

  template <class V>
  void visit(V& v) {
    v("image_size", image_size, "side in pixels, or [height, width]");
    v("in_channels", in_channels, kInChannels, "channels of an image: 3, 1 for grey ones, or more bands");
    v("patch_size", patch_size, kPatchSize, "side of a patch in pixels");
    v("stride", stride, between(0, 1024), "pixels between patches, 0 = patch_size");
    v("dim", dim, kWidth, "width of a token");
    v("depth", depth, kDepth, "blocks");
    v("class_token", class_token, choice<ClassToken>(),
      "in the middle, before the patches, one at each end, or none");
    v("pooling", pooling, choice<Pooling>(),
      "without class token: mean or last token, or the largest scores of all");
    v("norm", norm, choice<NormKind>(), "in the blocks and before the head");
    v("norm_eps", norm_eps, above(0), "added to the variance");
    v("positions", positions, "learned absolute positions");
    visit_mixer(v);
    v("layer_pairs", layer_pairs,
      "blocks in pairs, the second one on the flipped tokens; their outputs are added");
    v("rope", rope, "rotary positions of the tokens before every block");
    v("rope_residual", rope_residual, "rotate the residual as well");
    v("rope_span", rope_span, between(1, 4096), "patches of a side that the rotary positions span");
    v("flip_ratio", flip_ratio, between(0, 1), "share of the training steps with all sequences flipped");
    visit_drop_path(v);
  }

  template <class V>
  void visit_mixer(V& v) {
    v("state", state, between(1, 4096), "states per channel of the scan");
    v("conv_kernel", conv_kernel, between(1, 64), "tokens of the causal convolution");
    v("expand", expand, between(1, 64), "inner width as a multiple of dim");
    v("dt_rank", dt_rank, between(0, 65536), "rank of the step sizes, 0 = dim / 16 rounded up");
    v("directions", directions, choice<nn::MambaDirections>(),
      "one; v1: two that share all but A; v2: two with layers of their own");
    v("divide", divide, "v2: the mean of the two directions instead of the sum");
    v("conv_bias", conv_bias, "bias of the convolution");
    v("proj_bias", proj_bias, "biases of in_proj and out_proj");
    v("init_values", init_values, at_least(0), "first value of the mixer's layer scale, 0 = none");
    v("dt_init", dt_init, choice<StepInit>(), "first weights of dt_proj");
    v("dt_scale", dt_scale, above(0), "factor of their size, dt_rank^-0.5");
    v("dt_min", dt_min, above(0), "smallest first step size");
    v("dt_max", dt_max, above(0), "largest first step size");
    v("dt_floor", dt_floor, above(0), "lower bound of the first step sizes");
  }

  int64_t step() const { return stride > 0 ? stride : patch_size; }
  int64_t along(int64_t pixels) const { return (pixels - patch_size) / step() + 1; }
  Extent strided_grid() const {
    const Extent image = extent_of(image_size, "image_size");
    return {along(image.height), along(image.width)};
  }
  int64_t class_tokens() const {
    return class_token == ClassToken::none ? 0 : class_token == ClassToken::both ? 2 : 1;
  }

  void check() const {
    check_grid(image_size, patch_size);
    if (stride > patch_size)
      fail_usage("model.stride = ", stride, " leaves out pixels, must be at most patch_size = ", patch_size);
    const Extent grid = strided_grid();
    check_tokens(grid.height, grid.width, dim);
    if (dt_min > dt_max) fail_usage("model.dt_min = ", dt_min, " is above dt_max = ", dt_max);
    if (layer_pairs && depth % 2 != 0)
      fail_usage("model.layer_pairs = true needs an even depth, not ", depth);
    if (rope_residual && !rope) fail_usage("model.rope_residual = true goes with rope = true");
    if (rope) check_rope(grid.height * grid.width);
  }

  // If the number of tokens is odd, the published rotation skips the first one; the others must be as many as
  // the patches.
  void check_rope(int64_t patches) const {
    if (dim % 4 != 0) fail_usage("model.rope = true needs dim to be a multiple of 4, not ", dim);
    if (class_tokens() == 2 || patches % 2 != 0)
      fail_usage("model.rope = true needs an even number of patches (here ", patches,
                 ") and at most one class token");
  }

  nn::MambaOptions mixer() const {
    return {.dim = dim,
            .state = state,
            .kernel = conv_kernel,
            .inner = expand * dim,
            .dt_rank = dt_rank > 0 ? dt_rank : (dim + 15) / 16,
            .directions = directions,
            .divide = divide,
            .conv_bias = conv_bias,
            .bias = proj_bias,
            .init_values = init_values};
  }
};

// One norm and one mixer.
class VimBlock final : public torch::nn::Module {
 public:
  explicit VimBlock(const Config& config) {
    mixer_ = register_module("mixer", nn::Mamba(config.mixer()));
    norm_ = register_norm(*this, "norm", config.norm, config.dim, config.norm_eps);
  }
  torch::Tensor forward(const torch::Tensor& x, const nn::Epilogue& epilogue, bool flipped) {
    return mixer_->forward(norm_.before_linear(x), epilogue, flipped);
  }
  int64_t macs() const { return mixer_->macs(); }  // per token

 private:
  nn::Mamba mixer_{nullptr};
  Norm norm_;
};

class Vim final : public IsotropicBackbone, public MasksPatches {
 public:
  explicit Vim(const Config& config) : config_(config), grid_(config.strided_grid()) {
    const auto token = [&](const char* name) {
      return register_parameter(name, nn::zeros({1, 1, config.dim}));
    };
    if (config.class_token == ClassToken::both)
      class_tokens_ = {token("cls_token_head"), token("cls_token_tail")};
    else if (config.class_token != ClassToken::none)
      class_tokens_ = {token("cls_token")};
    if (config.positions)
      pos_embed_ = register_parameter(
          "pos_embed", nn::zeros({1, grid_.height * grid_.width + config.class_tokens(), config.dim}));
    patch_embed_ = register_module("patch_embed", nn::PatchEmbed(config.patch_size, config.dim, config.step(),
                                                                 true, config.in_channels));
    rates_ = config.drop_path_rates(config.depth);
    for (int64_t i = 0; i < config.depth; ++i) {
      blocks_.push_back(std::make_shared<VimBlock>(config));
      add_block(blocks_.back());
    }
    norm_f_ = register_norm(*this, "norm_f", config.norm, config.dim, config.norm_eps);
  }

  int64_t embed_width() const override { return config_.dim; }
  int64_t token_width() const override { return config_.dim; }
  int64_t mask_width() const override { return config_.dim; }
  int64_t map_stride() const override { return config_.step(); }
  int64_t map_width() const override { return config_.dim; }

  // With pooling "max", the head reads all tokens.
  std::vector<torch::Tensor> read_outs(const torch::Tensor& images, const Context& context) override {
    if (config_.class_tokens() > 0 || config_.pooling != Pooling::max) return {embed(images, context)};
    return {encode(tokenise(images, context), context, {}).tokens};
  }

  int64_t macs(int64_t height, int64_t width) const override {
    int64_t per_token = 0;
    for (const auto& block : blocks_) per_token += block->macs();
    const int64_t tokens = config_.along(height) * config_.along(width) + config_.class_tokens();
    return patch_embed_->macs(height, width) + tokens * per_token;
  }

  std::vector<std::string> no_weight_decay() const override {
    return {"pos_embed", "cls_token", "cls_token_head", "cls_token_tail"};
  }

  std::vector<std::vector<torch::Tensor>> units() const override {
    return config_.layer_pairs ? std::vector<std::vector<torch::Tensor>>() : IsotropicBackbone::units();
  }

  void set_checkpointing(bool on) override {
    if (on && config_.layer_pairs)
      fail_usage("model.layer_pairs = true runs two blocks at once, so their values cannot be recomputed");
    IsotropicBackbone::set_checkpointing(on);
  }

  torch::Tensor fit(const std::string& name, const torch::Tensor& stored) const override {
    if (name != "pos_embed" || !pos_embed_.defined() || stored.dim() != 3 || stored.size(2) != config_.dim)
      return {};
    const int64_t patches = stored.size(1) - config_.class_tokens();
    const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(std::max<int64_t>(patches, 0))));
    if (patches < 1 || side * side != patches) return {};
    return resampled(stored, {side, side}, grid_);
  }

  Tokens tokenise(const torch::Tensor& images, const Context&) override {
    const torch::Tensor patches = with_mask_tokens(patch_embed_(images));
    const Extent grid{patches.size(1), patches.size(2)};
    Tokens tokens;
    static_cast<TokenPlaces&>(tokens) = places(grid);
    std::vector<torch::Tensor> others;
    for (const torch::Tensor& token : class_tokens_)
      others.push_back(token.expand({patches.size(0), -1, -1}));
    torch::Tensor x = assembled(patches.flatten(1, 2), others);
    if (pos_embed_.defined()) x = x + resampled(pos_embed_, grid_, grid);
    if (config_.rope) tokens.extras.rotation = rotation(grid);
    tokens.x = rotated(x, tokens.extras.rotation, {});
    return tokens;
  }

  void first_values(const std::string& name, const torch::Tensor& parameter,
                    const nn::Filler& fill) const override;

 protected:
  torch::Tensor last_map(const torch::Tensor& images, bool normed, const Context& context) override {
    return last_map_of(*this, images, normed, context);
  }

  torch::Tensor run_block(int64_t index, const torch::Tensor& x, const Tokens& tokens,
                          const Context& context) override {
    if (config_.layer_pairs && index % 2 == 0) return x;  // the second block of its pair runs both
    const bool flipped = flips(context), last = index + 1 == config_.depth;
    const nn::Rotation turn = last ? nn::Rotation() : tokens.extras.rotation;
    const auto branch = [&](const torch::Tensor& kept, const nn::Epilogue& epilogue,
                            const torch::Tensor& samples) {
      if (!turn.defined() && !config_.layer_pairs) return block(index).forward(kept, epilogue, flipped);
      torch::Tensor y = block(index).forward(kept, {}, flipped != config_.layer_pairs);
      if (config_.layer_pairs) y = y + block(index - 1).forward(kept, {}, flipped);
      if (!config_.rope_residual) y = rotated(y, turn, samples);
      return epilogue.residual.defined() ? epilogue.residual + y : y;
    };
    torch::Tensor y =
        nn::residual(x, {}, rates_[static_cast<size_t>(index)], is_training(), index, context, branch);
    if (config_.layer_pairs) y = y + x;  // both blocks of a pair count the residual
    return config_.rope_residual ? rotated(y, turn, {}) : y;
  }

  torch::Tensor norm_tokens(const torch::Tensor& last) override { return norm_f_(last); }

  torch::Tensor read(const torch::Tensor& x, const TokenPlaces& places, const Context&) override {
    switch (config_.class_token) {
      case ClassToken::middle:
        return norm_f_(x.select(1, places.patches() / 2));
      case ClassToken::head:
        return norm_f_(x.select(1, 0));
      case ClassToken::both:
        return (norm_f_(x.select(1, 0)) + norm_f_(x.select(1, -1))) / 2;
      case ClassToken::none:
        break;
    }
    return config_.pooling == Pooling::last ? norm_f_(x.select(1, -1)) : norm_f_(x).mean(1);
  }

 private:
  VimBlock& block(int64_t index) { return *blocks_[static_cast<size_t>(index)]; }

  // True if this training step reads all sequences in reverse.
  bool flips(const Context& context) const {
    return is_training() && config_.flip_ratio > 0 &&
           RandomStream(context.seed, "vim flip", context.step).chance(config_.flip_ratio);
  }

  TokenPlaces places(const Extent& grid) const {
    TokenPlaces p;
    p.rows = grid.height, p.columns = grid.width;
    p.before = config_.class_token == ClassToken::head || config_.class_token == ClassToken::both ? 1 : 0;
    p.middle = config_.class_token == ClassToken::middle ? 1 : 0;
    p.behind = config_.class_token == ClassToken::both ? 1 : 0;
    return p;
  }

  // Returns patches [batch, patches, dim] with the class tokens inserted.
  torch::Tensor assembled(const torch::Tensor& patches, const std::vector<torch::Tensor>& others) const {
    const int64_t half = patches.size(1) / 2;
    switch (config_.class_token) {
      case ClassToken::middle:
        return torch::cat({patches.slice(1, 0, half), others[0], patches.slice(1, half)}, 1);
      case ClassToken::head:
        return torch::cat({others[0], patches}, 1);
      case ClassToken::both:
        return torch::cat({others[0], patches, others[1]}, 1);
      case ClassToken::none:
        break;
    }
    return patches;
  }

  // Resizes the position table of one grid to another; class tokens keep theirs.
  torch::Tensor resampled(const torch::Tensor& table, const Extent& from, const Extent& to) const {
    if (from.height == to.height && from.width == to.width) return table;
    const TokenPlaces old = places(from);
    std::vector<torch::Tensor> others;
    for (const int64_t at : old.others()) others.push_back(table.slice(1, at, at + 1));
    const torch::Tensor patches = nn::resample_tokens(old.patches_of(table), 0, from.height, from.width,
                                                      to.height, to.width, nn::Resample::bicubic);
    return assembled(patches, others);
  }

  // Rows rotate the first half of the channels, columns the second. If the number of tokens is odd, the first
  // one is not rotated, wherever the class token is.
  nn::Rotation rotation(const Extent& grid) const {
    const auto span = static_cast<double>(config_.rope_span);
    const nn::GridPositions at = nn::grid_positions(0, grid.height * grid.width, grid.width);
    nn::Rotation turn = nn::rotation_halves(at.y * (span / static_cast<double>(grid.height)),
                                            at.x * (span / static_cast<double>(grid.width)), config_.dim);
    if (config_.class_tokens() > 0) turn.angles = torch::constant_pad_nd(turn.angles, {0, 0, 1, 0});
    return turn;
  }

  // x [samples, tokens, dim]; `samples` are the batch indices of x, if each sample has a separate rotation.
  static torch::Tensor rotated(const torch::Tensor& x, const nn::Rotation& rotation,
                               const torch::Tensor& samples) {
    if (!rotation.defined()) return x;
    nn::Rotation turn = rotation;
    if (samples.defined() && turn.angles.dim() == 4)
      turn.angles = turn.angles.index_select(0, samples.to(turn.angles.device()));
    return nn::rotate(x.unsqueeze(1), turn).squeeze(1);
  }

  Config config_;
  Extent grid_;
  std::vector<torch::Tensor> class_tokens_;
  torch::Tensor pos_embed_;
  nn::PatchEmbed patch_embed_{nullptr};
  std::vector<double> rates_;
  std::vector<std::shared_ptr<VimBlock>> blocks_;
  Norm norm_f_;
};

// Biases of dt_proj: softplus of them is log-uniform between dt_min and dt_max.
void fill_step_sizes(const Config& config, const torch::Tensor& parameter, const nn::Filler& fill) {
  fill.uniform(1);
  const double low = std::log(config.dt_min), high = std::log(config.dt_max);
  const torch::Tensor share = (parameter.to(torch::kFloat64) + 1) / 2;
  const torch::Tensor dt = torch::exp(share * (high - low) + low).clamp_min(config.dt_floor);
  parameter.copy_(dt + torch::log(-torch::expm1(-dt)));
}

void Vim::first_values(const std::string& name, const torch::Tensor& parameter,
                       const nn::Filler& fill) const {
  using nn::ends_with;
  constexpr double kTruncation = 0.87962566103423978;  // deviation of a normal cut at two deviations
  const nn::MambaOptions mixer = config_.mixer();
  const double step_bound = config_.dt_scale / std::sqrt(static_cast<double>(mixer.dt_rank));
  const auto pixels = static_cast<double>(config_.in_channels * config_.patch_size * config_.patch_size);
  if (name == "patch_embed.proj.weight")
    fill.truncated_normal(std::sqrt(1 / pixels) / kTruncation);
  else if (name == "pos_embed" || name.starts_with("cls_token") || name == "head.weight")
    fill.truncated_normal(0.02);
  else if (ends_with(name, "A_log") || ends_with(name, "A_b_log"))
    parameter.copy_(torch::log(torch::arange(1, mixer.state + 1, torch::kFloat64)).expand(parameter.sizes()));
  else if (ends_with(name, ".dt_proj.bias"))
    fill_step_sizes(config_, parameter, fill);
  else if (ends_with(name, ".dt_proj.weight") && config_.dt_init == StepInit::constant)
    fill.constant(step_bound);
  else if (ends_with(name, ".dt_proj.weight"))
    fill.uniform(step_bound);
  else if (ends_with(name, "out_proj.weight"))
    fill.uniform(1 / std::sqrt(static_cast<double>(mixer.inner * config_.depth)));
  else if (name.find(".conv1d") != std::string::npos)
    fill.fan_in_uniform(mixer.kernel);
  else if (parameter.dim() == 2)
    fill.fan_in_uniform(parameter.size(1));
}

Value size(int64_t dim, int64_t stride = 0) { return table({{"dim", dim}, {"stride", stride}}); }

}  // namespace

Family family() {
  const std::string published = "_bimambav2_final_pool_mean_abs_pos_embed_with_midclstok_div2";
  const auto names = [&](const std::string& name) { return std::vector<std::string>{name + published}; };
  return make_family<Vim, Config>(
      "vim", "Vision Mamba: selective scans in two directions",
      {
          {"vim_tiny_patch16_224", names("vim_tiny_patch16_224"), size(192)},
          {"vim_small_patch16_224", names("vim_small_patch16_224"), size(384)},
          {"vim_base_patch16_224",
           {"vim_base_patch16_224_bimambav2_final_pool_mean_abs_pos_embed_with_middle_cls_token_div2"},
           size(768)},
          {"vim_tiny_patch16_stride8_224", names("vim_tiny_patch16_stride8_224"), size(192, 8)},
          {"vim_small_patch16_stride8_224", names("vim_small_patch16_stride8_224"), size(384, 8)},
      });
}

}  // namespace tessera::models::vim
