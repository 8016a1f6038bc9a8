#include "diffusion/sampler.h"

#include "core/error.h"

namespace tessera::diffusion {

void finish_step(const Walk& walk, int64_t step, int64_t steps, torch::Tensor& x) {
  const torch::Tensor finite = x.flatten(1).isfinite().all(1).cpu();
  if (!finite.all().item<bool>()) {
    const auto sample = (~finite).nonzero()[0].item<int64_t>();
    fail("sampler: after step ", step + 1, " of ", steps, " sample ", sample,
         " of the batch is not finite: the weights went astray in training, or the steps are too few");
  }
  if (walk.after) walk.after(step, x);
}

torch::Tensor Sampler::walk_back(const Network&, const torch::Tensor&, const Walk&) const {
  fail_usage(
      "only samplers of an ordinary equation can be walked back: must be ddim with eta 0, or of interpolants "
      "dopri5, heun or euler");
}

torch::Tensor time_of(double time, const torch::Tensor& x) {
  // In double, so that times between two steps of the schedule reach the network exactly.
  return torch::full({x.size(0)}, time, torch::TensorOptions().dtype(torch::kFloat64).device(x.device()));
}

Network counted(Network network, int64_t& calls) {
  return [network = std::move(network), &calls](const torch::Tensor& x, const torch::Tensor& time) {
    ++calls;
    return network(x, time);
  };
}

}  // namespace tessera::diffusion
