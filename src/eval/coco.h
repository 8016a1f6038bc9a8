// Average precision and recall of detections, computed as in pycocotools (Lin et al. 2014).
//
// For each class, image and threshold t of intersection over union (IoU): in order of descending score, each
// detection is matched with the ground truth of the largest IoU, if at least t. Each ground truth is matched
// once, a crowd any number of times. Detections that match a crowd or an object outside the range of areas do
// not count. Precision at each of 101 recalls is the largest at that recall or above. AP is its mean over
// recalls, classes and thresholds .50, .55, … .95.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/images/run_lengths.h"

namespace tessera::eval {

// A ground-truth or detected object. Crowds have no score; detections are never crowds.
struct CocoObject {
  int64_t image = 0, category = 0;  // arbitrary ids; CocoSettings lists those to evaluate
  RunBox box = {};
  double area = 0;  // annotated, or for a detection that of its box or mask
  double score = 0;
  bool crowd = false;
  std::shared_ptr<const RunLengths> mask = {};
};

enum class Overlap { boxes, masks };

struct CocoSettings {
  std::vector<int64_t> images = {}, categories = {};  // to evaluate, in any order
  Overlap overlap = Overlap::boxes;
  bool by_class = true;                      // false: all classes are treated as one
  std::vector<int64_t> most = {1, 10, 100};  // maximum detections per class and image; AP uses the last
  // Ranges of areas, inclusive; the first is "all".
  std::vector<std::pair<double, double>> areas = {{0, 1e10}, {0, 1024}, {1024, 9216}, {9216, 1e10}};
};

// The ground truth matched with each detection of an image and class, at one threshold.
struct CocoMatches {
  std::vector<int64_t> detections, truths;      // indices, in the order of comparison
  std::vector<int64_t> of_detection, of_truth;  // index of the match, -1 = none
  std::vector<bool> detection_ignored, truth_ignored;
};

class CocoScores {
 public:
  static constexpr int64_t kThresholds = 10, kRecalls = 101;
  // Returns means over the evaluated cells, or -1 if there are none. `threshold` -1 = all ten (0: 0.50, 5:
  // 0.75); `area` and `most` index the settings' lists, most -1 = the last; `category` -1 = all.
  double precision(int64_t threshold = -1, int64_t area = 0, int64_t category = -1, int64_t most = -1) const;
  double recall(int64_t area = 0, int64_t category = -1, int64_t most = -1, int64_t threshold = -1) const;
  // Returns the precision at each of the 101 recalls, or an empty vector if undefined.
  std::vector<double> curve(int64_t threshold, int64_t category) const;
  int64_t truths(int64_t category) const { return truths_[static_cast<size_t>(category)]; }  // evaluated
  int64_t categories() const { return categories_; }

 private:
  friend CocoScores evaluate_coco(const std::vector<CocoObject>&, const std::vector<CocoObject>&,
                                  const CocoSettings&);
  size_t at(int64_t threshold, int64_t category, int64_t area, int64_t most) const {
    return static_cast<size_t>(((threshold * categories_ + category) * areas_ + area) * mosts_ + most);
  }
  int64_t categories_ = 0, areas_ = 0, mosts_ = 0;
  std::vector<double> precision_, recall_;  // [threshold, category, area, most]; 101 precisions each
  std::vector<int64_t> truths_;
};

// Ignores detections of other images or categories. Runs on all compute threads; the bits do not depend on
// their number.
CocoScores evaluate_coco(const std::vector<CocoObject>& truths, const std::vector<CocoObject>& detections,
                         const CocoSettings& settings);

// Returns the matches of one image and category at a threshold (0.5 = the first), in the first range of
// areas.
CocoMatches match_coco(const std::vector<CocoObject>& truths, const std::vector<CocoObject>& detections,
                       const CocoSettings& settings, int64_t image, int64_t category, double threshold);
// Returns the intersection over union of each detection (row) and truth (column) of an image and category.
// Rows are in order of score, columns in list order.
std::vector<std::vector<double>> coco_overlaps(const std::vector<CocoObject>& truths,
                                               const std::vector<CocoObject>& detections,
                                               const CocoSettings& settings, int64_t image, int64_t category);

}  // namespace tessera::eval
