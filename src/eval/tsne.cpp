#include "eval/tsne.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/random.h"
#include "core/threads.h"

namespace tessera::eval {
namespace {

// Squared distances of one point to all.
void distances_of(std::span<const float> points, int64_t count, int64_t width, int64_t i,
                  std::vector<double>& out) {
  const float* from = points.data() + i * width;
  for (int64_t j = 0; j < count; ++j) {
    const float* to = points.data() + j * width;
    double sum = 0;
    for (int64_t k = 0; k < width; ++k) {
      const double apart = static_cast<double>(from[k]) - static_cast<double>(to[k]);
      sum += apart * apart;
    }
    out[static_cast<size_t>(j)] = sum;
  }
}

// The entropy of exp(-beta d) over all but `self`, whose shares go to `shares`. Distances count from the nearest, so that
// nothing underflows.
double entropy_at(double beta, const std::vector<double>& distances, size_t self, double nearest,
                  std::vector<double>& shares) {
  double sum = 0, weighted = 0;
  for (size_t j = 0; j < distances.size(); ++j) {
    const double apart = distances[j] - nearest;
    shares[j] = j == self ? 0 : std::exp(-beta * apart);
    sum += shares[j];
    weighted += shares[j] * apart;
  }
  for (double& share : shares) share /= sum;
  return std::log(sum) + beta * weighted / sum;
}

// beta by bisection; the entropy falls as it grows.
double precision_for(double wanted, const std::vector<double>& distances, size_t self,
                     std::vector<double>& shares) {
  double nearest = std::numeric_limits<double>::infinity();
  for (size_t j = 0; j < distances.size(); ++j)
    if (j != self) nearest = std::min(nearest, distances[j]);
  double low = 0, high = std::numeric_limits<double>::infinity(), beta = 1;
  for (int i = 0; i < 200; ++i) {
    const double excess = entropy_at(beta, distances, self, nearest, shares) - wanted;
    if (std::abs(excess) < 1e-12) break;
    (excess > 0 ? low : high) = beta;
    beta = std::isinf(high) ? beta * 2 : (low + high) / 2;
  }
  return beta;
}

// Sums are kept in as many parts as a register of the processor holds, so that the compiler may use one.
constexpr size_t kLanes = 8;

// What one step needs, in float: sums of (1 + d^2)^-1 and, for each point, of attraction and repulsion.
struct Forces {
  std::vector<float> attraction, repulsion;  // x of all, then y of all
  double normaliser = 0;
};

Forces forces(std::span<const float> joint, const std::vector<float>& xs, const std::vector<float>& ys) {
  const auto n = static_cast<int64_t>(xs.size());
  Forces out{std::vector<float>(2 * xs.size()), std::vector<float>(2 * xs.size())};
  std::vector<double> sums(xs.size());
  parallel_for(n, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float x = xs[static_cast<size_t>(i)], y = ys[static_cast<size_t>(i)];
      const float *p = joint.data() + i * n, *px = xs.data(), *py = ys.data();
      float ax[kLanes] = {}, ay[kLanes] = {}, rx[kLanes] = {}, ry[kLanes] = {}, sum[kLanes] = {};
      const auto add = [&](int64_t j, size_t lane) {
        const float dx = x - px[j], dy = y - py[j], q = 1 / (1 + dx * dx + dy * dy);
        const float pull = p[j] * q, push = q * q;
        ax[lane] += pull * dx, ay[lane] += pull * dy;
        rx[lane] += push * dx, ry[lane] += push * dy, sum[lane] += q;
      };
      int64_t j = 0;
      for (; j + static_cast<int64_t>(kLanes) <= n; j += static_cast<int64_t>(kLanes))
        for (size_t lane = 0; lane < kLanes; ++lane) add(j + static_cast<int64_t>(lane), lane);
      for (; j < n; ++j) add(j, 0);
      const auto at = static_cast<size_t>(i);
      for (size_t lane = 0; lane < kLanes; ++lane) {
        out.attraction[at] += ax[lane], out.attraction[at + xs.size()] += ay[lane];
        out.repulsion[at] += rx[lane], out.repulsion[at + xs.size()] += ry[lane];
        sums[at] += static_cast<double>(sum[lane]);
      }
      sums[at] -= 1;  // itself
    }
  });
  for (const double sum : sums) out.normaliser += sum;
  return out;
}

}  // namespace

Affinities affinities(std::span<const float> points, int64_t count, int64_t width, double perplexity) {
  check(count > 0 && std::ssize(points) == count * width, "t-SNE: ", points.size(), " numbers for ", count,
        " points of ", width);
  if (!(perplexity > 1 && perplexity < static_cast<double>(count)))
    fail_usage("t-SNE: perplexity ", perplexity, " of ", count,
               " points, must be above 1 and below their number");
  if (count > kMostTsnePoints)
    fail_usage("t-SNE of ", count, " points: at most ", kMostTsnePoints, ", take fewer images");
  const auto n = static_cast<size_t>(count);
  Affinities out{std::vector<double>(n), std::vector<float>(n * n)};
  parallel_for(count, 1, [&](int64_t begin, int64_t end) {
    std::vector<double> distances(n), shares(n);
    for (int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<size_t>(i);
      distances_of(points, count, width, i, distances);
      out.precision[at] = precision_for(std::log(perplexity), distances, at, shares);
      for (size_t j = 0; j < n; ++j) out.joint[at * n + j] = static_cast<float>(shares[j]);
    }
  });
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j <= i; ++j) {
      const float both = (out.joint[i * n + j] + out.joint[j * n + i]) / (2 * static_cast<float>(n));
      out.joint[i * n + j] = out.joint[j * n + i] = both;
    }
  return out;
}

Divergence tsne_divergence(std::span<const float> joint, std::span<const double> y, int64_t count) {
  const auto n = static_cast<size_t>(count);
  check(joint.size() == n * n && y.size() == 2 * n, "t-SNE: ", joint.size(), " affinities and ", y.size(),
        " coordinates for ", count, " points");
  const auto closeness = [&](size_t i, size_t j) {
    const double dx = y[2 * i] - y[2 * j], dy = y[2 * i + 1] - y[2 * j + 1];
    return 1 / (1 + dx * dx + dy * dy);
  };
  double normaliser = 0;
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j)
      if (i != j) normaliser += closeness(i, j);
  Divergence out{0, std::vector<double>(2 * n)};
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j) {
      if (i == j) continue;
      const double p = static_cast<double>(joint[i * n + j]), w = closeness(i, j), q = w / normaliser;
      if (p > 0) out.kl += p * std::log(p / q);
      for (size_t k = 0; k < 2; ++k)
        out.gradient[2 * i + k] += 4 * (p - q) * w * (y[2 * i + k] - y[2 * j + k]);
    }
  return out;
}

TsneMap tsne(std::span<const float> points, int64_t count, int64_t width, std::span<const double> start,
             const TsneOptions& options) {
  const Affinities found = affinities(points, count, width, options.perplexity);
  const auto n = static_cast<size_t>(count);
  check(start.empty() || start.size() == 2 * n, "t-SNE: ", start.size(), " first coordinates for ", count,
        " points");
  std::vector<float> xs(n), ys(n);
  RandomStream stream(options.seed, "tsne");
  for (size_t i = 0; i < n; ++i) {
    xs[i] = static_cast<float>(start.empty() ? 1e-4 * stream.normal() : start[2 * i]);
    ys[i] = static_cast<float>(start.empty() ? 1e-4 * stream.normal() : start[2 * i + 1]);
  }
  const double rate =
      options.rate > 0 ? options.rate : std::max(50.0, static_cast<double>(count) / options.exaggeration / 4);
  std::vector<double> velocity(2 * n), gain(2 * n, 1);
  for (int64_t step = 0; step < options.steps; ++step) {
    const bool early = step < options.steps / 4;
    const double pull = early ? options.exaggeration : 1, momentum = early ? 0.5 : 0.8;
    const Forces f = forces(found.joint, xs, ys);
    for (size_t k = 0; k < 2 * n; ++k) {
      const double gradient = 4 * (pull * static_cast<double>(f.attraction[k]) -
                                   static_cast<double>(f.repulsion[k]) / f.normaliser);
      gain[k] = std::max(0.01, velocity[k] * gradient < 0 ? gain[k] + 0.2 : gain[k] * 0.8);
      velocity[k] = momentum * velocity[k] - rate * gain[k] * gradient;
      float& place = k < n ? xs[k] : ys[k - n];
      place += static_cast<float>(velocity[k]);
    }
    if (options.progress && !options.progress(step + 1)) break;
  }
  TsneMap map;
  for (size_t i = 0; i < n; ++i) map.places.push_back(xs[i]), map.places.push_back(ys[i]);
  map.kl = tsne_divergence(found.joint, map.places, count).kl;
  return map;
}

}  // namespace tessera::eval
