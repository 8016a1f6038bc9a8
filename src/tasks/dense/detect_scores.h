// Detections on a validation set, gathered from all processes and scored as in COCO.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "data/base/objects.h"
#include "eval/coco.h"
#include "tasks/base/task.h"
#include "tasks/dense/object_finder.h"

namespace tessera::tasks {

class DetectionScores {
 public:
  // `decode` states how the images of the detections were decoded.
  DetectionScores(const data::Source& source, const data::ObjectLabels& labels, bool masks,
                  const DecodeOptions& decode)
      : source_(source), labels_(labels), masks_(masks), decode_(decode) {}

  void add(int64_t index, std::vector<FoundObject> found) { found_[index] = std::move(found); }
  // Gathers all detections on every process.
  void collect(const EvaluateOptions& options);
  int64_t size() const { return static_cast<int64_t>(found_.size()); }

  // Adds metrics "box_ap", "mask_ap", …; and on request a table of classes, curves, and the worst images.
  void report(const EvaluateOptions& options, Findings& out) const;
  static MetricInfo main_metric(bool masks);

 private:
  // Truths and detections of one image, or of all images if `image` is -1.
  struct Compared {
    std::vector<eval::CocoObject> truths, detections;
    eval::CocoSettings settings;
  };
  Compared compared(eval::Overlap overlap, int64_t image = -1) const;
  eval::CocoScores evaluate(eval::Overlap overlap, int64_t image = -1) const;
  void add_sizes(const eval::CocoScores& scores, Findings& out) const;
  void add_confusion(Findings& out) const;
  void add_classes(const eval::CocoScores& scores, Findings& out) const;
  void add_pictures(Findings& out) const;

  const data::Source& source_;
  const data::ObjectLabels& labels_;
  bool masks_;
  DecodeOptions decode_;
  std::map<int64_t, std::vector<FoundObject>> found_;  // by index into the source
};

}  // namespace tessera::tasks
