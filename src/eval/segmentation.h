// Metrics of semantic segmentation, from the pixels of all images together (Everingham et al. 2010; mmseg's IoUMetric).
//
//   IoU_c = right_c / (predicted_c + true_c - right_c),  accuracy_c = right_c / true_c,
//   dice_c = 2 right_c / (predicted_c + true_c)
// A class that is neither true nor predicted anywhere has none of them, and the means leave it out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::eval {

struct SegmentationClass {
  int64_t right = 0, joined = 0, predicted = 0, labelled = 0;  // pixels; joined: of the union
  double iou = 0, accuracy = 0, dice = 0;                      // NaN where there is none
};

struct SegmentationScores {
  double mean_iou = 0, mean_accuracy = 0, mean_dice = 0;  // over the classes that have one
  double pixel_accuracy = 0;                              // share of the labelled pixels that are right
  std::vector<SegmentationClass> classes;
};

// Counts of pixels by their true and their predicted class.
class SegmentationMeter {
 public:
  explicit SegmentationMeter(int64_t classes);
  // Two masks of the same size; pixels whose label is `ignored` do not count. Fails on a value that is no class.
  void add(std::span<const uint8_t> predicted, std::span<const uint8_t> labels, int ignored = 255);
  // Counts [classes x classes] of another meter, true classes first.
  void add_counts(std::span<const int64_t> counts);
  const std::vector<int64_t>& confusion() const { return confusion_; }
  SegmentationScores scores() const;

 private:
  size_t classes_;
  std::vector<int64_t> confusion_;  // [true, predicted]
};

// Labels of a set that counts its classes from 1 and calls the unlabelled 0 (ADE20K): 0 becomes `ignored`, which
// stays, and k becomes k - 1.
void reduce_zero_label(std::span<uint8_t> labels, uint8_t ignored = 255);

// A part of an image, rows top … bottom - 1 and columns left … right - 1.
struct Window {
  int top = 0, bottom = 0, left = 0, right = 0;
  bool operator==(const Window&) const = default;
};
// Windows of `crop` pixels a side, `stride` apart, that cover an image; those at the far ends are moved back so that
// they stay as large, and cut where the image is smaller. Row by row.
std::vector<Window> sliding_windows(int height, int width, int crop, int stride);
// The same with windows that begin at multiples of `unit`, as the cells of a model do in the whole image. `stride` is a
// multiple of it. The last windows of rows and columns are larger by what they were moved back.
std::vector<Window> aligned_windows(int height, int width, int crop, int stride, int unit);

}  // namespace tessera::eval
