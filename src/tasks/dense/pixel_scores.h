// Pixel scores: their loss, and inference with windows, scales and mirroring.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <vector>

#include "eval/segmentation.h"

namespace tessera::tasks {

// Resizes scores [batch, classes, rows, columns] bilinearly; by default corners are not aligned.
torch::Tensor resize_scores(const torch::Tensor& scores, int64_t height, int64_t width,
                            bool align_corners = false);

// Returns the loss of each pixel (nats), [batch, height, width] float: -log softmax(scores) of its label,
// times the class weight if `class_weights` [classes] is defined; 0 for `ignored` labels. Labels [batch,
// height, width] have any integer type. Scores of another size are resized to theirs.
torch::Tensor pixel_cross_entropy(const torch::Tensor& scores, const torch::Tensor& labels, int64_t ignored,
                                  const torch::Tensor& class_weights = {});

// Keeps only the losses of hard pixels and sets the others to 0 (Shrivastava et al. 2016, as in mmseg). Hard:
// the probability of the label is at most `threshold`, or among the `least` hardest of its image. `losses`
// have no class weights.
torch::Tensor keep_hard_pixels(const torch::Tensor& losses, const torch::Tensor& labels, int64_t ignored,
                               double threshold, int64_t least);

// Correctly classified pixels, and labelled pixels; scalars.
struct PixelCounts {
  torch::Tensor right, labelled;
};
PixelCounts count_right_pixels(const torch::Tensor& scores, const torch::Tensor& labels, int64_t ignored);

// Maps images [n, 3, height, width] to scores [n, classes, height, width].
using ScoreImages = std::function<torch::Tensor(const torch::Tensor& images)>;

// How windows cover an image. By default they have equal weights (mmseg's rule, eval::sliding_windows).
// Fading windows are aligned and blend into each other (eval::aligned_windows), so pixels near a window's
// border, with half of their context missing, get little or no weight. Fading windows begin at multiples of
// `unit`; the stride is rounded down to it, unless it is smaller.
struct WindowPlan {
  int crop = 512, stride = 341;
  bool fading = false;
  int unit = 1;
  // Distance between windows in pixels.
  int step() const { return fading && stride >= unit ? stride - stride % unit : stride; }
  std::vector<eval::Window> windows(int height, int width) const;
  // Returns the weights of a window's pixels, [1, 1, rows, columns]; undefined if all are 1.
  torch::Tensor weights(const eval::Window& window, int height, int width,
                        const torch::TensorOptions& options) const;
  // Adds a window's scores [1, classes, rows, columns] to `sum`, and its weights to `count` [1, 1, rows,
  // columns].
  void add(const torch::Tensor& scores, const torch::Tensor& weights, const torch::Tensor& sum,
           const torch::Tensor& count) const;
};
// Returns the end of the run of windows of equal size from `first` on, at most `most` of them.
size_t end_of_equal_windows(const std::vector<eval::Window>& windows, size_t first, int64_t most);

// Returns the scores of one image [1, 3, height, width] as weighted means over windows. Batches up to
// `at_once` windows of one size.
torch::Tensor sliding_scores(const torch::Tensor& image, const WindowPlan& plan, int64_t at_once,
                             const ScoreImages& score);

// Averages the views of an image, [1, classes, height, width]: their probabilities (mmseg's rule) or their
// scores. Resizes each view's scores and mirrors mirrored ones back.
struct ScoredView {
  torch::Tensor scores;
  bool mirrored = false;
};
enum class Fusion { probabilities, scores };
torch::Tensor fuse_views(const std::vector<ScoredView>& views, int64_t height, int64_t width, Fusion fusion);

}  // namespace tessera::tasks
