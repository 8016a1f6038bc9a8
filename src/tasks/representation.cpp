#include "tasks/representation.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace tessera::tasks {
namespace {

constexpr int64_t kChunk = 1024;  // samples whose similarities to all others are in memory at a time

torch::Tensor unit_rows(const torch::Tensor& features) {
  const torch::Tensor wide = features.to(torch::kCPU, torch::kFloat32);
  return wide / wide.norm(2, {1}, true).clamp_min(1e-12);
}

// Votes of the nearest of `similarity` [chunk, train]: the class of each row.
torch::Tensor vote(const torch::Tensor& similarity, const torch::Tensor& labels, int64_t classes,
                   const NeighbourVote& how) {
  const auto [nearest, index] = similarity.topk(how.neighbours, 1);
  const torch::Tensor weights =
      how.temperature > 0 ? (nearest / how.temperature).exp() : torch::ones_like(nearest);
  torch::Tensor votes = torch::zeros({similarity.size(0), classes}, torch::kFloat64);
  votes.scatter_add_(1, labels.index_select(0, index.flatten()).view_as(index), weights.to(torch::kFloat64));
  return votes.argmax(1);
}

void check_labels(const torch::Tensor& features, const torch::Tensor& labels) {
  check(
      features.dim() == 2 && labels.dim() == 1 && labels.size(0) == features.size(0) && features.size(0) > 0,
      "features ", features.sizes(), " with labels ", labels.sizes());
}

}  // namespace

double rankme(const torch::Tensor& features) {
  const torch::Tensor singular = torch::linalg_svdvals(features.to(torch::kCPU, torch::kFloat64));
  const torch::Tensor share = singular / singular.sum().clamp_min(1e-300) + 1e-7;
  return std::exp(-(share * share.log()).sum().item<double>());
}

double feature_deviation(const torch::Tensor& features) {
  const torch::Tensor unit = unit_rows(features).to(torch::kFloat64);
  return unit.std(0, /*unbiased=*/true).mean().item<double>() * std::sqrt(static_cast<double>(unit.size(1)));
}

torch::Tensor neighbour_classes(const torch::Tensor& train, const torch::Tensor& labels,
                                const torch::Tensor& test, const NeighbourVote& how) {
  check_labels(train, labels);
  if (how.neighbours > train.size(0))
    fail_usage(how.neighbours, " neighbours of ", train.size(0), " training images");
  const torch::Tensor bank = unit_rows(train).t().contiguous(), queries = unit_rows(test);
  const int64_t classes = labels.max().item<int64_t>() + 1;
  std::vector<torch::Tensor> out;
  for (int64_t begin = 0; begin < queries.size(0); begin += kChunk)
    out.push_back(vote(queries.slice(0, begin, begin + kChunk).mm(bank), labels, classes, how));
  return torch::cat(out);
}

double neighbour_accuracy(const torch::Tensor& features, const torch::Tensor& labels, int64_t neighbours) {
  check_labels(features, labels);
  const torch::Tensor unit = unit_rows(features);
  torch::Tensor similarity = unit.mm(unit.t());
  similarity.fill_diagonal_(-std::numeric_limits<double>::infinity());
  const torch::Tensor chosen =
      vote(similarity, labels, labels.max().item<int64_t>() + 1, {.neighbours = neighbours});
  return chosen.eq(labels).to(torch::kFloat64).mean().item<double>();
}

torch::Tensor Ridge::scores(const torch::Tensor& features) const {
  return ((features.to(torch::kCPU, torch::kFloat64) - mean) / scale).mm(weight) + target_mean;
}

// With the eigenvectors V of X'X all lambdas share U = X V: the hat matrix has the diagonal
// 1/N + sum_j u_ij^2 / (e_j + lambda N), and a sample's leave-one-out residual is its residual / (1 - h).
Ridge fit_ridge(const torch::Tensor& features, const torch::Tensor& labels, int64_t classes,
                const std::vector<double>& lambdas, bool standardise) {
  check_labels(features, labels);
  torch::Tensor x = features.to(torch::kCPU, torch::kFloat64);
  const auto n = static_cast<double>(x.size(0));
  Ridge best{.mean = x.mean(0)};
  x = x - best.mean;
  best.scale = standardise && x.size(0) > 1 ? (x.square().sum(0) / (n - 1)).sqrt()
                                            : torch::ones({x.size(1)}, torch::kFloat64);
  best.scale.masked_fill_(best.scale == 0, 1);
  if (standardise) x = x / best.scale;
  const torch::Tensor targets = torch::one_hot(labels, classes).to(torch::kFloat64);
  best.target_mean = targets.mean(0);
  const torch::Tensor y = targets - best.target_mean;
  const auto [values, vectors] = torch::linalg_eigh(x.t().mm(x));
  const torch::Tensor u = x.mm(vectors), u_y = u.t().mm(y);
  best.loo = std::numeric_limits<double>::infinity();
  torch::Tensor best_inverse;
  for (const double lambda : lambdas) {
    const torch::Tensor inverse = 1 / (values.clamp_min(0) + lambda * n);
    const torch::Tensor residual = y - u.mm(inverse.unsqueeze(1) * u_y);
    const torch::Tensor hat = 1 / n + u.square().mv(inverse);
    const double loo = (residual / (1 - hat).clamp_min(1e-12).unsqueeze(1)).square().mean().item<double>();
    if (loo < best.loo) best.loo = loo, best.lambda = lambda, best_inverse = inverse;
  }
  check(best_inverse.defined(), "no lambda gives a finite residual");
  best.weight = vectors.mm(best_inverse.unsqueeze(1) * u_y);
  return best;
}

}  // namespace tessera::tasks
