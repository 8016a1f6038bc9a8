// The report of a mask evaluation: a table of classes, the confusion of pixels, images with their masks.
#pragma once

#include <string>
#include <vector>

#include "eval/segmentation.h"
#include "tasks/base/task.h"

namespace tessera::tasks {

// A predicted validation image to show.
struct SegmentedSample {
  int64_t index = 0;  // into the source
  double right = 0;   // share of correct labelled pixels
  Image predicted = {};
};

report::TableBlock class_table(const eval::SegmentationScores& scores, const std::vector<std::string>& names);
// Returns a line that names the classes without a labelled pixel; "" if each has one.
std::string classes_without_pixels(const eval::SegmentationScores& scores,
                                   const std::vector<std::string>& names);
report::ConfusionBlock pixel_confusion(const eval::SegmentationMeter& meter,
                                       const std::vector<std::string>& names);
// Each image with its prediction and truth as overlays; the worst last, the colour legend first.
report::PicturesBlock segmented_pictures(const std::vector<SegmentedSample>& samples,
                                         const data::Source& source, const std::vector<std::string>& names);

}  // namespace tessera::tasks
