// Autoregressive pre-training on patches (DARL, Li, Bornschein & Chen 2024): a causal trunk reads the patches
// in a given order, and a decoder predicts each from its predecessors.
//
//   z_t = trunk(start, x_o(1) ... x_o(t-1))
//   mse        loss = mean over patches of mean over pixels of (decoder(z_t) - x_t)^2
//   diffusion x_s = sqrt(gamma) x_t + sqrt(1 - gamma) e, one gamma per patch,
//              loss = the same of (decoder(z_t, x_s) - x_t)^2, or with predict = "noise" of (... - e)^2
//   tokens     loss = mean over patches of -log softmax(decoder(z_t))[token of x_t]
//
// A sample is an image. The trunk is any causal backbone (models/base/causal_backbone.h): DARL's own, iLLaMA, or a
// Vision-LSTM of one direction.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/backbones/next_patch.h"
#include "models/heads/patch_decoder.h"
#include "tasks/base/registry.h"
#include "tasks/pretrain/patch_noise.h"

namespace tessera::tasks {

enum class DarlObjective { mse, diffusion, tokens };
enum class DarlOrder { raster, nested, round_robin, given, random };
enum class DarlDecoder { automatic, linear, mlp, transformer };
enum class DarlPredict { patch, noise };

}  // namespace tessera::tasks

template <>
struct tessera::EnumNames<tessera::tasks::DarlObjective> {
  static constexpr std::array names = {"mse", "diffusion", "tokens"};
};
template <>
struct tessera::EnumNames<tessera::tasks::DarlOrder> {
  static constexpr std::array names = {"raster", "nested", "round_robin", "given", "random"};
};
template <>
struct tessera::EnumNames<tessera::tasks::DarlDecoder> {
  static constexpr std::array names = {"auto", "linear", "mlp", "transformer"};
};
template <>
struct tessera::EnumNames<tessera::tasks::DarlPredict> {
  static constexpr std::array names = {"patch", "noise"};
};

namespace tessera::tasks {

struct DarlConfig {
  DarlObjective objective = DarlObjective::mse;
  DarlOrder order = DarlOrder::raster;
  int64_t block = 2;
  std::vector<int64_t> permutation = {};
  bool normalise_pixels = false;
  DarlDecoder decoder = DarlDecoder::automatic;
  int64_t decoder_depth = 1, decoder_heads = 0;
  DarlPredict predict = DarlPredict::patch;
  bool gamma = false;
  NoiseSchedule schedule = NoiseSchedule::beta;
  double a = 0.03, b = 1;
  int64_t bound_draws = 0;
  std::string tokeniser = {};
  int64_t codes = 8192;

  template <class V>
  void visit(V& v) {
    v("objective", objective, choice<DarlObjective>(),
      "predict each patch, denoise it, or predict its token");
    v("order", order, choice<DarlOrder>(),
      "order of patches; given: permutation names it; random: a new one for each sample");
    v("block", block, between(1, 1024), "orders nested and round_robin: side of a block in patches");
    v("permutation", permutation, at_least(0), "order given: the patches, counted row by row from 0");
    v("normalise_pixels", normalise_pixels, "predict each patch less its mean, divided by its deviation");
    v("decoder", decoder, choice<DarlDecoder>(), "auto: linear for mse, transformer for diffusion");
    v("decoder_depth", decoder_depth, between(1, 8), "layers of an mlp, blocks of a transformer");
    v("decoder_heads", decoder_heads, between(0, 1024),
      "attention heads of a transformer, 0 = one for every 64 channels");
    v("predict", predict, choice<DarlPredict>(), "output of a denoising decoder");
    v("gamma", gamma, "a denoising decoder reads the noise level");
    v("schedule", schedule, choice<NoiseSchedule>(), "noise levels: Beta(a, b), DDPM's, or l-DAE's linear");
    v("a", a, above(0), "schedule beta: its first parameter, below b for more noise");
    v("b", b, above(0), "schedule beta: its second parameter");
    v("bound_draws", bound_draws, between(0, 999),
      "validation measures the bound on bits a dimension, with this many of 1000 noise levels; 0 = not");
    v("tokeniser", tokeniser, "objective tokens: weights of task dvae, or of DALL-E's encoder");
    v("codes", codes, between(2, 1 << 20), "objective tokens: number of codes of that tokeniser");
  }
  void check() const;  // rules across several keys
};

// Returns the order as a permutation of a grid's patches; raster order if each sample has its own. Throws a
// usage error for an invalid permutation.
std::vector<int64_t> darl_order(const DarlConfig& config, int64_t rows, int64_t columns);
// Returns the decoder options of a config for a trunk.
models::PatchDecoderOptions darl_decoder(const DarlConfig& config, const models::PatchPredictor& predictor);

// The result of one pass over images; all tensors [batch, patches, 3 patch^2], in sequence order.
struct DarlPass {
  torch::Tensor z = {};       // [batch, patches, width]
  torch::Tensor noised = {};  // for diffusion
  // For tokens: target int64 [batch, patches], predicted logits over the codes.
  torch::Tensor target = {}, predicted = {};
  torch::Tensor each() const;  // losses [batch, patches]: mean squared errors, or nats
};
// Random inputs of a pass, in addition to images; undefined if the settings do not use them.
struct DarlDraws {
  torch::Tensor noise = {}, gamma = {};  // diffusion: [batch, patches, 3 patch^2], [batch, patches]
  torch::Tensor orders = {};             // int64 [batch, patches], for a trunk that reads the next position
  torch::Tensor tokens = {};             // int64 [batch, patches] in raster order
};
DarlPass darl_pass(const DarlConfig& config, models::PatchPredictor& predictor, models::PatchDecoder& decoder,
                   const torch::Tensor& images, const DarlDraws& draws, const models::Context& context);

TaskKind darl_kind();

}  // namespace tessera::tasks
