// Implemented by tasks that find objects in images of any size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/images/image.h"
#include "io/images/run_lengths.h"
#include "tasks/base/inputs.h"

namespace tessera::tasks {

// A detected object, in pixels of the image.
struct FoundObject {
  double left = 0, top = 0, right = 0, bottom = 0, score = 0;
  int64_t label = 0;
  RunLengths mask = {};  // image size; empty without a mask head
};

// A view of an image at test time: its usual size times `scale`, mirrored or not.
struct TestView {
  double scale = 1;
  bool mirrored = false;
  friend bool operator==(const TestView&, const TestView&) = default;
};

class ObjectFinder {
 public:
  static constexpr const char* kAbility = "weights of task detect, detr or glip";
  virtual ~ObjectFinder() = default;
  virtual const std::vector<std::string>& object_classes() const = 0;
  // The id of a class in the files of its training set.
  virtual int64_t class_number(int64_t label) const = 0;
  // Returns objects, best first. Omits those below `score`; a negative `score` means the recipe's. Views are
  // those of the recipe, or of set_views().
  virtual std::vector<FoundObject> find(const Image& image, double score, torch::Device device,
                                        Precision precision) = 0;
  virtual void set_views(const std::vector<TestView>& views) = 0;
  virtual std::vector<TestView> views() const = 0;
  // Finds objects of these names from now on. Throws a usage error if the classes are fixed.
  virtual void set_classes(const std::vector<std::string>& names);
};

// Detection in large images, tile by tile.

// Returns the objects of the whole image, best first. Tiles of `tile` x `tile` pixels overlap by a quarter.
// An object cut by a seam is taken from the adjacent tile, which contains all of it unless it is larger than
// the overlap. Of duplicates (same class, more than half of the smaller box inside the larger) the one with
// the higher score is kept. Throws Interrupted.
std::vector<FoundObject> find_in_tiles(ObjectFinder& finder, const Image& image, int tile, double score,
                                       torch::Device device, Precision precision);

}  // namespace tessera::tasks
