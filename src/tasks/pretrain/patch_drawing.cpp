#include "tasks/pretrain/patch_drawing.h"

#include "core/random.h"
#include "core/threads.h"

namespace tessera::tasks {

models::PatchNoise patch_noise_of(std::span<const uint64_t> seeds, int64_t pixels,
                                  const torch::TensorOptions& options) {
  return [=](int64_t patch, int64_t step) {
    const auto images = static_cast<int64_t>(seeds.size());
    torch::Tensor out = torch::empty({images, pixels}, torch::kFloat64);
    double* rows = out.data_ptr<double>();
    parallel_for(images, 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        RandomStream stream(seeds[static_cast<size_t>(i)], "completion", static_cast<uint64_t>(patch),
                            static_cast<uint64_t>(step));
        for (int64_t at = 0; at < pixels; ++at) rows[i * pixels + at] = stream.normal();
      }
    });
    return out.to(options);
  };
}

}  // namespace tessera::tasks
