// What a task offers that finds objects in images of any size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/images/image.h"
#include "io/images/run_lengths.h"
#include "tasks/base/inputs.h"

namespace tessera::tasks {

// An object that was found in an image, in its pixels.
struct FoundObject {
  double left = 0, top = 0, right = 0, bottom = 0, score = 0;
  int64_t label = 0;
  RunLengths mask = {};  // of the image's size; without a mask head none
};

// A way to look at an image when finding: resized by a factor besides the usual size, mirrored or not.
struct TestView {
  double scale = 1;
  bool mirrored = false;
  friend bool operator==(const TestView&, const TestView&) = default;
};

class ObjectFinder {
 public:
  virtual ~ObjectFinder() = default;
  virtual const std::vector<std::string>& object_classes() const = 0;
  // The number of a class in the files that it was learned from.
  virtual int64_t class_number(int64_t label) const = 0;
  // Best first. Those below `score` are left out; below 0: as trained. The image is looked at in the views of the
  // recipe, or in those that set_views() names.
  virtual std::vector<FoundObject> find(const Image& image, double score, torch::Device device,
                                        Precision precision) = 0;
  virtual void set_views(const std::vector<TestView>& views) = 0;
};

}  // namespace tessera::tasks
