#include "eval/generative.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <optional>

#include "core/error.h"
#include "core/random.h"
#include "core/threads.h"

namespace tessera::eval {
namespace {

constexpr int64_t kTile = 128;  // number of rows of features that stay in the cache

// Returns rows first … first + count - 1 in double.
std::vector<double> widened(std::span<const float> rows, int64_t width, int64_t first, int64_t count) {
  const auto from = rows.subspan(static_cast<size_t>(first * width), static_cast<size_t>(count * width));
  return {from.begin(), from.end()};
}

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

double squared_distance(const double* a, const double* b, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

// Calls visit(i, j, row i of a, row j of b) for all pairs, in tiles; one thread handles each row of `a`.
using Visit = std::function<void(int64_t i, int64_t j, const double* x, const double* y)>;
void for_each_pair(std::span<const float> a, std::span<const float> b, int64_t width, const Visit& visit) {
  const int64_t rows = std::ssize(a) / width, others = std::ssize(b) / width;
  parallel_for((rows + kTile - 1) / kTile, 1, [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t first = tile * kTile, count = std::min(kTile, rows - first);
      const std::vector<double> own = widened(a, width, first, count);
      for (int64_t start = 0; start < others; start += kTile) {
        const int64_t there = std::min(kTile, others - start);
        const std::vector<double> other = widened(b, width, start, there);
        for (int64_t i = 0; i < count; ++i)
          for (int64_t j = 0; j < there; ++j)
            visit(first + i, start + j, own.data() + i * width, other.data() + j * width);
      }
    }
  });
}

// Returns the sum of the kernel over all pairs, or over those with i != j. Partial sums per row make the
// result independent of the threads.
double kernel_sum(std::span<const float> a, std::span<const float> b, int64_t width, bool without_equal) {
  std::vector<double> rows(a.size() / static_cast<size_t>(width), 0.0);
  for_each_pair(a, b, width, [&](int64_t i, int64_t j, const double* x, const double* y) {
    if (without_equal && i == j) return;
    const double base = dot(x, y, width) / static_cast<double>(width) + 1;
    rows[static_cast<size_t>(i)] += base * base * base;
  });
  double sum = 0;
  for (const double row : rows) sum += row;
  return sum;
}

// Returns the squared distance of each row to its k-th nearest neighbour.
std::vector<double> squared_radii(std::span<const float> rows, int64_t width, int64_t k) {
  const auto count = rows.size() / static_cast<size_t>(width), nearest = static_cast<size_t>(k);
  std::vector<double> heaps(count * nearest,
                            std::numeric_limits<double>::infinity());  // the largest is first
  for_each_pair(rows, rows, width, [&](int64_t i, int64_t j, const double* x, const double* y) {
    if (i == j) return;
    double* heap = heaps.data() + i * k;
    const double distance = squared_distance(x, y, width);
    if (!(distance < heap[0])) return;
    std::pop_heap(heap, heap + k);
    heap[k - 1] = distance;
    std::push_heap(heap, heap + k);
  });
  std::vector<double> radii(count);
  for (size_t i = 0; i < count; ++i) radii[i] = heaps[i * nearest];
  return radii;
}

// Returns copies of the `chosen` rows.
std::vector<float> picked(std::span<const float> rows, int64_t width, std::span<const int64_t> chosen) {
  std::vector<float> out;
  out.reserve(chosen.size() * static_cast<size_t>(width));
  for (const int64_t row : chosen) {
    const auto from = rows.subspan(static_cast<size_t>(row * width), static_cast<size_t>(width));
    out.insert(out.end(), from.begin(), from.end());
  }
  return out;
}

std::pair<double, double> mean_and_deviation(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  for (const double value : values) squares += (value - sum / n) * (value - sum / n);
  return {sum / n, std::sqrt(squares / n)};
}

}  // namespace

InceptionScoreMeter::InceptionScoreMeter(int64_t classes, int64_t samples, int64_t splits,
                                         std::optional<uint64_t> shuffle_seed)
    : classes_(classes),
      samples_(samples),
      negative_entropy_(static_cast<size_t>(splits), 0.0),
      sums_(static_cast<size_t>(splits * classes), 0.0) {
  if (splits < 1 || samples < splits)
    fail_usage("an Inception Score of ", samples, " samples cannot have ", splits, " splits");
  if (shuffle_seed && splits > 1)
    order_ = RandomStream(*shuffle_seed, "inception score").permutation(samples);
}

// The last split that begins at or before the sample's index.
int64_t InceptionScoreMeter::split_of(int64_t sample) const {
  const auto splits = std::ssize(negative_entropy_);
  const int64_t place = order_.empty() ? sample : order_[static_cast<size_t>(sample)];
  int64_t split = place * splits / samples_;
  while (split + 1 < splits && (split + 1) * samples_ / splits <= place) ++split;
  return split;
}

void InceptionScoreMeter::add(std::span<const double> probabilities) {
  const auto classes = static_cast<size_t>(classes_);
  check(probabilities.size() % classes == 0, probabilities.size(), " probabilities are not whole samples of ",
        classes_, " classes");
  for (size_t at = 0; at < probabilities.size(); at += classes, ++count_) {
    check(count_ < samples_, "more than ", samples_, " samples");
    const int64_t split = split_of(count_);
    double* sums = sums_.data() + split * classes_;
    for (size_t c = 0; c < classes; ++c) {
      const double p = probabilities[at + c];
      check(p >= 0 && p <= 1 + 1e-6, "class ", c, " of sample ", count_, " has the probability ", p);
      sums[c] += p;
      if (p > 0) negative_entropy_[static_cast<size_t>(split)] += p * std::log(p);
    }
  }
}

InceptionScore InceptionScoreMeter::score() const {
  check(count_ == samples_, "an Inception Score of ", samples_, " samples received ", count_);
  InceptionScore out;
  const auto splits = std::ssize(negative_entropy_);
  for (int64_t split = 0; split < splits; ++split) {
    const auto n = static_cast<double>((split + 1) * samples_ / splits - split * samples_ / splits);
    double divergence = negative_entropy_[static_cast<size_t>(split)] / n;
    for (int64_t c = 0; c < classes_; ++c) {
      const double mean = sums_[static_cast<size_t>(split * classes_ + c)] / n;
      if (mean > 0) divergence -= mean * std::log(mean);
    }
    out.splits.push_back(std::exp(divergence));
  }
  std::tie(out.mean, out.deviation) = mean_and_deviation(out.splits);
  return out;
}

double kernel_distance(std::span<const float> real, std::span<const float> fake, int64_t width) {
  const auto m = static_cast<double>(std::ssize(real) / width),
             n = static_cast<double>(std::ssize(fake) / width);
  if (m < 2 || n < 2) fail_usage("a kernel distance needs two samples in each set");
  return kernel_sum(real, real, width, true) / (m * (m - 1)) +
         kernel_sum(fake, fake, width, true) / (n * (n - 1)) -
         2 * kernel_sum(real, fake, width, false) / (m * n);
}

KernelDistance kernel_distance_of_subsets(std::span<const float> real, std::span<const float> fake,
                                          int64_t width, int64_t subsets, int64_t size, uint64_t seed) {
  const int64_t reals = std::ssize(real) / width, fakes = std::ssize(fake) / width;
  if (size < 2 || size > std::min(reals, fakes))
    fail_usage("subsets of ", size, " samples cannot be drawn from ", reals, " and ", fakes);
  std::vector<double> values;
  for (int64_t i = 0; i < subsets; ++i) {
    const auto draw = [&](std::span<const float> rows, int64_t count, const char* purpose) {
      const std::vector<int64_t> order =
          RandomStream(seed, purpose, static_cast<uint64_t>(i)).permutation(count);
      return picked(rows, width, std::span(order).first(static_cast<size_t>(size)));
    };
    values.push_back(kernel_distance(draw(real, reals, "kernel distance, real"),
                                     draw(fake, fakes, "kernel distance, fake"), width));
  }
  KernelDistance out;
  std::tie(out.mean, out.deviation) = mean_and_deviation(values);
  return out;
}

ManifoldScores manifold_scores(std::span<const float> real, std::span<const float> fake, int64_t width,
                               int64_t neighbours) {
  const auto reals = real.size() / static_cast<size_t>(width),
             fakes = fake.size() / static_cast<size_t>(width);
  if (neighbours < 1 || reals <= static_cast<size_t>(neighbours) || fakes <= static_cast<size_t>(neighbours))
    fail_usage("precision and recall with ", neighbours,
               " neighbours need more samples than that, there are ", reals, " real and ", fakes,
               " generated");
  const std::vector<double> real_radii = squared_radii(real, width, neighbours),
                            fake_radii = squared_radii(fake, width, neighbours);
  // For each real sample: the number of fakes in its ball, and whether it is in the ball of a fake.
  std::vector<int64_t> held(reals, 0);
  std::vector<char> recalled(reals, 0);
  const auto precise = std::make_unique<std::atomic<char>[]>(fakes);
  for_each_pair(real, fake, width, [&](int64_t r, int64_t f, const double* x, const double* y) {
    const auto i = static_cast<size_t>(r), j = static_cast<size_t>(f);
    const double distance = squared_distance(x, y, width);
    if (distance <= real_radii[i]) {
      ++held[i];
      precise[j].store(1, std::memory_order_relaxed);
    }
    if (distance <= fake_radii[j]) recalled[i] = 1;
  });
  int64_t in_balls = 0, covered = 0, found = 0, good = 0;
  for (size_t i = 0; i < reals; ++i) {
    in_balls += held[i];
    covered += held[i] > 0;
    found += recalled[i];
  }
  for (size_t j = 0; j < fakes; ++j) good += precise[j].load();
  const auto m = static_cast<double>(reals), n = static_cast<double>(fakes);
  return {.precision = static_cast<double>(good) / n,
          .recall = static_cast<double>(found) / m,
          .density = static_cast<double>(in_balls) / (static_cast<double>(neighbours) * n),
          .coverage = static_cast<double>(covered) / m};
}

}  // namespace tessera::eval
