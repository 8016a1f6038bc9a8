#include "diffusion/guidance.h"

#include <algorithm>

#include "core/error.h"

namespace tessera::diffusion {

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
