#include <cmath>

#include "core/error.h"
#include "tests/parity/case.h"

namespace tessera::parity {
namespace {

constexpr size_t kFailuresShown = 4;

std::string shape_text(const torch::Tensor& tensor) {
  std::string out = "[";
  for (const int64_t side : tensor.sizes()) out += text(out.size() > 1 ? ", " : "", side);
  return out + "]";
}

// "[3, 0, 17]" for a flat index.
std::string place_text(int64_t flat, at::IntArrayRef shape) {
  std::string out;
  for (auto side = shape.rbegin(); side != shape.rend(); ++side) {
    out = text(flat % *side, out.empty() ? "" : ", ", out);
    flat /= *side;
  }
  return "[" + out + "]";
}

}  // namespace

void Comparison::close(const std::string& what, const torch::Tensor& got, const torch::Tensor& want,
                       double relative, double absolute) {
  ++count_;
  if (got.sizes() != want.sizes()) {
    failures_.push_back(text(what, ": shape ", shape_text(got), " against ", shape_text(want)));
    return;
  }
  if (got.numel() == 0) return;
  const torch::Tensor a = got.detach().to(torch::kFloat64).contiguous().flatten();
  const torch::Tensor b = want.detach().to(torch::kFloat64).contiguous().flatten();
  const double* got_at = a.data_ptr<double>();
  const double* want_at = b.data_ptr<double>();
  double worst = -1;
  int64_t worst_place = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double difference = std::abs(got_at[i] - want_at[i]);
    const double allowed = relative * std::abs(want_at[i]) + absolute;
    double share = difference == 0 ? 0 : difference / allowed;
    if (std::isnan(share)) share = INFINITY;
    if (share > worst) {
      worst = share;
      worst_place = i;
    }
  }
  if (!(worst <= 1))
    failures_.push_back(text(what, place_text(worst_place, got.sizes()), " is ", got_at[worst_place],
                             ", must be ", want_at[worst_place], " (", worst, " times the tolerance)"));
  if (worst > worst_) {
    worst_ = worst;
    worst_what_ = what;
  }
}

void Comparison::equal(const std::string& what, const torch::Tensor& got, const torch::Tensor& want) {
  ++count_;
  if (got.sizes() != want.sizes()) {
    failures_.push_back(text(what, ": shape ", shape_text(got), " against ", shape_text(want)));
    return;
  }
  const torch::Tensor differs = got.detach().to(want.dtype()).ne(want);
  const auto count = differs.sum().item<int64_t>();
  if (count == 0) return;
  const auto place = differs.flatten().to(torch::kInt64).argmax().item<int64_t>();
  failures_.push_back(text(what, ": ", count, " of ", want.numel(), " elements differ, the first at ",
                           place_text(place, want.sizes()), ": ", got.flatten()[place].item<double>(),
                           " against ", want.flatten()[place].item<double>()));
}

void Comparison::holds(const std::string& what, bool condition, const std::string& otherwise) {
  ++count_;
  if (!condition) failures_.push_back(text(what, ": ", otherwise));
}

CaseResult Comparison::result() const {
  if (count_ == 0) return CaseResult::fail("nothing was compared");
  if (failures_.empty())
    return CaseResult::pass(worst_what_.empty() ? text(count_, " compared, all equal")
                                                : text(count_, " compared, at most ", worst_,
                                                       " of the tolerance (", worst_what_, ")"));
  std::string detail;
  for (size_t i = 0; i < failures_.size() && i < kFailuresShown; ++i)
    detail += (i ? "; " : "") + failures_[i];
  if (failures_.size() > kFailuresShown) detail += text("; and ", failures_.size() - kFailuresShown, " more");
  return CaseResult::fail(detail);
}

}  // namespace tessera::parity
