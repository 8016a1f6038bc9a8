// Exact t-SNE (van der Maaten & Hinton 2008) for a few thousand points: no tree, every pair counts.
//
//   p(j|i) ~ exp(-beta_i |x_i - x_j|^2), P = (p + p') / (2 n)   beta_i: entropy of p(.|i) = log(perplexity)
//   q_ij ~ 1 / (1 + |y_i - y_j|^2)                              y minimises KL(P || Q)
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace tessera::eval {

struct Affinities {
  std::vector<double> precision;  // beta, [points]
  std::vector<float> joint;       // P, [points, points]
};
// `points` [count, width], row-major. Throws a usage error unless 1 < perplexity < count <= kMostTsnePoints.
inline constexpr int64_t kMostTsnePoints = 12000;
Affinities affinities(std::span<const float> points, int64_t count, int64_t width, double perplexity);

// KL(P || Q) at y [count, 2] and its gradient, in plain loops.
struct Divergence {
  double kl = 0;
  std::vector<double> gradient;  // [count, 2]
};
Divergence tsne_divergence(std::span<const float> joint, std::span<const double> y, int64_t count);

struct TsneOptions {
  int64_t steps = 1000;
  double perplexity = 30;
  double exaggeration = 12;  // factor on P in the first quarter of the steps
  double rate = 0;           // 0: count / exaggeration / 4, at least 50 (Belkina et al. 2019)
  uint64_t seed = 0;         // seed of the initial positions if `start` is empty
  std::function<bool(int64_t step)> progress = {};  // false stops
};
struct TsneMap {
  std::vector<double> places;  // [count, 2]
  double kl = 0;
};
// `start` [count, 2], or empty; usually the first two principal components, scaled to a deviation of 1e-4.
TsneMap tsne(std::span<const float> points, int64_t count, int64_t width, std::span<const double> start,
             const TsneOptions& options = {});

}  // namespace tessera::eval
