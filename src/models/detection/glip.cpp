#include "models/detection/glip.h"

#include <cmath>

#include "core/error.h"
#include "nn/init.h"

namespace tessera::models {
namespace {

using torch::Tensor;

constexpr double kHighestScore = 50000;  // fits half precision
constexpr double kMaskedToken = -9e15, kMaskedScore = -1e6;
constexpr double kFirstGamma = 1e-4, kFirstProbability = 0.01;

Tensor exact(const Tensor& x) { return x.scalar_type() == torch::kFloat64 ? x : x.to(torch::kFloat32); }

// -alpha_t (1 - p_t)^gamma log p_t of each token.
Tensor binary_losses(const Tensor& scores, const Tensor& targets, const Tensor& mask, double alpha,
                     double gamma) {
  const Tensor p = scores.sigmoid();
  const Tensor right = p * targets + (1 - p) * (1 - targets);
  Tensor losses = at::binary_cross_entropy_with_logits(scores, targets, {}, {}, at::Reduction::None) *
                  (1 - right).pow(gamma);
  if (alpha >= 0) losses = losses * (alpha * targets + (1 - alpha) * (1 - targets));
  return mask.defined() ? losses.masked_fill((mask <= 0).unsqueeze(1), 0) : losses;
}

Tensor softmax_losses(const Tensor& given, const Tensor& counts, const Tensor& mask, double gamma) {
  const Tensor targets = counts / (counts.sum(-1, true) + 1e-8);
  Tensor scores = given;
  if (mask.defined()) {
    Tensor hidden = mask <= 0;
    hidden.select(1, -1).fill_(false);
    scores = scores.masked_fill(hidden.unsqueeze(1), kMaskedScore);
  }
  const Tensor divisor = targets.masked_fill(targets == 0, 1);
  const Tensor weight = ((targets - scores.softmax(-1)).clamp_min(0.001) / divisor).pow(gamma);
  return -targets * weight * scores.log_softmax(-1);
}

Tensor binary_v2_losses(const Tensor& scores, const Tensor& targets, double alpha, double gamma) {
  const Tensor p = scores.sigmoid();
  const auto side = [&](const Tensor& probability, double share) {
    const Tensor q = probability + 1e-8;
    return -(1 - q).pow(gamma) * q.log() * share;
  };
  return at::where(targets > 0.5, side(p, alpha), side(1 - p, 1 - alpha));
}

}  // namespace

GlipFusion::GlipFusion(int64_t image_width, int64_t text_width, int64_t inner, int64_t heads)
    : heads_(heads) {
  check(heads > 0 && inner % heads == 0, "the fusion's width ", inner,
        " must be a multiple of the number of heads ", heads);
  const nn::LayerNormOptions norm{.eps = 1e-5};
  norm_v_ = register_module("layer_norm_v", nn::LayerNorm(image_width, norm));
  norm_l_ = register_module("layer_norm_l", nn::LayerNorm(text_width, norm));
  gamma_v_ = register_parameter("gamma_v", nn::ones({image_width}));
  gamma_l_ = register_parameter("gamma_l", nn::ones({text_width}));
  auto attention = register_module("attn", std::make_shared<torch::nn::Module>());
  const auto layer = [&](const char* name, int64_t from, int64_t to) {
    return attention->register_module(name, nn::Linear(from, to));
  };
  v_ = layer("v_proj", image_width, inner), l_ = layer("l_proj", text_width, inner);
  values_v_ = layer("values_v_proj", image_width, inner),
  values_l_ = layer("values_l_proj", text_width, inner);
  out_v_ = layer("out_v_proj", inner, image_width), out_l_ = layer("out_l_proj", inner, text_width);
}

void GlipFusion::initialise(uint64_t seed) {
  nn::initialise(*this, seed, [](const std::string& name, const Tensor& parameter, const nn::Filler& fill) {
    if (parameter.dim() == 2)
      fill.xavier_uniform();
    else if (name.starts_with("gamma"))
      fill.constant(kFirstGamma);
  });
}

Tensor GlipFusion::split(const Tensor& x) const { return x.unflatten(-1, {heads_, -1}).transpose(1, 2); }

std::pair<Tensor, Tensor> GlipFusion::forward(const Tensor& cells, const Tensor& tokens,
                                              const Tensor& mask) const {
  const Tensor v = norm_v_->forward(cells), l = norm_l_->forward(tokens);
  const Tensor queries = split(v_->forward(v));
  const double scale = 1 / std::sqrt(static_cast<double>(queries.size(-1)));
  // [batch, heads, cells, tokens]
  const Tensor scores = exact((queries * scale).matmul(split(l_->forward(l)).transpose(-2, -1)))
                            .clamp(-kHighestScore, kHighestScore);
  Tensor of_cells = scores;
  if (mask.defined()) of_cells = scores.masked_fill((mask == 0).view({mask.size(0), 1, 1, -1}), kMaskedToken);
  const auto merged = [](const Tensor& x) { return x.transpose(1, 2).flatten(2); };
  const Tensor read_l = split(values_l_->forward(l)), read_v = split(values_v_->forward(v));
  const Tensor to_v = of_cells.softmax(-1).to(read_l.scalar_type()).matmul(read_l);
  const Tensor to_l = scores.transpose(-2, -1).softmax(-1).to(read_v.scalar_type()).matmul(read_v);
  return {v + gamma_v_ * out_v_->forward(merged(to_v)), l + gamma_l_ * out_l_->forward(merged(to_l))};
}

int64_t GlipFusion::macs(int64_t cells, int64_t tokens) const {
  return cells * (v_->macs() + values_v_->macs() + out_v_->macs()) +
         tokens * (l_->macs() + values_l_->macs() + out_l_->macs()) + 3 * cells * tokens * v_->weight.size(0);
}

TokenAlignment::TokenAlignment(int64_t image_width, int64_t text_width) {
  log_scale_ = register_parameter("log_scale", nn::zeros({1}));
  bias_lang_ = register_parameter("bias_lang", nn::zeros({text_width}));
  bias0_ = register_parameter("bias0", nn::zeros({1}));
  text_ = register_module("dot_product_projection_text", nn::Linear(text_width, image_width));
}

void TokenAlignment::initialise(uint64_t seed) {
  nn::initialise(*this, seed, [](const std::string& name, const Tensor& parameter, const nn::Filler& fill) {
    if (parameter.dim() == 2)
      fill.fan_in_uniform(parameter.size(1));
    else if (name == "bias0")
      fill.constant(-std::log((1 - kFirstProbability) / kFirstProbability));
  });
}

Tensor TokenAlignment::forward(const Tensor& cells, const Tensor& tokens) const {
  const Tensor wide = exact(tokens);
  const Tensor unit = wide / wide.norm(2, {-1}, true).clamp_min(1e-12);
  const Tensor products = cells.matmul(text_->forward(unit / 2).transpose(-2, -1));
  const Tensor bias = unit.matmul(bias_lang_) + bias0_;
  return (exact(products) / log_scale_.exp() + bias.unsqueeze(1)).clamp(-kHighestScore, kHighestScore);
}

int64_t TokenAlignment::macs(int64_t cells, int64_t tokens) const {
  return tokens * text_->macs() + cells * tokens * text_->weight.size(0);
}

Tensor token_focal_loss(TokenLoss kind, const Tensor& scores, const Tensor& targets, const Tensor& mask,
                        double alpha, double gamma) {
  check(scores.dim() == 3 && scores.sizes() == targets.sizes(), "scores of tokens are ", scores.sizes(),
        ", their targets ", targets.sizes(), ": both must be [batch, cells, tokens]");
  const Tensor x = exact(scores), t = targets.to(x.scalar_type());
  switch (kind) {
    case TokenLoss::binary:
      return binary_losses(x, t, mask, alpha, gamma).sum();
    case TokenLoss::softmax:
      return softmax_losses(x, t, mask, gamma).sum();
    case TokenLoss::binary_v2:
      break;
  }
  return binary_v2_losses(x, t, alpha, gamma).sum();
}

Tensor class_probabilities(const Tensor& tokens, const TokenSpans& classes, TokenVote vote) {
  std::vector<Tensor> all;
  for (const std::vector<int64_t>& span : classes) {
    const Tensor places = torch::tensor(at::ArrayRef<int64_t>(span), torch::kInt64).to(tokens.device());
    const Tensor own = tokens.index_select(-1, places);
    all.push_back(vote == TokenVote::mean ? own.mean(-1) : own.amax(-1));
  }
  return torch::stack(all, -1);
}

}  // namespace tessera::models
