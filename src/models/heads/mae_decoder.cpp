#include "models/heads/mae_decoder.h"

#include "nn/init.h"
#include "nn/position.h"
#include "ops/gpu.h"

namespace tessera::models {

MaeDecoder::MaeDecoder(const MaeDecoderOptions& options) : options_(options) {
  const int64_t dim = options.dim;
  if (options.late_class_token)
    cls_token_ = register_parameter("cls_token", nn::zeros({1, 1, options.encoder_width}));
  mask_token_ = register_parameter("mask_token", nn::zeros({1, 1, dim}));
  embed_ = register_module("decoder_embed", nn::Linear(options.encoder_width, dim));
  blocks_ = register_module("decoder_blocks", torch::nn::ModuleList());
  const auto hidden = static_cast<int64_t>(static_cast<double>(dim) * options.mlp_ratio);
  for (int64_t i = 0; i < options.depth; ++i)
    blocks_->push_back(std::make_shared<AttentionBlock>(
        ResidualBlockOptions{.dim = dim, .mlp = MlpKind::gelu, .hidden = hidden, .index = i}, options.heads,
        /*qkv_bias=*/true));
  norm_ = register_module("decoder_norm", nn::LayerNorm(dim));
  pred_ = register_module("decoder_pred", nn::Linear(dim, 3 * options.patch * options.patch));
  if (nn::ShapesOnly::active())
    positions_ = nn::zeros({options.patches(), dim});
  else if (!options.rows_first)
    positions_ = nn::sincos_2d(options.rows, options.columns, dim);
  else
    positions_ = nn::sincos_2d(options.columns, options.rows, dim)
                     .view({options.columns, options.rows, dim})
                     .transpose(0, 1)
                     .reshape({options.patches(), dim});
  positions_ = positions_.unsqueeze(0);
}

void MaeDecoder::initialise(uint64_t seed) {
  nn::initialise(*this, seed,
                 [](const std::string& name, const torch::Tensor& parameter, const nn::Filler& fill) {
                   if (name == "mask_token" || name == "cls_token")
                     fill.normal(0.02);
                   else if (parameter.dim() == 2)
                     fill.xavier_uniform();
                 });
}

// Tokens at the front get no position.
torch::Tensor MaeDecoder::forward(const torch::Tensor& front, const torch::Tensor& visible,
                                  const torch::Tensor& place, const Context& context) {
  const torch::Tensor seen = embed_->forward(visible);
  const int64_t batch = seen.size(0), masked = options_.patches() - seen.size(1), dim = seen.size(2);
  const torch::Tensor all =
      torch::cat({seen, mask_token_.to(seen.scalar_type()).expand({batch, masked, dim})}, 1);
  torch::Tensor x = all.gather(1, place.unsqueeze(-1).expand({-1, -1, dim})) +
                    ops::kept_on(seen.device(), positions_).to(seen.scalar_type());
  const int64_t before = front.defined() ? front.size(1) : 0;
  if (before > 0) x = torch::cat({embed_->forward(front), x}, 1);
  for (const auto& each : *blocks_) {
    const auto block = std::dynamic_pointer_cast<AttentionBlock>(each);
    x = nn::run_unit(
        x, {.body = [block, context](const torch::Tensor& in) { return block->forward(in, {}, context); },
            .parameters = [&] { return block->parameters(); },
            .recompute = checkpointing && is_training() && !context.taps});
  }
  return pred_->forward(norm_(before > 0 ? x.slice(1, before) : x));
}

int64_t MaeDecoder::macs() const {
  const int64_t tokens = options_.patches();
  int64_t total = tokens * (embed_->macs() + pred_->macs());
  for (const auto& block : *blocks_) total += std::dynamic_pointer_cast<AttentionBlock>(block)->macs(tokens);
  return total;
}

}  // namespace tessera::models
