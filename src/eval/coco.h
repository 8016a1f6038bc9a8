// Average precision and recall of detections, as COCO's own tool counts them (Lin et al. 2014; pycocotools).
//
// For each class, image and threshold t of intersection over union: detections, best score first, take the ground
// truth that they overlap most and by at least t; each is taken once, crowds any number of times. What matches a
// crowd, or something outside the range of areas, does not count. Precision is the largest at each of 101 recalls
// or beyond, AP its mean over them, over thresholds .50, .55, … .95 and classes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/images/run_lengths.h"

namespace tessera::eval {

// An object that there is, or that was found. A crowd has no score, a detection is no crowd.
struct CocoObject {
  int64_t image = 0, category = 0;  // any numbers; what is evaluated is listed in CocoSettings
  RunBox box = {};
  double area = 0;  // ground truth: as annotated; a detection: of its box or mask
  double score = 0;
  bool crowd = false;
  std::shared_ptr<const RunLengths> mask = {};
};

enum class Overlap { boxes, masks };

struct CocoSettings {
  std::vector<int64_t> images = {}, categories = {};  // those that count, any order
  Overlap overlap = Overlap::boxes;
  bool by_class = true;                      // false: all classes are one
  std::vector<int64_t> most = {1, 10, 100};  // detections a class and image; the last is that of AP
  // Ranges of areas, both ends included; the first is "all".
  std::vector<std::pair<double, double>> areas = {{0, 1e10}, {0, 1024}, {1024, 9216}, {9216, 1e10}};
};

// Which ground truth each detection of an image and class took, at one threshold.
struct CocoMatches {
  std::vector<int64_t> detections, truths;      // their indices, in the order in which they were compared
  std::vector<int64_t> of_detection, of_truth;  // index of the partner, -1 = none
  std::vector<bool> detection_ignored, truth_ignored;
};

class CocoScores {
 public:
  static constexpr int64_t kThresholds = 10, kRecalls = 101;
  // Means over what there is; -1 where there is nothing to evaluate. `threshold` -1 = all ten (0: 0.50, 5: 0.75);
  // `area` and `most` index the settings' lists, most -1 = the last; `category` -1 = all.
  double precision(int64_t threshold = -1, int64_t area = 0, int64_t category = -1, int64_t most = -1) const;
  double recall(int64_t area = 0, int64_t category = -1, int64_t most = -1, int64_t threshold = -1) const;
  // Precision at each of the 101 recalls, [101]; empty where there is nothing.
  std::vector<double> curve(int64_t threshold, int64_t category) const;
  int64_t truths(int64_t category) const { return truths_[static_cast<size_t>(category)]; }  // that count
  int64_t categories() const { return categories_; }

 private:
  friend CocoScores evaluate_coco(const std::vector<CocoObject>&, const std::vector<CocoObject>&,
                                  const CocoSettings&);
  size_t at(int64_t threshold, int64_t category, int64_t area, int64_t most) const {
    return static_cast<size_t>(((threshold * categories_ + category) * areas_ + area) * mosts_ + most);
  }
  int64_t categories_ = 0, areas_ = 0, mosts_ = 0;
  std::vector<double> precision_, recall_;  // [threshold, category, area, most] of 101, and of 1
  std::vector<int64_t> truths_;
};

// Detections of other images or categories are left out. Runs on all compute threads; the same bits whatever
// their number.
CocoScores evaluate_coco(const std::vector<CocoObject>& truths, const std::vector<CocoObject>& detections,
                         const CocoSettings& settings);

// The matches of one image and category at a threshold (0.5 = the first), over the first range of areas.
CocoMatches match_coco(const std::vector<CocoObject>& truths, const std::vector<CocoObject>& detections,
                       const CocoSettings& settings, int64_t image, int64_t category, double threshold);
// intersection over union of every detection (row) with every truth (column) of an image and category, in the
// order of scores and of the list.
std::vector<std::vector<double>> coco_overlaps(const std::vector<CocoObject>& truths,
                                               const std::vector<CocoObject>& detections,
                                               const CocoSettings& settings, int64_t image, int64_t category);

}  // namespace tessera::eval
