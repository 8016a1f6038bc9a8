#include "diffusion/sampler.h"

#include <algorithm>

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

void Guidance::check() const {
  if (!(scale >= 0 && scale <= 1e6))
    fail_usage("cfg = ", scale, ", must be ", scale < 0 ? "at least 0" : "a number up to 1000000");
  if (!(rescale >= 0 && rescale <= 1)) fail_usage("cfg rescale = ", rescale, ", must be 0 to 1");
  if (!(from >= 0 && from <= to && to <= 1))
    fail_usage("cfg interval ", from, " to ", to, ", must be within 0 (clean) and 1 (noise)");
  if (channels < 0) fail_usage("cfg channels = ", channels, ", must be at least 0 (0 = all)");
}

torch::Tensor guided(const torch::Tensor& with, const torch::Tensor& without, const Guidance& guidance,
                     int64_t image_channels) {
  const int64_t count = guidance.channels > 0 ? std::min(guidance.channels, image_channels) : image_channels;
  const torch::Tensor near = with.slice(1, 0, count), far = without.slice(1, 0, count);
  torch::Tensor mixed = far + guidance.scale * (near - far);
  if (guidance.rescale > 0) {
    const auto deviation = [](const torch::Tensor& x) {
      return x.flatten(1).std(1, /*unbiased=*/true).view({-1, 1, 1, 1});
    };
    mixed = guidance.rescale * mixed * (deviation(near) / deviation(mixed)) + (1 - guidance.rescale) * mixed;
  }
  return count == with.size(1) ? mixed : torch::cat({mixed, with.slice(1, count)}, 1);
}

}  // namespace tessera::diffusion
