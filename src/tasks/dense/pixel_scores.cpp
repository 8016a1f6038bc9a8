#include "tasks/dense/pixel_scores.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "eval/segmentation.h"

namespace tessera::tasks {
namespace {

torch::Tensor at_least_float(const torch::Tensor& x) {
  return x.scalar_type() == torch::kFloat64 ? x : x.to(torch::kFloat32);
}

torch::Tensor sized_as(const torch::Tensor& scores, const torch::Tensor& labels) {
  check(labels.dim() == 3 && scores.dim() == 4 && scores.size(0) == labels.size(0), "scores ", scores.sizes(),
        " do not belong to labels ", labels.sizes());
  return resize_scores(at_least_float(scores), labels.size(1), labels.size(2));
}

}  // namespace

torch::Tensor resize_scores(const torch::Tensor& scores, int64_t height, int64_t width, bool align_corners) {
  if (scores.size(2) == height && scores.size(3) == width) return scores;
  return torch::upsample_bilinear2d(scores, {height, width}, align_corners);
}

torch::Tensor pixel_cross_entropy(const torch::Tensor& scores, const torch::Tensor& labels, int64_t ignored,
                                  const torch::Tensor& class_weights) {
  const torch::Tensor resized = sized_as(scores, labels);
  const torch::Tensor weights =
      class_weights.defined() ? class_weights.to(resized.options()) : torch::Tensor();
  return at::cross_entropy_loss(resized, labels.to(torch::kInt64), weights, at::Reduction::None, ignored);
}

// A loss is -log p, so the threshold on p becomes a threshold on the loss.
torch::Tensor keep_hard_pixels(const torch::Tensor& losses, const torch::Tensor& labels, int64_t ignored,
                               double threshold, int64_t least) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor valid = labels != ignored;
  const torch::Tensor flat = losses.detach().masked_fill(~valid, -1).flatten(1);
  const int64_t kept = std::min(least, flat.size(1));
  const torch::Tensor hardest = kept > 0 ? std::get<0>(flat.topk(kept, 1)).slice(1, kept - 1)
                                         : torch::full({flat.size(0), 1}, INFINITY, flat.options());
  const torch::Tensor limit = hardest.clamp_max(-std::log(threshold)).unsqueeze(2);
  const torch::Tensor hard = (losses.detach() >= limit) & valid;
  const torch::AutoGradMode with_grad(losses.requires_grad());
  return losses * hard.to(losses.scalar_type());
}

PixelCounts count_right_pixels(const torch::Tensor& scores, const torch::Tensor& labels, int64_t ignored) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor best = sized_as(scores, labels).argmax(1), valid = labels != ignored;
  return {(best.eq(labels.to(torch::kInt64)) & valid).sum(), valid.sum()};
}

std::vector<eval::Window> WindowPlan::windows(int height, int width) const {
  if (!fading) return eval::sliding_windows(height, width, crop, stride);
  return eval::aligned_windows(height, width, crop, step(), stride >= unit ? unit : 1);
}

// On a side with a neighbour: 0 over the outer quarter of the overlap, 1 over the inner quarter, linear in
// between, so two neighbours' weights sum to 1. At the image border the weights stay 1.
torch::Tensor WindowPlan::weights(const eval::Window& window, int height, int width,
                                  const torch::TensorOptions& options) const {
  const int overlap = crop - step();
  if (!fading || overlap == 0) return {};
  const auto along = [&](int begin, int end, int side) {
    const torch::Tensor place = torch::arange(end - begin, options) + 0.5;
    const auto slope = [&](const torch::Tensor& distance) {
      return ((distance - 0.25 * overlap) / (0.5 * overlap)).clamp(0, 1);
    };
    torch::Tensor weight = torch::ones_like(place);
    if (begin > 0) weight = weight * slope(place);
    if (end < side) weight = weight * slope(end - begin - place);
    return weight;
  };
  return along(window.top, window.bottom, height).view({1, 1, -1, 1}) *
         along(window.left, window.right, width).view({1, 1, 1, -1});
}

void WindowPlan::add(const torch::Tensor& scores, const torch::Tensor& weights, const torch::Tensor& sum,
                     const torch::Tensor& count) const {
  sum.add_(weights.defined() ? scores * weights : scores);
  if (weights.defined())
    count.add_(weights);
  else
    count.add_(1);
}

size_t end_of_equal_windows(const std::vector<eval::Window>& windows, size_t first, int64_t most) {
  const auto size_of = [&](size_t i) {
    return std::pair(windows[i].bottom - windows[i].top, windows[i].right - windows[i].left);
  };
  size_t end = first;
  while (end < windows.size() && end - first < static_cast<size_t>(most) && size_of(end) == size_of(first))
    ++end;
  return end;
}

torch::Tensor sliding_scores(const torch::Tensor& image, const WindowPlan& plan, int64_t at_once,
                             const ScoreImages& score) {
  check(image.dim() == 4 && image.size(0) == 1, "an image to score has shape ", image.sizes(),
        ", must be [1, 3, height, width]");
  const auto height = static_cast<int>(image.size(2)), width = static_cast<int>(image.size(3));
  const std::vector<eval::Window> windows = plan.windows(height, width);
  const auto part = [](const torch::Tensor& of, const eval::Window& w) {
    return of.narrow(2, w.top, w.bottom - w.top).narrow(3, w.left, w.right - w.left);
  };
  torch::Tensor sum, count;
  for (size_t first = 0; first < windows.size();) {
    const size_t end = end_of_equal_windows(windows, first, at_once);
    std::vector<torch::Tensor> crops;
    for (size_t i = first; i < end; ++i) crops.push_back(part(image, windows[i]));
    const torch::Tensor scored = at_least_float(score(torch::cat(crops)));
    if (!sum.defined()) {
      sum = torch::zeros({1, scored.size(1), image.size(2), image.size(3)}, scored.options());
      count = torch::zeros({1, 1, image.size(2), image.size(3)}, scored.options());
    }
    for (size_t i = first; i < end; ++i) {
      plan.add(scored.narrow(0, static_cast<int64_t>(i - first), 1),
               plan.weights(windows[i], height, width, scored.options()), part(sum, windows[i]),
               part(count, windows[i]));
    }
    first = end;
  }
  return sum.div_(count);
}

torch::Tensor fuse_views(const std::vector<ScoredView>& views, int64_t height, int64_t width, Fusion fusion) {
  check(!views.empty(), "there is no view of the image to fuse");
  torch::Tensor sum;
  for (const ScoredView& view : views) {
    const torch::Tensor upright = view.mirrored ? view.scores.flip({3}) : view.scores;
    torch::Tensor scores = resize_scores(upright, height, width);
    if (fusion == Fusion::probabilities) scores = scores.softmax(1);
    sum = sum.defined() ? sum + scores : scores;
  }
  return views.size() == 1 ? sum : sum / static_cast<double>(views.size());
}

}  // namespace tessera::tasks
