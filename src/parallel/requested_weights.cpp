#include "parallel/requested_weights.h"

#include <set>

#include "core/error.h"

namespace tessera::parallel {
namespace {

constexpr int64_t kNone = -1;

}  // namespace

// Gathers the units that processes request, and holds `mine`. Returns false if no process requests any.
bool RequestedWeights::round(int64_t mine) {
  const torch::Tensor all = weights_.axis().gather_counts({mine});
  const auto* const begin = all.const_data_ptr<int64_t>();
  std::set<int64_t> units(begin, begin + all.numel());
  units.erase(kNone);
  for (const int64_t unit : units) {
    weights_.gather_unit(unit);
    if (unit != mine) weights_.let_go_unit(unit);
  }
  return !units.empty();
}

void RequestedWeights::enter(const std::vector<torch::Tensor>& parameters) {
  if (const int64_t unit = weights_.unit_of(parameters); unit >= 0) round(unit);
}

void RequestedWeights::leave(const std::vector<torch::Tensor>& parameters) {
  if (weights_.unit_of(parameters) >= 0) weights_.leave(parameters);
}

void RequestedWeights::enter_backward(const std::vector<torch::Tensor>&) {
  fail("requested weights: a backward pass, where passes have no gradients");
}

void RequestedWeights::wait_for_all() {
  while (round(kNone)) {
  }
}

}  // namespace tessera::parallel
