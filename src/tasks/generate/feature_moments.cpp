#include "tasks/generate/feature_moments.h"

#include <limits>

#include "core/error.h"

namespace tessera::tasks {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

std::span<const double> numbers_of(const torch::Tensor& host) {
  return {host.const_data_ptr<double>(), static_cast<size_t>(host.numel())};
}

}  // namespace

void MomentsThere::add(const torch::Tensor& rows) {
  check(rows.dim() == 2 && rows.size(1) == width_, "features ", rows.sizes(), " are not samples of ", width_);
  if (rows.size(0) == 0) return;
  const torch::NoGradGuard no_grad;
  const auto wide = rows.options().dtype(torch::kFloat64), whole = rows.options().dtype(torch::kInt64);
  const torch::Tensor x = rows.to(torch::kFloat64);
  if (!origin_.defined()) {
    origin_ = x[0].clone(), sum_ = torch::zeros({width_}, wide);
    products_ = torch::zeros({width_, width_}, wide), first_bad_ = torch::full({}, kNone, whole);
  }
  const torch::Tensor index = torch::arange(samples_, samples_ + rows.size(0), whole),
                      bad = rows.isfinite().all(1).logical_not();
  first_bad_ = torch::minimum(first_bad_, torch::where(bad, index, kNone).min());
  const torch::Tensor moved = x - origin_;
  sum_.add_(moved.sum(0)), products_.addmm_(moved.t(), moved);
  samples_ += rows.size(0);
}

eval::Gaussian MomentsThere::gaussian() const {
  if (samples_ == 0) return eval::gaussian_of_sums(0, {}, {}, {});
  const auto bad = first_bad_.item<int64_t>();
  check(bad == kNone, "a feature of sample ", bad, " is not finite");
  const torch::Tensor origin = origin_.cpu(), sum = sum_.cpu(), products = products_.cpu();
  return eval::gaussian_of_sums(samples_, numbers_of(origin), numbers_of(sum), numbers_of(products));
}

void FeatureMoments::add(const torch::Tensor& rows) {
  if (rows.is_cpu()) return here_.add({rows.const_data_ptr<float>(), static_cast<size_t>(rows.numel())});
  if (!there_) there_.emplace(here_.width());
  there_->add(rows);
}

}  // namespace tessera::tasks
