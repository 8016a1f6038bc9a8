#include "models/backbones/twins_stages.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "models/base/windows.h"
#include "nn/init.h"

namespace tessera::models {
namespace {

constexpr double kEmbedEps = 1e-5;  // norms after a convolution, in both published codes

}  // namespace

SubsampledAttentionImpl::SubsampledAttentionImpl(int64_t width, int64_t heads, int64_t sub_sampling,
                                                 bool qkv_bias)
    : heads_(heads), sub_sampling_(sub_sampling) {
  q_ = register_module("q", nn::Linear(width, width, qkv_bias));
  kv_ = register_module("kv", nn::Linear(width, 2 * width, qkv_bias));
  proj_ = register_module("proj", nn::Linear(width, width));
  if (sub_sampling == 1) return;
  const auto sr = register_module("sr", std::make_shared<torch::nn::Module>());
  sr_weight_ = sr->register_parameter("weight", nn::zeros({width, width, sub_sampling, sub_sampling}));
  sr_bias_ = sr->register_parameter("bias", nn::zeros({width}));
  norm_ = register_module("norm", nn::LayerNorm(width, nn::LayerNormOptions{.eps = kEmbedEps}));
}

torch::Tensor SubsampledAttentionImpl::forward(const torch::Tensor& x, const nn::AttentionExtras& extras,
                                               const nn::Epilogue& epilogue) {
  const int64_t batch = x.size(0), width = x.size(3);
  const auto per_head = [&](const torch::Tensor& tokens, int64_t parts) {
    return tokens.view({batch, -1, parts, heads_, width / heads_}).permute({2, 0, 3, 1, 4});
  };
  const torch::Tensor sampled =
      norm_ ? norm_(nn::embed_patches(x.permute({0, 3, 1, 2}), sr_weight_, sr_bias_, *sr_cache_)) : x;
  const torch::Tensor q = per_head(q_(x), 1)[0], kv = per_head(kv_(sampled), 2);
  const torch::Tensor mixed = nn::attend(q, kv[0], kv[1], extras);
  return proj_->forward(mixed.transpose(1, 2).reshape(x.sizes()), epilogue);
}

int64_t SubsampledAttentionImpl::macs(int64_t rows, int64_t columns) const {
  const int64_t queries = rows * columns, keys = (rows / sub_sampling_) * (columns / sub_sampling_);
  const int64_t width = proj_->weight.size(0);
  return queries * (q_->macs() + proj_->macs()) + 2 * queries * keys * width +
         keys * (kv_->macs() + (sr_weight_.defined() ? sr_weight_.numel() : 0));
}

TwinsBlock::TwinsBlock(const TwinsBlockOptions& options)
    : ResidualBlock(options.residual),
      dim_(options.residual.dim),
      heads_(options.heads),
      window_(options.window),
      sub_sampling_(options.sub_sampling),
      rope_(options.rope) {
  if (window_ > 0)
    local_ = register_module("attn", nn::Attention(dim_, heads_, options.qkv_bias));
  else
    global_ = register_module("attn", SubsampledAttention(dim_, heads_, sub_sampling_, options.qkv_bias));
}

torch::Tensor TwinsBlock::forward(const torch::Tensor& x, const Context& context) {
  return apply(x, context,
               [&](const torch::Tensor& normed, const nn::Epilogue& epilogue, const torch::Tensor&) {
                 return local_ ? attend_in_windows(normed, context, epilogue)
                               : attend_globally(normed, context, epilogue);
               });
}

nn::Rotation TwinsBlock::rotation(const nn::GridPositions& at, int64_t columns, double scale, double theta,
                                  const nn::RopeScaling& scaling) const {
  return rope_.rotary.rotation({at.x * scale, at.y * scale}, columns, dim_, heads_, theta, scaling);
}

torch::Tensor TwinsBlock::attend_in_windows(const torch::Tensor& x, const Context& context,
                                            const nn::Epilogue& epilogue) {
  const int64_t rows = x.size(1), columns = x.size(2);
  nn::AttentionExtras extras{.taps = context.taps, .name = tap_name()};
  if (rope_.rotary.rope != Rope::none) {
    const bool scaled = rope_.anchor > 0 && rope_.scale_local;
    const double scale = scaled ? rope_.anchor / static_cast<double>(rows) : 1;
    extras.rotation = rotation(nn::grid_positions(0, window_ * window_, window_), window_, scale,
                               rope_.rotary.rope_theta, {});
  }
  const torch::Tensor mixed = local_->mix(to_windows(x, window_, window_), extras);
  return local_->output(from_windows(mixed, window_, window_, rows, columns), epilogue);
}

torch::Tensor TwinsBlock::attend_globally(const torch::Tensor& x, const Context& context,
                                          const nn::Epilogue& epilogue) {
  const int64_t rows = x.size(1), columns = x.size(2);
  nn::AttentionExtras extras{.taps = context.taps, .name = tap_name()};
  if (rope_.rotary.rope != Rope::none) {
    const double scale = rope_.anchor > 0 ? rope_.anchor / static_cast<double>(rows) : 1;
    const nn::RopeScaling scaling = rope_.rotary.scaling(rope_.built, {rows, columns});
    extras.rotation =
        rotation(nn::grid_positions(0, rows * columns, columns), columns, scale, rope_.query_theta, scaling);
    const int64_t across = columns / sub_sampling_, count = rows / sub_sampling_ * across;
    const auto step = static_cast<double>(sub_sampling_);
    nn::GridPositions at = nn::grid_positions(0, count, rope_.mean_keys ? across : columns);
    const double first = rope_.mean_keys ? (step - 1) / 2 : 1 - 1 / step;
    at.x = first + step * at.x;
    at.y = first + step * at.y;
    extras.key_rotation = rotation(at, columns, scale, rope_.key_theta, scaling);
  }
  return global_(x, extras, epilogue);
}

int64_t TwinsBlock::macs(int64_t rows, int64_t columns) const {
  const int64_t mlp = rows * columns * mlp_macs();
  if (global_) return mlp + global_->macs(rows, columns);
  const int64_t windows = ((rows + window_ - 1) / window_) * ((columns + window_ - 1) / window_);
  return mlp + windows * local_->mix_macs(window_ * window_) + rows * columns * local_->output_macs();
}

TwinsBackbone::StageEmbed::StageEmbed(int64_t patch, int64_t channels, int64_t width)
    : nn::PatchEmbedImpl(patch, width, 0, true, channels) {
  norm_ = register_module("norm", nn::LayerNorm(width, nn::LayerNormOptions{.eps = kEmbedEps}));
}

TwinsPlan plan_stages(const TwinsSettings& settings, MlpKind mlp) {
  TwinsPlan plan{.settings = settings};
  plan.block.residual.mlp = mlp;
  plan.block.qkv_bias = settings.qkv_bias;
  for (const int64_t dim : settings.dims) plan.hidden.push_back(default_hidden(mlp, dim, settings.mlp_ratio));
  return plan;
}

TwinsBackbone::TwinsBackbone(TwinsPlan given) : plan_(std::move(given)) {
  const TwinsSettings& stages = plan_.settings;
  const auto embeds = register_module("patch_embeds", torch::nn::ModuleList());
  torch::nn::ModuleList pegs;
  if (!plan_.pegs.empty()) register_module(plan_.pegs, pegs);
  const std::vector<double> rates = stages.drop_path_rates();
  int64_t count = 0;
  for (size_t s = 0; s < stages.dims.size(); ++s) {
    const int64_t dim = stages.dims[s];
    embeds_.push_back(std::make_shared<StageEmbed>(s == 0 ? stages.patch_size : 2,
                                                   s == 0 ? stages.in_channels : stages.dims[s - 1], dim));
    embeds->push_back(embeds_.back());
    blocks_.emplace_back();
    for (int64_t i = 0; i < stages.depths[s]; ++i, ++count) {
      TwinsBlockOptions block = plan_.block;
      block.residual.dim = dim;
      block.residual.hidden = plan_.hidden[s];
      block.residual.drop_path = rates[static_cast<size_t>(count)];
      block.residual.index = count;
      block.residual.name = "blocks." + std::to_string(s) + "." + std::to_string(i);
      block.heads = stages.heads[s];
      block.window = i % 2 == 0 ? stages.windows[s] : 0;
      block.sub_sampling = stages.sub_sampling[s];
      if (!plan_.ropes.empty()) block.rope = plan_.ropes[s];
      blocks_.back().push_back(std::make_shared<TwinsBlock>(block));
      add_block(static_cast<int64_t>(s), blocks_.back().back());
    }
    if (plan_.pegs.empty()) continue;
    pegs_.emplace_back(dim, plan_.nested_pegs);
    pegs->push_back(pegs_.back());
  }
  const ResidualBlockOptions& block = plan_.block.residual;
  if (plan_.final_norm) norm_ = register_norm(*this, "norm", block.norm, stages.dims.back(), block.eps);
  reserve_heads();
}

torch::Tensor TwinsBackbone::enter(int64_t stage, const torch::Tensor& before) {
  const auto& embed = embeds_[static_cast<size_t>(stage)];
  if (stage == 0) {
    check(before.dim() == 4, "images have shape ", before.sizes(),
          ", must be [batch, channels, height, width]");
    const int64_t least = plan_.settings.smallest_side();
    check(before.size(2) >= least && before.size(3) >= least, "images are ", before.size(2), "x",
          before.size(3), ", both sides must be at least ", least);
    return embed->forward(before);
  }
  // An odd last row or column is dropped, as a convolution of stride 2 does.
  const torch::Tensor even = before.slice(1, 0, before.size(1) / 2 * 2).slice(2, 0, before.size(2) / 2 * 2);
  return embed->forward(even.permute({0, 3, 1, 2}));
}

torch::Tensor TwinsBackbone::run_block(int64_t stage, int64_t index, const torch::Tensor& x,
                                       const Context& context) {
  return blocks_[static_cast<size_t>(stage)][static_cast<size_t>(index)]->forward(x, context);
}

torch::Tensor TwinsBackbone::after_block(int64_t stage, int64_t index, const torch::Tensor& x) {
  if (index > 0 || pegs_.empty()) return x;
  return pegs_[static_cast<size_t>(stage)](x.flatten(1, 2), x.size(1), x.size(2)).reshape(x.sizes());
}

// Initialises as both published codes: truncated normal for linear layers, normal by fan-out for
// convolutions.
void TwinsBackbone::first_values(const std::string& name, const torch::Tensor& parameter,
                                 const nn::Filler& fill) const {
  if (parameter.dim() == 2) fill.truncated_normal(0.02);
  if (parameter.dim() != 4) return;
  const bool depthwise = !plan_.pegs.empty() && name.starts_with(plan_.pegs + ".");
  const int64_t fan_out = parameter.size(2) * parameter.size(3) * (depthwise ? 1 : parameter.size(0));
  fill.normal(std::sqrt(2.0 / static_cast<double>(fan_out)));
}

int64_t TwinsBackbone::macs(int64_t height, int64_t width) const {
  int64_t total = 0;
  for (size_t s = 0; s < blocks_.size(); ++s) {
    total += embeds_[s]->macs(height, width);
    height /= embeds_[s]->patch();
    width /= embeds_[s]->patch();
    for (const auto& block : blocks_[s]) total += block->macs(height, width);
    if (!pegs_.empty()) total += height * width * pegs_[s]->macs();
  }
  return total;
}

int64_t TwinsSettings::smallest_side() const {
  int64_t least = 0, stride = patch_size;
  for (const int64_t cells : sub_sampling) {
    least = std::max(least, stride * cells);
    stride *= 2;
  }
  return least;
}

Value stages_table(const std::vector<int64_t>& dims, const std::vector<int64_t>& depths,
                   const std::vector<int64_t>& heads) {
  const auto list = [](const std::vector<int64_t>& items) {
    return Value(Value::Array(items.begin(), items.end()));
  };
  return table({{"dims", list(dims)}, {"depths", list(depths)}, {"heads", list(heads)}});
}

void TwinsSettings::check_stages() const {
  check_grid(image_size, patch_size);
  const size_t stages = dims.size();
  if (stages < 1 || stages > 8 || depths.size() != stages || heads.size() != stages ||
      windows.size() != stages || sub_sampling.size() != stages)
    fail_usage("model.dims, depths, heads, windows and sub_sampling must have one entry per stage (1 to 8)");
  PyramidSettings::check_stages();
  const Extent image = extent_of(image_size, "image_size");
  if (std::min(image.height, image.width) < smallest_side())
    fail_usage("model.image_size ", image.height, " x ", image.width,
               " is too small, both sides must be at least ", smallest_side());
}

}  // namespace tessera::models
