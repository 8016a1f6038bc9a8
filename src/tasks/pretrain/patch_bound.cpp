#include "tasks/pretrain/patch_bound.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace tessera::tasks {
namespace {

constexpr double kLeastProbability = 1e-12;

// P(standard normal < x).
torch::Tensor normal_below(const torch::Tensor& x) { return 0.5 * torch::erfc(-x / std::numbers::sqrt2); }

// The decoder's estimate of the clean patch at levels gamma [batch, patches, 1].
torch::Tensor predicted(const PatchBound& bound, models::PatchDecoder& decoder,
                        const models::PatchDecoder::Condition& condition, const torch::Tensor& pixels,
                        const torch::Tensor& gamma, const torch::Tensor& noise) {
  const torch::Tensor noised = gamma.sqrt() * pixels + (1 - gamma).sqrt() * noise;
  const auto type = pixels.scalar_type();
  const torch::Tensor out = decoder.denoise(condition, noised.to(type), gamma.to(type)).to(torch::kFloat64);
  return bound.predicts_noise ? (noised - (1 - gamma).sqrt() * out) / gamma.sqrt() : out;
}

// Mean of -log p(x | x_1) over a patch's values.
torch::Tensor last_step(const PatchBound& bound, const torch::Tensor& pixels, const torch::Tensor& mean) {
  const double deviation = std::sqrt(1 - bound.gammas[1]);
  const auto device = pixels.device();
  const torch::Tensor half = bound.bin.to(device) / 2;
  torch::Tensor upper = normal_below((pixels + half - mean) / deviation),
                lower = normal_below((pixels - half - mean) / deviation);
  upper = torch::where(pixels > (bound.highest.to(device) - half), torch::ones_like(upper), upper);
  lower = torch::where(pixels < (bound.lowest.to(device) + half), torch::zeros_like(lower), lower);
  return -(upper - lower).clamp_min(kLeastProbability).log().mean(-1);
}

}  // namespace

void set_bins(PatchBound& bound, std::span<const double> mean, std::span<const double> std, int64_t patch) {
  const auto tensor = [&](const std::vector<double>& values) {
    return torch::tensor(values, torch::kFloat64).repeat({patch * patch});
  };
  std::vector<double> bin, lowest, highest;
  for (size_t c = 0; c < std.size(); ++c) {
    bin.push_back(1 / 255.0 / std[c]);
    lowest.push_back(-mean[c] / std[c]);
    highest.push_back((1 - mean[c]) / std[c]);
  }
  bound.bin = tensor(bin), bound.lowest = tensor(lowest), bound.highest = tensor(highest);
}

torch::Tensor bits_per_dimension(const PatchBound& bound, models::PatchDecoder& decoder,
                                 const torch::Tensor& z, const torch::Tensor& pixels,
                                 const BoundPlaces& places, const BoundNoise& noise) {
  const torch::NoGradGuard no_grad;
  const auto steps = static_cast<int64_t>(bound.gammas.size()) - 1;
  check(steps >= 2, "a bound needs a chain of at least 2 levels");
  const torch::Tensor wide = pixels.to(torch::kFloat64);
  const auto condition = decoder.condition(z);
  const torch::Tensor gammas = torch::tensor(bound.gammas, torch::kFloat64).to(pixels.device());
  const auto clean_at = [&](const torch::Tensor& step, int64_t index) {
    const torch::Tensor gamma = gammas.index_select(0, step.flatten()).view(step.sizes()).unsqueeze(-1);
    return predicted(bound, decoder, *condition, wide.to(pixels.scalar_type()), gamma,
                     noise(index).to(torch::kFloat64));
  };
  const double last = bound.gammas.back();
  torch::Tensor nats = 0.5 * ((last * wide.square()).mean(-1) + (1 - last) - 1 - std::log(1 - last));
  const torch::Tensor ones =
      torch::ones({pixels.size(0), pixels.size(1)}, gammas.options().dtype(torch::kInt64));
  nats = nats + last_step(bound, wide, clean_at(ones, 0));
  const int64_t draws = std::min(bound.draws, steps - 1);
  const double stretch = static_cast<double>(steps - 1) / static_cast<double>(draws);
  for (int64_t j = 0; j < draws; ++j) {
    const torch::Tensor at =
        2 + ((static_cast<double>(j) + places(j + 1).to(pixels.device())) * stretch).floor();
    const torch::Tensor step = at.to(torch::kInt64).clamp(2, steps);
    const torch::Tensor gamma = gammas.index_select(0, step.flatten()).view(step.sizes()),
                        next = gammas.index_select(0, (step - 1).flatten()).view(step.sizes());
    const torch::Tensor weight = next * (1 - gamma / next) / (2 * (1 - gamma) * (1 - next));
    nats = nats + stretch * weight * (wide - clean_at(step, j + 1)).square().mean(-1);
  }
  return nats / std::numbers::ln2;
}

}  // namespace tessera::tasks
