// What an evaluation of masks has to show: a table of classes, the confusion of pixels, images with their masks.
#pragma once

#include <string>
#include <vector>

#include "eval/segmentation.h"
#include "tasks/base/task.h"

namespace tessera::tasks {

// A predicted validation image that is worth a look.
struct SegmentedSample {
  int64_t index = 0;  // into the source
  double right = 0;   // share of its labelled pixels
  Image predicted = {};
};

report::TableBlock class_table(const eval::SegmentationScores& scores, const std::vector<std::string>& names);
report::ConfusionBlock pixel_confusion(const eval::SegmentationMeter& meter,
                                       const std::vector<std::string>& names);
// Each image with what was predicted and what is true, laid over it; the worst last. A legend of the colours first.
report::PicturesBlock segmented_pictures(const std::vector<SegmentedSample>& samples,
                                         const data::Source& source, const std::vector<std::string>& names);

}  // namespace tessera::tasks
