#include "eval/tsne.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/random.h"
#include "core/threads.h"

namespace tessera::eval {
namespace {

// Computes the squared distances of one point to all.
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

struct Entropy {
  double value = 0, slope = 0;  // slope: derivative by beta, -beta times the variance of the distances
};

// Computes the entropy of exp(-beta d) over all points except `self`, and the probabilities in `shares`.
// Distances are relative to the nearest, to avoid underflow.
Entropy entropy_at(double beta, const std::vector<double>& distances, size_t self, double nearest,
                   std::vector<double>& shares) {
  double sum = 0, weighted = 0, squares = 0;
  for (size_t j = 0; j < distances.size(); ++j) {
    const double apart = distances[j] - nearest;
    shares[j] = j == self ? 0 : std::exp(-beta * apart);
    sum += shares[j];
    weighted += shares[j] * apart;
    squares += shares[j] * apart * apart;
  }
  for (double& share : shares) share /= sum;
  const double mean = weighted / sum;
  return {std::log(sum) + beta * mean, -beta * (squares / sum - mean * mean)};
}

// Finds beta by Newton's method between bounds from the signs; the entropy decreases with beta.
double precision_for(double wanted, const std::vector<double>& distances, size_t self,
                     std::vector<double>& shares) {
  double nearest = std::numeric_limits<double>::infinity();
  for (size_t j = 0; j < distances.size(); ++j)
    if (j != self) nearest = std::min(nearest, distances[j]);
  double low = 0, high = std::numeric_limits<double>::infinity(), beta = 1;
  for (int i = 0; i < 200; ++i) {
    const Entropy found = entropy_at(beta, distances, self, nearest, shares);
    const double excess = found.value - wanted;
    if (std::abs(excess) < 1e-12) break;
    (excess > 0 ? low : high) = beta;
    const double newton = beta - excess / found.slope;
    if (newton > low && newton < high && newton < 8 * beta)
      beta = newton;
    else
      beta = std::isinf(high) ? beta * 2 : (low + high) / 2;
  }
  return beta;
}

// Each sum has as many lanes as the widest vector register, so that the compiler can vectorise it.
constexpr int64_t kLanes = 16;

// The sums of one step, in float: (1 + d^2)^-1, and for each point attraction and repulsion.
struct Forces {
  std::vector<float> attraction, repulsion;  // x of all points, then y of all
  double normaliser = 0;
};

// The forces on one point at (x, y), by lane.
struct PointForces {
  float attraction_x[kLanes] = {}, attraction_y[kLanes] = {};
  float repulsion_x[kLanes] = {}, repulsion_y[kLanes] = {}, closeness[kLanes] = {};
};

// `joint`, `xs` and `ys` have n points; n is a multiple of kLanes.
TESSERA_FOR_EACH_ISA void add_forces(const float* joint, const float* xs, const float* ys, int64_t n, float x,
                                     float y, PointForces& sums) {
  PointForces own = sums;  // kept in registers, unlike a reference
  for (int64_t j = 0; j < n; j += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const float dx = x - xs[j + lane], dy = y - ys[j + lane], q = 1 / (1 + dx * dx + dy * dy);
      const float pull = joint[j + lane] * q, push = q * q;
      own.attraction_x[lane] += pull * dx, own.attraction_y[lane] += pull * dy;
      own.repulsion_x[lane] += push * dx, own.repulsion_y[lane] += push * dy;
      own.closeness[lane] += q;
    }
  sums = own;
}

Forces forces(std::span<const float> joint, const std::vector<float>& xs, const std::vector<float>& ys) {
  const auto n = static_cast<int64_t>(xs.size()), whole = n / kLanes * kLanes;
  Forces out{std::vector<float>(2 * xs.size()), std::vector<float>(2 * xs.size())};
  std::vector<double> sums(xs.size());
  parallel_for(n, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<size_t>(i);
      const float* row = joint.data() + i * n;
      const float x = xs[at], y = ys[at];
      PointForces found;
      add_forces(row, xs.data(), ys.data(), whole, x, y, found);
      // Pads the last register with points at the same position and zero affinity, which exert no force.
      if (whole < n) {
        float p[kLanes] = {}, px[kLanes], py[kLanes];
        std::fill_n(px, kLanes, x), std::fill_n(py, kLanes, y);
        std::copy_n(row + whole, n - whole, p);
        std::copy_n(xs.data() + whole, n - whole, px), std::copy_n(ys.data() + whole, n - whole, py);
        add_forces(p, px, py, kLanes, x, y, found);
        sums[at] -= static_cast<double>(kLanes - (n - whole));
      }
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        out.attraction[at] += found.attraction_x[lane],
            out.attraction[at + xs.size()] += found.attraction_y[lane];
        out.repulsion[at] += found.repulsion_x[lane],
            out.repulsion[at + xs.size()] += found.repulsion_y[lane];
        sums[at] += static_cast<double>(found.closeness[lane]);
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
