#include "analysis/score_terms.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "ops/attention.h"

namespace tessera::analysis {
namespace {

torch::Tensor rotated(const torch::Tensor& x, const ScoreOperand& of) {
  if (!of.cos.defined()) return x;
  const int64_t tokens = x.size(-2);
  check(of.cos.size(-2) >= tokens && 2 * of.cos.size(-1) <= x.size(-1), "angles ", of.cos.sizes(),
        " do not fit queries or keys ", x.sizes());
  return ops::rotate_pairs(x, of.cos.slice(-2, 0, tokens).to(torch::kFloat64),
                           of.sin.slice(-2, 0, tokens).to(torch::kFloat64));
}

// Returns the content term and the position term, both rotated.
std::pair<torch::Tensor, torch::Tensor> parts(const ScoreOperand& of) {
  check(of.values.dim() == 5 && of.position.dim() == 4 && of.values.sizes().slice(1) == of.position.sizes(),
        "queries or keys ", of.values.sizes(), " and their positions ", of.position.sizes(),
        " must be [images, windows, heads, tokens, d] and the same without images");
  const torch::Tensor position = of.position.to(torch::kFloat64);
  return {rotated(of.values.to(torch::kFloat64) - position, of), rotated(position, of)};
}

}  // namespace

torch::Tensor position_share(const torch::Tensor& mean) {
  check(mean.dim() == 4, "means of queries or keys ", mean.sizes(), " must be [windows, heads, tokens, d]");
  return mean - mean.mean(torch::IntArrayRef({0, 2}), /*keepdim=*/true);
}

ScoreTerms score_terms(const ScoreOperand& queries, const ScoreOperand& keys) {
  const auto [q, q_position] = parts(queries);
  const auto [k, k_position] = parts(keys);
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
  const auto dots = [scale](const torch::Tensor& a, const torch::Tensor& b) {
    return torch::matmul(a * scale, b.transpose(-2, -1));
  };
  const torch::Tensor content = dots(q, k);
  return {content, dots(q_position, k_position).expand_as(content),
          dots(q, k_position) + dots(q_position, k)};
}

torch::Tensor term_deviation(const torch::Tensor& term, const torch::Tensor& seen) {
  check(term.sizes() == seen.sizes() && term.dim() == 5, "terms ", term.sizes(), " and visible keys ",
        seen.sizes(), " must be [images, windows, heads, queries, keys]");
  const torch::Tensor weight = seen.to(term.scalar_type()), count = weight.sum(-1).clamp_min(1);
  const torch::Tensor mean = (term * weight).sum(-1) / count;
  const torch::Tensor variance = ((term - mean.unsqueeze(-1)).square() * weight).sum(-1) / count;
  return variance.mean(torch::IntArrayRef({0, 1, 3})).sqrt();
}

std::vector<double> term_by_distance(const torch::Tensor& term, const torch::Tensor& seen,
                                     const TokenLayout& layout) {
  const int64_t patches = layout.patches(), last = layout.first_patch + patches;
  check(patches > 0 && term.sizes() == seen.sizes() && term.size(-1) >= last && term.size(-2) >= last,
        "terms ", term.sizes(), " do not hold ", layout.rows, " x ", layout.columns, " patches");
  const auto of_patches = [&](const torch::Tensor& matrix) {
    return matrix.slice(-2, layout.first_patch, last)
        .slice(-1, layout.first_patch, last)
        .reshape({-1, patches * patches})
        .to(torch::kCPU, torch::kFloat64);
  };
  const torch::Tensor weight = of_patches(seen);
  const torch::Tensor sums = (of_patches(term) * weight).sum(0), counts = weight.sum(0);
  const torch::Tensor place = torch::arange(patches);
  const torch::Tensor row = torch::floor_divide(place, layout.columns).to(torch::kFloat64),
                      column = place.remainder(layout.columns).to(torch::kFloat64);
  const auto apart = [](const torch::Tensor& x) { return (x.unsqueeze(1) - x.unsqueeze(0)).square(); };
  const torch::Tensor distance = (apart(row) + apart(column)).sqrt().round().to(torch::kInt64).flatten();
  const int64_t furthest = distance.max().item<int64_t>();
  const torch::Tensor total = torch::zeros({furthest + 1}, torch::kFloat64).index_add(0, distance, sums),
                      number = torch::zeros({furthest + 1}, torch::kFloat64).index_add(0, distance, counts);
  std::vector<double> means;
  for (int64_t d = 0; d <= furthest; ++d) {
    const double pairs = number[d].item<double>();
    means.push_back(pairs > 0 ? total[d].item<double>() / pairs : std::numeric_limits<double>::quiet_NaN());
  }
  return means;
}

}  // namespace tessera::analysis
