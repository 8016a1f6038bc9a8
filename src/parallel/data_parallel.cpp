#include "parallel/data_parallel.h"

#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>

#include "parallel/engines.h"

namespace tessera::parallel {
namespace {

// Silences the Reducer's warning that it searched for unused parameters and found none.
class Quiet final : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

}  // namespace

struct GradientMean::State {
  std::unique_ptr<c10d::Reducer> reducer;  // null: alone
};

GradientMean::GradientMean(World& world, const std::vector<torch::Tensor>& parameters, bool may_skip)
    : state_(std::make_unique<State>()) {
  if (world.all().size() == 1) return;
  // Gradients arrive in roughly reverse order, so the last bucket is ready first.
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(
      parameters, {c10d::kDefaultFirstBucketBytes, c10d::kDefaultBucketBytesCap},
      std::vector<bool>(parameters.size(), false)));
  std::reverse(buckets.begin(), buckets.end());
  state_->reducer = std::make_unique<c10d::Reducer>(
      parameters, buckets, world.group()->processes, std::vector<bool>(parameters.size(), false),
      c10d::kDefaultBucketBytesCap, /*find_unused_parameters=*/may_skip, /*gradient_as_bucket_view=*/true,
      std::unordered_map<size_t, std::string>(), c10d::kDefaultFirstBucketBytes,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, std::vector<int64_t>());
}

GradientMean::~GradientMean() = default;

void GradientMean::prepare(const torch::Tensor& loss) {
  if (!state_->reducer) return;
  Quiet quiet;
  const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
  state_->reducer->prepare_for_backward({loss});
}

}  // namespace tessera::parallel
