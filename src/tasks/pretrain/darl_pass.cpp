// One pass of autoregressive pre-training: order, decoder, targets and losses.
#include <algorithm>

#include "core/error.h"
#include "tasks/pretrain/darl.h"

namespace tessera::tasks {
namespace {

models::PatchDecoderKind kind_of(const DarlConfig& config) {
  switch (config.decoder) {
    case DarlDecoder::automatic:
      return config.objective == DarlObjective::diffusion ? models::PatchDecoderKind::transformer
                                                          : models::PatchDecoderKind::linear;
    case DarlDecoder::linear:
      return models::PatchDecoderKind::linear;
    case DarlDecoder::mlp:
      return models::PatchDecoderKind::mlp;
    case DarlDecoder::transformer:
      break;
  }
  return models::PatchDecoderKind::transformer;
}

torch::Tensor normalised(const torch::Tensor& pixels) {
  return (pixels - pixels.mean(-1, true)) / (pixels.var(-1, true, true) + 1e-6).sqrt();
}

}  // namespace

std::vector<int64_t> darl_order(const DarlConfig& config, int64_t rows, int64_t columns) {
  const int64_t patches = rows * columns;
  if (config.order != DarlOrder::given) {
    const bool random = config.order == DarlOrder::random;
    const torch::Tensor order =
        models::patch_order(random ? "raster" : name_of(config.order), rows, columns, config.block);
    return {order.data_ptr<int64_t>(), order.data_ptr<int64_t>() + order.numel()};
  }
  std::vector<bool> seen(static_cast<size_t>(patches), false);
  if (static_cast<int64_t>(config.permutation.size()) != patches)
    fail_usage("task.permutation names ", config.permutation.size(),
               " patches, must be a permutation of 0 to ", patches - 1);
  for (const int64_t patch : config.permutation) {
    if (patch >= patches || seen[static_cast<size_t>(patch)])
      fail_usage("task.permutation holds ", patch, patch >= patches ? "" : " twice",
                 ", must be a permutation of 0 to ", patches - 1);
    seen[static_cast<size_t>(patch)] = true;
  }
  return config.permutation;
}

models::PatchDecoderOptions darl_decoder(const DarlConfig& config, const models::PatchPredictor& predictor) {
  const models::PatchDecoderKind kind = kind_of(config);
  const int64_t width = predictor.width();
  const int64_t heads = config.decoder_heads > 0 ? config.decoder_heads : std::max<int64_t>(1, width / 64);
  if (kind == models::PatchDecoderKind::transformer && width % heads != 0)
    fail_usage("task.decoder_heads = ", heads, " must divide the trunk's width, which is ", width);
  return {.kind = kind,
          .width = width,
          .pixels = config.objective == DarlObjective::tokens ? config.codes
                                                              : 3 * predictor.patch() * predictor.patch(),
          .depth = kind == models::PatchDecoderKind::linear ? 0 : config.decoder_depth,
          .heads = heads,
          .denoises = config.objective == DarlObjective::diffusion,
          .gamma = config.gamma,
          .learns_start = !predictor.has_front() && !predictor.knows_next_place()};
}

torch::Tensor DarlPass::each() const {
  const torch::Tensor wide =
      predicted.scalar_type() == torch::kFloat64 ? predicted : predicted.to(torch::kFloat32);
  if (!target.is_floating_point()) return -wide.log_softmax(-1).gather(-1, target.unsqueeze(-1)).squeeze(-1);
  return (wide - target).square().mean(-1);
}

DarlPass darl_pass(const DarlConfig& config, models::PatchPredictor& predictor, models::PatchDecoder& decoder,
                   const torch::Tensor& images, const DarlDraws& draws, const models::Context& context) {
  DarlPass pass{.z = predictor.before_each_patch(images, decoder.start(), context, draws.orders)};
  if (config.objective == DarlObjective::tokens) {
    pass.predicted = decoder.forward(pass.z);
    pass.target = predictor.arranged(draws.tokens, draws.orders);
    return pass;
  }
  const torch::Tensor pixels = predictor.in_order(images, draws.orders);
  if (config.objective == DarlObjective::mse) {
    pass.predicted = decoder.forward(pass.z);
    pass.target = config.normalise_pixels ? normalised(pixels) : pixels;
    return pass;
  }
  const torch::Tensor level = draws.gamma.unsqueeze(-1);
  pass.noised = level.sqrt() * pixels + (1 - level).sqrt() * draws.noise;
  pass.predicted = decoder.denoise(*decoder.condition(pass.z), pass.noised, level);
  pass.target = config.predict == DarlPredict::noise ? draws.noise : pixels;
  return pass;
}

}  // namespace tessera::tasks
