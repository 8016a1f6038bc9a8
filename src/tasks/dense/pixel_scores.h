// Scores of pixels: their loss, and inference in windows, scales and mirrored.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <vector>

#include "eval/segmentation.h"

namespace tessera::tasks {

// Scores [batch, classes, rows, columns] at another size, bilinear, corners not aligned.
torch::Tensor resize_scores(const torch::Tensor& scores, int64_t height, int64_t width,
                            bool align_corners = false);

// The loss of each pixel (nats), [batch, height, width] float, 0 where the label is `ignored`: -log softmax(scores) of
// the label's class, times the class's weight where there are weights [classes]. Labels [batch, height, width] of any
// integer type; scores of another size are resized to theirs.
torch::Tensor pixel_cross_entropy(const torch::Tensor& scores, const torch::Tensor& labels, int64_t ignored,
                                  const torch::Tensor& class_weights = {});

// Only the losses of hard pixels, the others 0 (Shrivastava et al. 2016, in mmseg's form): those whose class has a
// probability of at most `threshold`, and at least the `least` hardest of each image. `losses` without class weights.
torch::Tensor keep_hard_pixels(const torch::Tensor& losses, const torch::Tensor& labels, int64_t ignored,
                               double threshold, int64_t least);

// Pixels whose best class is the label, and pixels that have a label; scalars.
struct PixelCounts {
  torch::Tensor right, labelled;
};
PixelCounts count_right_pixels(const torch::Tensor& scores, const torch::Tensor& labels, int64_t ignored);

// Images [n, 3, height, width] to scores [n, classes, height, width].
using ScoreImages = std::function<torch::Tensor(const torch::Tensor& images)>;

// How windows cover an image: all count alike (mmseg's rule, eval::sliding_windows), or they are aligned and fade into
// each other (eval::aligned_windows), so that pixels near a window's border, where the model sees half of what lies
// around, count little or nothing. Fading windows begin at multiples of `unit`, to which their stride is rounded down,
// unless the stride is smaller.
struct WindowPlan {
  int crop = 512, stride = 341;
  bool fading = false;
  int unit = 1;
  // Windows are so many pixels apart.
  int step() const { return fading && stride >= unit ? stride - stride % unit : stride; }
  std::vector<eval::Window> windows(int height, int width) const;
  // The weights of a window's pixels, [1, 1, rows, columns], are undefined where each counts 1.
  torch::Tensor weights(const eval::Window& window, int height, int width,
                        const torch::TensorOptions& options) const;
  // Adds the scores of a window [1, classes, rows, columns] to their sum over the windows, and what they count to
  // `count` [1, 1, rows, columns].
  void add(const torch::Tensor& scores, const torch::Tensor& weights, const torch::Tensor& sum,
           const torch::Tensor& count) const;
};
// The end of the windows from `first` on that have one size, at most `most` of them.
size_t end_of_equal_windows(const std::vector<eval::Window>& windows, size_t first, int64_t most);

// The scores of one image [1, 3, height, width] as weighted means over windows, of which `at_once` of one size go
// through the model together.
torch::Tensor sliding_scores(const torch::Tensor& image, const WindowPlan& plan, int64_t at_once,
                             const ScoreImages& score);

// What several views of an image say together, [1, classes, height, width]: the mean of their probabilities (mmseg's
// rule), or of the scores themselves. Each view's scores are resized to that size, and one that was mirrored is
// mirrored back.
struct ScoredView {
  torch::Tensor scores;
  bool mirrored = false;
};
enum class Fusion { probabilities, scores };
torch::Tensor fuse_views(const std::vector<ScoredView>& views, int64_t height, int64_t width, Fusion fusion);

}  // namespace tessera::tasks
