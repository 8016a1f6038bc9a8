// Metrics of semantic segmentation over the pixels of all images (Everingham et al. 2010; mmseg's IoUMetric).
//
//   IoU_c = right_c / (predicted_c + true_c - right_c),  accuracy_c = right_c / true_c,
//   dice_c = 2 right_c / (predicted_c + true_c)
// They are undefined for a class that occurs in neither truth nor prediction; the means skip it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::eval {

struct SegmentationClass {
  int64_t right = 0, joined = 0, predicted = 0, labelled = 0;  // pixels; joined: in the union
  double iou = 0, accuracy = 0, dice = 0;                      // NaN if undefined
};

struct SegmentationScores {
  double mean_iou = 0, mean_accuracy = 0, mean_dice = 0;  // over the classes where defined
  double pixel_accuracy = 0;                              // share of correct pixels among the labelled ones
  std::vector<SegmentationClass> classes;
};

// Counts pixels by true and predicted class.
class SegmentationMeter {
 public:
  explicit SegmentationMeter(int64_t classes);
  // Adds two masks of equal size, except pixels labelled `ignored`. Throws Error on a value that is not a
  // class.
  void add(std::span<const uint8_t> predicted, std::span<const uint8_t> labels, int ignored = 255);
  // Adds another meter's counts [true classes, predicted classes].
  void add_counts(std::span<const int64_t> counts);
  const std::vector<int64_t>& confusion() const { return confusion_; }
  SegmentationScores scores() const;

 private:
  size_t classes_;
  std::vector<int64_t> confusion_;  // [true, predicted]
};

// Converts labels that count classes from 1 and use 0 for unlabelled (ADE20K): 0 becomes `ignored`, which is
// unchanged; k becomes k - 1.
void reduce_zero_label(std::span<uint8_t> labels, uint8_t ignored = 255);

// A region of an image: rows top … bottom - 1 and columns left … right - 1.
struct Window {
  int top = 0, bottom = 0, left = 0, right = 0;
  bool operator==(const Window&) const = default;
};
// Returns windows of side `crop`, `stride` apart, that cover an image, row by row. The last ones are moved
// back to keep their size, and cut if the image is smaller.
std::vector<Window> sliding_windows(int height, int width, int crop, int stride);
// The same with windows that begin at multiples of `unit`, like a model's cells in the whole image. `stride`
// is a multiple of `unit`. The last windows of rows and columns extend to the image's edge.
std::vector<Window> aligned_windows(int height, int width, int crop, int stride, int unit);

}  // namespace tessera::eval
