#include "eval/frechet.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/threads.h"
#include "eval/numerics.h"

namespace tessera::eval {
namespace {

constexpr int64_t kBatch = 64;  // samples added to the products at once

}  // namespace

Moments::Moments(int64_t width)
    : width_(width),
      sum_(static_cast<size_t>(width), 0.0),
      products_(static_cast<size_t>(width * width), 0.0) {}

void Moments::add(std::span<const float> rows) {
  const auto width = static_cast<size_t>(width_);
  check(width > 0 && rows.size() % width == 0, rows.size(), " features are not whole samples of ", width_);
  for (size_t i = 0; i < rows.size(); ++i)
    check(std::isfinite(rows[i]), "feature ", i % width, " of sample ",
          samples_ + static_cast<int64_t>(i / width), " is ", rows[i]);
  if (origin_.empty() && !rows.empty()) origin_.assign(rows.begin(), rows.begin() + width_);
  std::vector<double> moved;
  for (size_t at = 0; at < rows.size(); at += kBatch * width) {
    const size_t count = std::min(kBatch * width, rows.size() - at);
    moved.resize(count);
    for (size_t i = 0; i < count; ++i) moved[i] = static_cast<double>(rows[at + i]) - origin_[i % width];
    const auto batch = static_cast<int64_t>(count / width);
    for (int64_t s = 0; s < batch; ++s)
      for (size_t i = 0; i < width; ++i) sum_[i] += moved[static_cast<size_t>(s) * width + i];
    parallel_for(width_, 32, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        double* row = products_.data() + i * width_;
        for (int64_t s = 0; s < batch; ++s) {
          const double* x = moved.data() + s * width_;
          const double factor = x[i];
          for (int64_t j = 0; j <= i; ++j) row[j] += factor * x[j];
        }
      }
    });
    samples_ += batch;
  }
}

Gaussian gaussian_of_sums(int64_t samples, std::span<const double> origin, std::span<const double> sum,
                          std::span<const double> products) {
  check(samples >= 2, "a covariance needs at least two samples, there is ", samples);
  const auto n = static_cast<double>(samples);
  const size_t width = sum.size();
  Gaussian out{samples, std::vector<double>(width), std::vector<double>(products.size())};
  for (size_t i = 0; i < width; ++i) out.mean[i] = origin[i] + sum[i] / n;
  for (size_t i = 0; i < width; ++i)
    for (size_t j = 0; j <= i; ++j)
      out.covariance[i * width + j] = out.covariance[j * width + i] =
          (products[i * width + j] - sum[i] * sum[j] / n) / (n - 1);
  return out;
}

double frechet_distance(const Gaussian& a, const Gaussian& b) {
  check(a.width() == b.width(), "features of ", a.width(), " and of ", b.width(),
        " dimensions cannot be compared");
  const int64_t width = a.width();
  double distance = 0, trace = 0;
  for (int64_t i = 0; i < width; ++i) {
    const double difference = a.mean[static_cast<size_t>(i)] - b.mean[static_cast<size_t>(i)];
    distance += difference * difference;
    trace +=
        a.covariance[static_cast<size_t>(i * width + i)] + b.covariance[static_cast<size_t>(i * width + i)];
  }
  const PivotedCholesky factor = pivoted_cholesky(a.covariance, width);
  double root = 0;
  for (const double value : symmetric_eigenvalues(congruence(factor, b.covariance), factor.rank))
    root += std::sqrt(std::max(0.0, value));
  return distance + trace - 2 * root;
}

}  // namespace tessera::eval
