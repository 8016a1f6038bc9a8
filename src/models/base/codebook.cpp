#include "models/base/codebook.h"

#include <cmath>
#include <numbers>

#include "core/error.h"

namespace tessera::models {
namespace {

torch::Tensor wide(const torch::Tensor& x) {
  return x.scalar_type() == torch::kFloat64 ? x : x.to(torch::kFloat32);
}

}  // namespace

// |z|^2 is the same for all codes, so it is omitted.
torch::Tensor nearest_codes(const torch::Tensor& z, const torch::Tensor& codebook) {
  check(codebook.dim() == 2 && z.size(-1) == codebook.size(1), "vectors ", z.sizes(),
        " do not fit a codebook of ", codebook.sizes());
  const torch::NoGradGuard no_grad;
  const torch::Tensor codes = wide(codebook),
                      rows = wide(z).reshape({-1, z.size(-1)}).to(codes.scalar_type());
  const torch::Tensor distance = codes.square().sum(1) - 2 * rows.mm(codes.t());
  std::vector<int64_t> shape = z.sizes().vec();
  shape.pop_back();
  return distance.argmin(1).view(shape);
}

Quantised quantise(const torch::Tensor& z, const torch::Tensor& codebook) {
  Quantised out;
  out.index = nearest_codes(z, codebook);
  out.codes = codebook.index_select(0, out.index.flatten()).view(z.sizes()).to(z.scalar_type());
  out.passed = z + (out.codes - z).detach();
  out.codebook_loss = wide(out.codes - z.detach()).square().mean();
  out.commitment_loss = wide(out.codes.detach() - z).square().mean();
  return out;
}

torch::Tensor code_perplexity(const torch::Tensor& index, int64_t codes) {
  const torch::Tensor counts = torch::bincount(index.flatten(), {}, codes).to(torch::kFloat64);
  const torch::Tensor share = counts / counts.sum();
  return (-torch::xlogy(share, share).sum()).exp();
}

torch::Tensor move_codebook(torch::Tensor& counts, torch::Tensor& sums, const torch::Tensor& z,
                            const torch::Tensor& index, double decay, double eps) {
  const torch::NoGradGuard no_grad;
  const int64_t codes = counts.size(0);
  const torch::Tensor flat = index.flatten(), rows = z.reshape({-1, z.size(-1)}).to(sums.scalar_type());
  const torch::Tensor added = torch::zeros_like(sums).index_add(0, flat, rows);
  const torch::Tensor count = torch::bincount(flat, {}, codes).to(counts.scalar_type());
  counts.mul_(decay).add_(count, 1 - decay);
  sums.mul_(decay).add_(added, 1 - decay);
  const torch::Tensor total = counts.sum();
  const torch::Tensor smoothed = (counts + eps) / (total + static_cast<double>(codes) * eps) * total;
  return sums / smoothed.unsqueeze(1);
}

torch::Tensor gumbel_weights(const torch::Tensor& scores, const torch::Tensor& gumbel, double temperature,
                             bool hard) {
  const torch::Tensor drawn = wide(scores);
  const torch::Tensor soft = ((drawn + gumbel.to(drawn.scalar_type())) / temperature).softmax(-1);
  if (!hard) return soft;
  const torch::Tensor chosen = torch::zeros_like(soft).scatter_(-1, soft.argmax(-1, true), 1);
  return chosen + (soft - soft.detach());
}

torch::Tensor divergence_from_uniform(const torch::Tensor& scores) {
  const torch::Tensor log_share = wide(scores).log_softmax(-1);
  return (log_share.exp() * log_share).sum(-1) + std::log(static_cast<double>(scores.size(-1)));
}

torch::Tensor logit_laplace(const torch::Tensor& pixels, const torch::Tensor& mu, const torch::Tensor& log_b,
                            double eps) {
  const torch::Tensor mean = wide(mu), spread = wide(log_b);
  const torch::Tensor x = (1 - 2 * eps) * pixels.to(mean.scalar_type()) + eps;
  const torch::Tensor log_x = x.log(), log_rest = (1 - x).log();
  return spread + log_x + log_rest + (log_x - log_rest - mean).abs() * (-spread).exp() + std::numbers::ln2;
}

torch::Tensor logit_laplace_pixels(const torch::Tensor& mu, double eps) {
  return ((wide(mu).sigmoid() - eps) / (1 - 2 * eps)).clamp(0, 1);
}

}  // namespace tessera::models
