#include "laws/minimise.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace tessera::laws {
namespace {

double product(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// The state of BFGS: a point, its value and gradient, and the inverse Hessian [size, size].
class Bfgs {
 public:
  Bfgs(const Objective& objective, std::vector<double> start)
      : objective_(objective),
        size_(start.size()),
        x_(std::move(start)),
        gradient_(size_),
        next_(size_),
        next_gradient_(size_) {
    value_ = objective_(x_, gradient_);
    reset();
  }

  double value() const { return value_; }
  const std::vector<double>& x() const { return x_; }

  // Resets the inverse Hessian to a multiple of the identity with a first step of length 1 at most.
  void reset() {
    const double norm = std::sqrt(product(gradient_, gradient_));
    inverse_.assign(size_ * size_, 0);
    for (size_t i = 0; i < size_; ++i) inverse_[i * size_ + i] = 1 / std::max(1.0, norm);
    fresh_ = true;
  }

  // Makes one step. False if no step lowers the value.
  bool step() {
    std::vector<double> direction(size_);
    for (size_t i = 0; i < size_; ++i)
      for (size_t j = 0; j < size_; ++j) direction[i] -= inverse_[i * size_ + j] * gradient_[j];
    const double slope = product(direction, gradient_);
    if (!(slope < 0) || !search(direction, slope)) return false;
    update();
    std::swap(x_, next_), std::swap(gradient_, next_gradient_);
    value_ = next_value_;
    return true;
  }

 private:
  // Finds a step length by bisection. False if the value does not decrease.
  bool search(const std::vector<double>& direction, double slope) {
    double low = 0, high = std::numeric_limits<double>::infinity(), length = 1;
    bool fell = false;
    for (int i = 0; i < 60; ++i) {
      for (size_t j = 0; j < size_; ++j) next_[j] = x_[j] + length * direction[j];
      next_value_ = objective_(next_, next_gradient_);
      if (!(next_value_ <= value_ + 1e-4 * length * slope)) {
        high = length;
      } else if (product(next_gradient_, direction) < 0.9 * slope) {
        fell = true;
        low = length;
      } else {
        return next_value_ < value_;
      }
      length = std::isinf(high) ? 2 * low : 0.5 * (low + high);
    }
    return fell && next_value_ < value_;
  }

  void update() {
    std::vector<double> moved(size_), bent(size_), applied(size_);
    for (size_t i = 0; i < size_; ++i)
      moved[i] = next_[i] - x_[i], bent[i] = next_gradient_[i] - gradient_[i];
    const double curvature = product(moved, bent);
    if (!(curvature > 0)) return;
    if (fresh_) {  // the scale of the first step's curvature
      const double scale = curvature / product(bent, bent);
      for (size_t i = 0; i < size_; ++i) inverse_[i * size_ + i] = scale;
      fresh_ = false;
    }
    for (size_t i = 0; i < size_; ++i)
      for (size_t j = 0; j < size_; ++j) applied[i] += inverse_[i * size_ + j] * bent[j];
    const double factor = (1 + product(bent, applied) / curvature) / curvature;
    for (size_t i = 0; i < size_; ++i)
      for (size_t j = 0; j < size_; ++j)
        inverse_[i * size_ + j] +=
            factor * moved[i] * moved[j] - (applied[i] * moved[j] + moved[i] * applied[j]) / curvature;
  }

  const Objective& objective_;
  size_t size_;
  std::vector<double> x_, gradient_, next_, next_gradient_, inverse_;
  double value_ = 0, next_value_ = 0;
  bool fresh_ = true;
};

}  // namespace

Minimum minimise(const Objective& objective, std::vector<double> start, int iterations, double tolerance) {
  Bfgs search(objective, std::move(start));
  int still = 0;  // iterations without progress; the first one resets the Hessian
  for (int i = 0; i < iterations && still < 2; ++i) {
    const double before = search.value();
    const bool moved = search.step();
    if (moved && before - search.value() > tolerance * std::abs(before)) {
      still = 0;
      continue;
    }
    ++still;
    search.reset();
  }
  return {search.x(), search.value()};
}

Objective with_gradient(std::function<double(std::span<const double>)> value, double step) {
  return [value = std::move(value), step](std::span<const double> x, std::span<double> gradient) {
    std::vector<double> moved(x.begin(), x.end());
    for (size_t i = 0; i < x.size(); ++i) {
      const double width = step * std::max(1.0, std::abs(x[i]));
      moved[i] = x[i] + width;
      const double above = value(moved);
      moved[i] = x[i] - width;
      gradient[i] = (above - value(moved)) / (2 * width);
      moved[i] = x[i];
    }
    return value(x);
  };
}

}  // namespace tessera::laws
