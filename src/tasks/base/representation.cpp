#include "tasks/base/representation.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace tessera::tasks {
namespace {

constexpr int64_t kSimilarities = int64_t{16} << 20;  // in memory at a time

torch::Tensor unit_rows(const torch::Tensor& features) {
  const torch::Tensor wide = features.to(torch::kFloat32);
  return wide / wide.norm(2, {1}, true).clamp_min(1e-12);
}

// Returns the class of each row by a vote of its nearest neighbours in `similarity` [chunk, train]. Votes are added as integers, so
// that their order, which a GPU does not fix, changes nothing.
torch::Tensor vote(const torch::Tensor& similarity, const torch::Tensor& labels, int64_t classes,
                   const NeighbourVote& how) {
  const auto [nearest, index] = similarity.topk(how.neighbours, 1);
  constexpr double kOne = int64_t{1} << 40;  // the vote of the nearest
  const torch::Tensor wide = nearest.to(torch::kFloat64);
  const torch::Tensor weights = how.temperature > 0
                                    ? ((wide - wide.amax(1, true)) / how.temperature).exp() * kOne
                                    : torch::ones_like(wide);
  torch::Tensor votes = torch::zeros({similarity.size(0), classes}, index.options());
  votes.scatter_add_(1, labels.index_select(0, index.flatten()).view_as(index), weights.to(torch::kInt64));
  return votes.argmax(1);
}

// Calls body(rows in float64) on slices: a layer's features may exceed the free memory.
template <class Body>
void for_rows(const torch::Tensor& features, const Body& body) {
  constexpr int64_t kRows = 4096;
  for (int64_t begin = 0; begin < features.size(0); begin += kRows)
    body(features.slice(0, begin, begin + kRows).to(torch::kCPU, torch::kFloat64));
}

torch::Tensor targets_of(const torch::Tensor& labels, int64_t first, int64_t count, int64_t classes) {
  return torch::one_hot(labels.slice(0, first, first + count), classes).to(torch::kFloat64);
}

void check_feature_labels(const torch::Tensor& features, const torch::Tensor& labels) {
  check(
      features.dim() == 2 && labels.dim() == 1 && labels.size(0) == features.size(0) && features.size(0) > 0,
      "features ", features.sizes(), " with labels ", labels.sizes());
}

torch::Tensor on_cpu(const torch::Tensor& x) { return x.to(torch::kCPU, torch::kFloat64); }

double entropy_of_shares(const torch::Tensor& values) {
  const torch::Tensor share = values.clamp_min(0) / values.sum().clamp_min(1e-300);
  return -torch::xlogy(share, share).sum().item<double>();
}

// Unbiased estimate of HSIC from Gram matrices with zero diagonals.
double unbiased_hsic(const torch::Tensor& k, const torch::Tensor& l) {
  const auto n = static_cast<double>(k.size(0));
  const double products = (k * l).sum().item<double>(),
               sums = k.sum().item<double>() * l.sum().item<double>() / ((n - 1) * (n - 2)),
               rows = 2 / (n - 2) * k.sum(0).dot(l.sum(0)).item<double>();
  return (products + sums - rows) / (n * (n - 3));
}

torch::Tensor gram(const torch::Tensor& x) { return x.mm(x.t()).fill_diagonal_(0); }

void check_pair(const torch::Tensor& x, const torch::Tensor& y) {
  check(x.dim() == 2 && y.dim() == 2 && x.size(0) == y.size(0), "representations ", x.sizes(), " and ",
        y.sizes(), " must be of the same samples");
}

}  // namespace

Spectrum spectrum(const torch::Tensor& features) {
  const torch::Tensor x = on_cpu(features), centred = x - x.mean(0);
  Spectrum out{.singular_values = torch::linalg_svdvals(x)};
  const torch::Tensor covariance = centred.t().mm(centred) / static_cast<double>(x.size(0) - 1);
  out.covariance_eigenvalues = torch::linalg_eigvalsh(covariance).clamp_min(0).flip(0);
  const torch::Tensor &e = out.covariance_eigenvalues, squares = out.singular_values.square();
  out.effective_rank = std::exp(entropy_of_shares(e));
  out.participation_ratio =
      e.sum().square().item<double>() / std::max(e.square().sum().item<double>(), 1e-300);
  out.stable_rank = squares.sum().item<double>() / std::max(squares.max().item<double>(), 1e-300);
  return out;
}

double uniformity(const torch::Tensor& features) {
  const torch::Tensor x = on_cpu(features), unit = x / x.norm(2, {1}, true).clamp_min(1e-12);
  return torch::pdist(unit).square().mul(-2).exp().mean().log().item<double>();
}

double linear_cka(const torch::Tensor& one, const torch::Tensor& other) {
  check_pair(one, other);
  const torch::Tensor x = on_cpu(one) - on_cpu(one).mean(0), y = on_cpu(other) - on_cpu(other).mean(0);
  const auto norm = [](const torch::Tensor& matrix) { return matrix.norm().item<double>(); };
  return std::pow(norm(y.t().mm(x)), 2) / (norm(x.t().mm(x)) * norm(y.t().mm(y)));
}

double debiased_cka(const torch::Tensor& one, const torch::Tensor& other, int64_t batch) {
  check_pair(one, other);
  const int64_t samples = one.size(0), step = batch > 0 ? std::min(batch, samples) : samples;
  if (step < 4) fail_usage("debiased CKA needs at least 4 samples at a time, there are ", step);
  double between = 0, of_one = 0, of_other = 0;
  for (int64_t begin = 0; begin + step <= samples; begin += step) {
    const torch::Tensor k = gram(on_cpu(one.slice(0, begin, begin + step))),
                        l = gram(on_cpu(other.slice(0, begin, begin + step)));
    between += unbiased_hsic(k, l), of_one += unbiased_hsic(k, k), of_other += unbiased_hsic(l, l);
  }
  return between / std::sqrt(of_one * of_other);
}

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
  check_feature_labels(train, labels);
  if (how.neighbours > train.size(0))
    fail_usage(how.neighbours, " neighbours of ", train.size(0), " training images");
  const torch::Device device = train.device();
  const torch::Tensor bank = unit_rows(train).t().contiguous(), queries = unit_rows(test),
                      there = labels.to(device);
  const int64_t classes = labels.max().item<int64_t>() + 1;
  // One buffer and one result: allocations in the loop would fragment the heap.
  const int64_t rows = std::clamp<int64_t>(kSimilarities / train.size(0), 1, 1024);
  const torch::Tensor similarity =
                          torch::empty({std::min(rows, queries.size(0)), train.size(0)}, bank.options()),
                      out = torch::empty({queries.size(0)}, torch::kInt64);
  for (int64_t begin = 0; begin < queries.size(0); begin += rows) {
    const torch::Tensor piece = queries.slice(0, begin, begin + rows).to(device);
    torch::Tensor found = similarity.slice(0, 0, piece.size(0));
    at::mm_out(found, piece, bank);
    out.slice(0, begin, begin + rows).copy_(vote(found, there, classes, how));
  }
  return out;
}

double neighbour_accuracy(const torch::Tensor& features, const torch::Tensor& labels, int64_t neighbours) {
  check_feature_labels(features, labels);
  const torch::Tensor unit = unit_rows(features);
  torch::Tensor similarity = unit.mm(unit.t());
  similarity.fill_diagonal_(-std::numeric_limits<double>::infinity());
  const torch::Tensor chosen =
      vote(similarity, labels, labels.max().item<int64_t>() + 1, {.neighbours = neighbours});
  return chosen.eq(labels).to(torch::kFloat64).mean().item<double>();
}

torch::Tensor Ridge::scores(const torch::Tensor& features) const {
  std::vector<torch::Tensor> out;
  for_rows(features, [&](const torch::Tensor& rows) {
    out.push_back(((rows - mean) / scale).mm(weight) + target_mean);
  });
  return torch::cat(out);
}

namespace {

// Mean, standard deviation (1 if 0 or not requested), and X'X and X'Y of centred features and targets.
struct Moments {
  torch::Tensor mean = {}, scale = {}, target_mean = {}, squares = {}, products = {};
};

Moments moments_of(const torch::Tensor& features, const torch::Tensor& labels, int64_t classes,
                   bool standardise) {
  const auto n = static_cast<double>(features.size(0));
  const int64_t width = features.size(1);
  const auto wide = torch::TensorOptions(torch::kFloat64);
  Moments out{.mean = torch::zeros({width}, wide), .scale = torch::zeros({width}, wide)};
  for_rows(features, [&](const torch::Tensor& rows) { out.mean += rows.sum(0); });
  out.mean /= n;
  for_rows(features, [&](const torch::Tensor& rows) { out.scale += (rows - out.mean).square().sum(0); });
  out.scale = standardise && n > 1 ? (out.scale / (n - 1)).sqrt() : torch::ones({width}, wide);
  out.scale.masked_fill_(out.scale == 0, 1);
  out.target_mean = torch::bincount(labels, {}, classes).to(torch::kFloat64) / n;
  out.squares = torch::zeros({width, width}, wide);
  out.products = torch::zeros({width, classes}, wide);
  int64_t first = 0;
  for_rows(features, [&](const torch::Tensor& rows) {
    const torch::Tensor x = (rows - out.mean) / out.scale,
                        y = targets_of(labels, first, rows.size(0), classes) - out.target_mean;
    first += rows.size(0);
    out.squares.addmm_(x.t(), x);
    out.products.addmm_(x.t(), y);
  });
  return out;
}

}  // namespace

// The eigenvectors V of X'X give U = X V, shared by all lambdas. The hat matrix has the diagonal 1/N + sum_j
// u_ij^2 / (e_j + lambda N); a sample's leave-one-out residual is its residual / (1 - h).
Ridge fit_ridge(const torch::Tensor& features, const torch::Tensor& labels, int64_t classes,
                const std::vector<double>& lambdas, bool standardise) {
  check_feature_labels(features, labels);
  const auto n = static_cast<double>(features.size(0));
  const Moments moments = moments_of(features, labels, classes, standardise);
  const auto [values, vectors] = torch::linalg_eigh(moments.squares);
  const torch::Tensor u_y = vectors.t().mm(moments.products);
  std::vector<torch::Tensor> inverses;
  for (const double lambda : lambdas) inverses.push_back(1 / (values.clamp_min(0) + lambda * n));
  std::vector<double> loo(lambdas.size(), 0);
  int64_t first = 0;
  for_rows(features, [&](const torch::Tensor& rows) {
    const torch::Tensor u = ((rows - moments.mean) / moments.scale).mm(vectors), squares = u.square(),
                        y = targets_of(labels, first, rows.size(0), classes) - moments.target_mean;
    first += rows.size(0);
    for (size_t l = 0; l < lambdas.size(); ++l) {
      const torch::Tensor residual = y - u.mm(inverses[l].unsqueeze(1) * u_y),
                          rest = (1 - 1 / n - squares.mv(inverses[l])).clamp_min(1e-12);
      loo[l] += (residual / rest.unsqueeze(1)).square().sum().item<double>();
    }
  });
  const auto best = static_cast<size_t>(std::min_element(loo.begin(), loo.end()) - loo.begin());
  check(best < loo.size() && std::isfinite(loo[best]), "no lambda gives a finite residual");
  return {.weight = vectors.mm(inverses[best].unsqueeze(1) * u_y),
          .mean = moments.mean,
          .scale = moments.scale,
          .target_mean = moments.target_mean,
          .lambda = lambdas[best],
          .loo = loo[best] / (n * static_cast<double>(classes))};
}

}  // namespace tessera::tasks
