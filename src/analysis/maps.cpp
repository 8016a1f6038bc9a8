#include "analysis/maps.h"

#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <vector>

#include "core/error.h"

namespace tessera::analysis {
namespace {

torch::Tensor gradient_at(const ScoreFunction& score, const torch::Tensor& images) {
  const torch::AutoGradMode on(true);
  const torch::Tensor leaf = images.detach().clone().requires_grad_();
  return torch::autograd::grad({score(leaf).sum()}, {leaf}).at(0);
}

// Blurs so strongly that the content of the image is hardly recognisable.
torch::Tensor blurred(const torch::Tensor& images) {
  const int64_t height = images.size(2), width = images.size(3);
  const torch::Tensor small = torch::adaptive_avg_pool2d(
      images, {std::max<int64_t>(1, height / 16), std::max<int64_t>(1, width / 16)});
  return torch::upsample_bilinear2d(small, {height, width}, false);
}

// Returns the area under a curve with equal steps from 0 to 1.
torch::Tensor area(const std::vector<torch::Tensor>& scores) {
  torch::Tensor sum = (scores.front() + scores.back()) / 2;
  for (size_t i = 1; i + 1 < scores.size(); ++i) sum = sum + scores[i];
  return sum / static_cast<double>(scores.size() - 1);
}

}  // namespace

torch::Tensor gradient_map(const ScoreFunction& score, const torch::Tensor& images) {
  return gradient_at(score, images).abs().amax(1);
}

torch::Tensor integrated_gradients(const ScoreFunction& score, const torch::Tensor& images,
                                   const torch::Tensor& baseline, int64_t steps) {
  check(steps > 0, "integrated gradients in ", steps, " steps, there must be one");
  const torch::Tensor apart = images - baseline;
  torch::Tensor sum = torch::zeros_like(images);
  for (int64_t i = 0; i < steps; ++i)
    sum +=
        gradient_at(score, baseline + apart * ((static_cast<double>(i) + 0.5) / static_cast<double>(steps)));
  return apart * sum / static_cast<double>(steps);
}

torch::Tensor gradcam(const torch::Tensor& features, const torch::Tensor& gradient) {
  return (gradient.mean({2, 3}, true) * features).sum(1).clamp_min(0);
}

Faithfulness faithfulness(const ScoreFunction& score, const torch::Tensor& images, const torch::Tensor& map,
                          int64_t steps) {
  const torch::NoGradGuard no_grad;
  const int64_t cells = map.size(1) * map.size(2), most = std::min(steps, cells);
  check(most > 0 && map.size(0) == images.size(0), "a map ", map.sizes(), " for images ", images.sizes());
  // Returns the rank of each cell by importance, from 0.
  const torch::Tensor place = map.flatten(1)
                                  .argsort(/*stable=*/true, int64_t{1}, /*descending=*/true)
                                  .argsort(/*stable=*/true, int64_t{1}, /*descending=*/false);
  const torch::Tensor soft = blurred(images);
  std::vector<torch::Tensor> deletion, insertion;
  for (int64_t step = 0; step <= most; ++step) {
    const torch::Tensor chosen = place.lt(cells * step / most).view(map.sizes()).to(images.scalar_type());
    const torch::Tensor mask =
        torch::upsample_nearest2d(chosen.unsqueeze(1), {images.size(2), images.size(3)});
    deletion.push_back(score(images * (1 - mask)).to(torch::kFloat64));
    insertion.push_back(score(soft * (1 - mask) + images * mask).to(torch::kFloat64));
  }
  return {area(deletion), area(insertion)};
}

torch::Tensor enlarged(const torch::Tensor& map, int64_t height, int64_t width) {
  torch::Tensor out = map.detach().to(torch::kCPU, torch::kFloat32).unsqueeze(1);
  if (out.size(2) != height || out.size(3) != width)
    out = torch::upsample_bilinear2d(out, {height, width}, false);
  out = out.squeeze(1);
  const torch::Tensor low = out.amin({1, 2}, true), high = out.amax({1, 2}, true);
  return (out - low) / (high - low).clamp_min(1e-30);
}

Image overlay(const Image& image, const torch::Tensor& map) {
  check(image.channels == 3 && map.dim() == 2 && map.size(0) == image.height && map.size(1) == image.width,
        "a map ", map.sizes(), " over an image of ", image.width, "x", image.height);
  const torch::Tensor values = map.to(torch::kCPU, torch::kFloat32).contiguous();
  const float* heat = values.const_data_ptr<float>();
  Image out(image.width, image.height, 3);
  for (size_t i = 0; i < out.pixels.size() / 3; ++i) {
    const uint8_t* from = image.pixels.data() + 3 * i;
    const double gray = 0.299 * from[0] + 0.587 * from[1] + 0.114 * from[2];
    const double h = std::clamp(static_cast<double>(heat[i]), 0.0, 1.0), base = 0.65 * gray + 60;
    const double colour[3] = {(1 - h) * base + h * (0.35 * gray + 160), (1 - h) * base + h * 0.45 * gray,
                              (1 - h) * base + h * 0.35 * gray};
    for (size_t c = 0; c < 3; ++c)
      out.pixels[3 * i + c] = static_cast<uint8_t>(std::clamp(colour[c], 0.0, 255.0));
  }
  return out;
}

}  // namespace tessera::analysis
