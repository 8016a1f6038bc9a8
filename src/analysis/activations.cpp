#include "analysis/activations.h"

#include <algorithm>

#include "nn/allocations.h"

namespace tessera::analysis {
namespace {

// Returns the bytes alive at each block's output, and at the end.
std::vector<KeptBytes> alive_by_place(models::Classifier& model, const torch::Tensor& images) {
  const torch::AutoGradMode on(true);
  const nn::Allocations allocations;
  std::vector<KeptBytes> out;
  models::Taps taps;
  taps.wanted = [&](const std::string& name) {  // keeps no values, but is called at every tap
    if (name == "embed" || is_block_place(name)) out.push_back({name, allocations.alive()});
    return false;
  };
  const torch::Tensor scores = model.forward(images, {.taps = &taps});
  out.push_back({"head", allocations.alive()});
  return out;
}

int64_t inference_peak(models::Classifier& model, const torch::Tensor& images) {
  const torch::NoGradGuard no_grad;
  const nn::Allocations allocations;
  model.forward(images);
  return allocations.peak();
}

}  // namespace

bool is_block_place(const std::string& tap) {
  return tap.starts_with("blocks.") && tap.find_first_not_of("0123456789.", 7) == std::string::npos;
}

ActivationBytes activation_bytes(models::Classifier& model, int64_t channels, int64_t side) {
  const torch::Tensor one = torch::zeros({1, channels, side, side}),
                      two = torch::zeros({2, channels, side, side});
  ActivationBytes out;
  inference_peak(model, one);  // allocates memory that is kept, such as packed weights
  out.inference = std::max<int64_t>(0, inference_peak(model, two) - inference_peak(model, one));
  const std::vector<KeptBytes> single = alive_by_place(model, one), pair = alive_by_place(model, two);
  int64_t before = 0;
  for (size_t i = 0; i < single.size(); ++i) {
    const int64_t until = pair[i].bytes - single[i].bytes;
    out.places.push_back({single[i].place, until - before});
    before = until;
  }
  out.training = before;
  return out;
}

}  // namespace tessera::analysis
