#include "eval/numerics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/threads.h"

namespace tessera::eval {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr int64_t kParts = 16;       // number of partial sums; fixed, so results are equal
constexpr int64_t kSerialRows = 64;  // smaller problems run on one thread

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// y += scale * x
void add_scaled(double* y, double scale, const double* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += scale * x[i];
}

// Splits rows [first, n) of the lower triangle into kParts parts of about equal area.
int64_t part_begin(int64_t part, int64_t first, int64_t n) {
  const double share = std::sqrt(static_cast<double>(part) / kParts);
  return first + static_cast<int64_t>(share * static_cast<double>(n - first));
}

class Tridiagonal {
 public:
  Tridiagonal(std::vector<double> matrix, int64_t n)
      : n_(n),
        a_(std::move(matrix)),
        v_(static_cast<size_t>(n)),
        p_(static_cast<size_t>(n)),
        partial_(static_cast<size_t>(n * kParts)) {
    diagonal.resize(static_cast<size_t>(n));
    off_diagonal.assign(static_cast<size_t>(n), 0);
    for (int64_t k = 0; k < n; ++k) reduce(k);
  }

  std::vector<double> diagonal, off_diagonal;  // off_diagonal[k] couples k and k + 1

 private:
  double* row(int64_t i) { return a_.data() + i * n_; }

  // Reduces column k below the diagonal to (off_diagonal, 0, …) by the reflection I - tau v v^T.
  void reduce(int64_t k) {
    diagonal[static_cast<size_t>(k)] = row(k)[k];
    if (k + 1 == n_) return;
    double scale = 0, square = 0;
    for (int64_t i = k + 1; i < n_; ++i) scale = std::max(scale, std::abs(row(i)[k]));
    const double first = row(k + 1)[k];
    if (k + 2 == n_ || scale == 0) {
      off_diagonal[static_cast<size_t>(k)] = first;
      return;
    }
    for (int64_t i = k + 1; i < n_; ++i) {
      v_[static_cast<size_t>(i)] = row(i)[k] / scale;
      square += v_[static_cast<size_t>(i)] * v_[static_cast<size_t>(i)];
    }
    const double length = first >= 0 ? -std::sqrt(square) : std::sqrt(square);
    const double head = v_[static_cast<size_t>(k + 1)] - length;
    v_[static_cast<size_t>(k + 1)] = head;
    off_diagonal[static_cast<size_t>(k)] = length * scale;
    const double tau = -1 / (length * head);  // 2 / (v . v)
    multiply(k + 1);
    const double* v = v_.data() + k + 1;
    double* p = p_.data() + k + 1;
    const int64_t left = n_ - k - 1;
    for (int64_t i = 0; i < left; ++i) p[i] *= tau;
    add_scaled(p, -0.5 * tau * dot(p, v, left), v, left);
    update(k + 1);
  }

  // Computes p = A v over rows and columns from `first`.
  void multiply(int64_t first) {
    const int64_t parts = n_ - first < kSerialRows ? 1 : kParts;
    parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        double* sum = partial_.data() + part * n_;
        std::fill(sum + first, sum + n_, 0.0);
        const int64_t last = parts == 1 ? n_ : part_begin(part + 1, first, n_);
        for (int64_t i = parts == 1 ? first : part_begin(part, first, n_); i < last; ++i) {
          const double* a = row(i);
          const double vi = v_[static_cast<size_t>(i)];
          sum[i] += a[i] * vi + dot(a + first, v_.data() + first, i - first);
          add_scaled(sum + first, vi, a + first, i - first);
        }
      }
    });
    std::fill(p_.begin() + first, p_.end(), 0.0);
    for (int64_t part = 0; part < parts; ++part)
      add_scaled(p_.data() + first, 1, partial_.data() + part * n_ + first, n_ - first);
  }

  // A -= v p^T + p v^T
  void update(int64_t first) {
    const int64_t parts = n_ - first < kSerialRows ? 1 : kParts;
    parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = parts == 1 ? first : part_begin(begin, first, n_),
                   last = parts == 1 ? n_ : part_begin(end, first, n_);
           i < last; ++i) {
        double* a = row(i);
        const double vi = v_[static_cast<size_t>(i)], pi = p_[static_cast<size_t>(i)];
        for (int64_t j = first; j <= i; ++j)
          a[j] -= vi * p_[static_cast<size_t>(j)] + pi * v_[static_cast<size_t>(j)];
      }
    });
  }

  int64_t n_;
  std::vector<double> a_, v_, p_, partial_;
};

// Finds eigenvalues of the tridiagonal form by bisection, kLanes at a time. The number of eigenvalues below x
// is the number of negative pivots of T - x I (Sturm).
class Bisection {
 public:
  Bisection(std::vector<double> diagonal, const std::vector<double>& off_diagonal)
      : diagonal_(std::move(diagonal)), squares_(diagonal_.size(), 0.0) {
    for (size_t i = 0; i + 1 < diagonal_.size(); ++i) squares_[i + 1] = off_diagonal[i] * off_diagonal[i];
    for (size_t i = 0; i < diagonal_.size(); ++i) {  // Gershgorin
      const double reach = (i > 0 ? std::abs(off_diagonal[i - 1]) : 0) + std::abs(off_diagonal[i]);
      spread_ = std::max(spread_, std::abs(diagonal_[i]) + reach);
    }
  }

  // Writes eigenvalues first … first + kLanes - 1 (from the smallest) to `out`, up to its end.
  void find(int64_t first, std::span<double> out) const {
    double low[kLanes], high[kLanes], middle[kLanes];
    std::fill_n(low, kLanes, -spread_);
    std::fill_n(high, kLanes, spread_);
    for (int halving = 0; halving < kHalvings; ++halving) {
      for (int64_t lane = 0; lane < kLanes; ++lane) middle[lane] = 0.5 * (low[lane] + high[lane]);
      double below[kLanes];
      count_below(middle, below);
      for (int64_t lane = 0; lane < kLanes; ++lane)
        (below[lane] > static_cast<double>(first + lane) ? high : low)[lane] = middle[lane];
    }
    const auto size = std::ssize(out);
    for (int64_t lane = 0; lane < kLanes && first + lane < size; ++lane)
      out[static_cast<size_t>(first + lane)] = 0.5 * (low[lane] + high[lane]);
  }

  static constexpr int64_t kLanes = 16;

 private:
  static constexpr int kHalvings = 56;  // exact to the rounding of the largest eigenvalue

  void count_below(const double (&x)[kLanes], double (&below)[kLanes]) const {
    const double least = std::numeric_limits<double>::min() + kEpsilon * kEpsilon * spread_;
    double pivot[kLanes];
    std::fill_n(pivot, kLanes, 1.0);
    std::fill_n(below, kLanes, 0.0);
    for (size_t i = 0; i < diagonal_.size(); ++i) {
      const double d = diagonal_[i], square = squares_[i];
#pragma omp simd
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        double next = d - x[lane] - square / pivot[lane];
        next = std::abs(next) < least ? -least : next;
        below[lane] += next < 0 ? 1.0 : 0.0;
        pivot[lane] = next;
      }
    }
  }

  std::vector<double> diagonal_, squares_;
  double spread_ = 0;
};

}  // namespace

std::vector<double> symmetric_eigenvalues(std::vector<double> matrix, int64_t n) {
  if (n == 0) return {};
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j)
      check(std::isfinite(matrix[static_cast<size_t>(i * n + j)]), "a matrix of ", n, " x ", n,
            " has the value ", matrix[static_cast<size_t>(i * n + j)], " at [", i, ", ", j, "]");
  Tridiagonal form(std::move(matrix), n);
  const Bisection bisection(std::move(form.diagonal), form.off_diagonal);
  std::vector<double> values(static_cast<size_t>(n));
  parallel_for((n + Bisection::kLanes - 1) / Bisection::kLanes, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) bisection.find(block * Bisection::kLanes, values);
  });
  return values;
}

PivotedCholesky pivoted_cholesky(std::span<const double> matrix, int64_t n) {
  const auto at = [&](int64_t i, int64_t j) {
    return matrix[static_cast<size_t>(std::max(i, j) * n + std::min(i, j))];
  };
  PivotedCholesky out;
  out.order.resize(static_cast<size_t>(n));
  std::iota(out.order.begin(), out.order.end(), int64_t{0});
  std::vector<double> left(static_cast<size_t>(n)), factor(static_cast<size_t>(n * n), 0.0);
  for (int64_t i = 0; i < n; ++i) left[static_cast<size_t>(i)] = at(i, i);
  double largest = 0;
  for (const double value : left) largest = std::max(largest, value);
  const double rounding = static_cast<double>(n) * kEpsilon * largest;
  // Rows keep their number in the matrix; `order` lists the pivots in order.
  int64_t k = 0;
  for (; k < n; ++k) {
    const auto begin = out.order.begin() + k;
    const auto pivot = std::max_element(begin, out.order.end(), [&](int64_t a, int64_t b) {
      return left[static_cast<size_t>(a)] < left[static_cast<size_t>(b)];
    });
    if (!(left[static_cast<size_t>(*pivot)] > rounding)) break;
    std::iter_swap(begin, pivot);
    const int64_t row = *begin;
    double* own = factor.data() + row * n;
    const double diagonal = std::sqrt(left[static_cast<size_t>(row)]);
    own[k] = diagonal;
    parallel_for(n - k - 1, kSerialRows, [&](int64_t from, int64_t to) {
      for (int64_t m = from; m < to; ++m) {
        const int64_t i = out.order[static_cast<size_t>(k + 1 + m)];
        double* other = factor.data() + i * n;
        other[k] = (at(i, row) - dot(other, own, k)) / diagonal;
        left[static_cast<size_t>(i)] -= other[k] * other[k];
      }
    });
  }
  out.rank = k;
  out.factor.resize(static_cast<size_t>(n * k));
  for (int64_t i = 0; i < n; ++i)
    std::copy_n(factor.data() + out.order[static_cast<size_t>(i)] * n, k, out.factor.data() + i * k);
  return out;
}

std::vector<double> congruence(const PivotedCholesky& l, std::span<const double> b) {
  const auto n = std::ssize(l.order);
  const int64_t rank = l.rank;
  const auto factor = [&](int64_t i) { return l.factor.data() + i * rank; };
  constexpr int64_t kRows = 4, kDepth = 64;  // a band of L stays in the cache while several rows read it
  std::vector<double> product(static_cast<size_t>(n * rank), 0.0);  // B L
  parallel_for((n + kRows - 1) / kRows, 4, [&](int64_t from, int64_t to) {
    for (int64_t band = 0; band < n; band += kDepth)
      for (int64_t i = from * kRows; i < std::min(n, to * kRows); ++i) {
        const double* row = b.data() + l.order[static_cast<size_t>(i)] * n;
        for (int64_t k = band; k < std::min(n, band + kDepth); ++k)
          add_scaled(product.data() + i * rank, row[l.order[static_cast<size_t>(k)]], factor(k),
                     std::min(k + 1, rank));
      }
  });
  std::vector<double> out(static_cast<size_t>(rank * rank), 0.0);
  // Row i of the result is the sum over k >= i of L[k][i] (B L)[k]; late rows have few k and many columns.
  parallel_for(rank, 8, [&](int64_t from, int64_t to) {
    for (int64_t band = from; band < n; band += kDepth)
      for (int64_t i = from; i < to; ++i)
        for (int64_t k = std::max(band, i); k < std::min(n, band + kDepth); ++k)
          add_scaled(out.data() + i * rank, factor(k)[i], product.data() + k * rank, i + 1);
  });
  return out;
}

}  // namespace tessera::eval
