// The objects in a source's images: boxes, classes, outlines.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/base/geometry.h"
#include "data/base/outline.h"
#include "data/base/source.h"

namespace tessera::data {

// One object of an image, in pixels.
struct ObjectAnnotation {
  Instance box = {};     // its label is the class, 0 … classes - 1
  bool crowd = false;    // many objects in one outline: not trained on, not counted against a detector
  double area = 0;       // as annotated, in pixels
  Outline outline = {};  // empty if the source has only boxes
  int64_t number = 0;    // the annotation's id in its file
};

// Returns the object after rotation and mirroring of its image (stored size `stored`) by an EXIF orientation.
ObjectAnnotation oriented(ObjectAnnotation object, int orientation, Extent stored);

// The objects of an image as decoded, and its decoded size; zeros if unknown. Valid until the next call in
// this thread.
struct SeenObjects {
  const std::vector<ObjectAnnotation>& objects;
  Extent extent = {};
};

class ObjectLabels {
 public:
  virtual ~ObjectLabels() = default;
  virtual const std::vector<std::string>& object_classes() const = 0;
  // True if an object has an outline.
  virtual bool has_outlines() const = 0;
  // Returns one line for each reason why objects, or parts of them, are not used in training.
  virtual std::vector<std::string> left_out() const { return {}; }
  // Returns the objects of a sample without reading its image.
  virtual const std::vector<ObjectAnnotation>& objects(int64_t index) const = 0;
  // Returns the index of the sample for which read() returns this name; throws if it is unknown.
  virtual int64_t index_of(const std::string& name) const = 0;
  const std::vector<ObjectAnnotation>& objects_of(const std::string& name) const {
    return objects(index_of(name));
  }
  // Returns the objects, oriented like their image when decoded with these options.
  virtual SeenObjects seen(int64_t index, const DecodeOptions& /*decode*/) const {
    return {objects(index), image_extent(index)};
  }
  // Ids of images and classes in the set's own files.
  virtual int64_t image_number(int64_t index) const { return index; }
  virtual int64_t class_number(int64_t label) const { return label; }
  // Returns the annotated size of an image without reading it; zeros if it is unknown.
  virtual Extent image_extent(int64_t index) const = 0;
};

// Returns null if a source has no objects.
const ObjectLabels* object_labels(const Source& source);
// Counts the objects of each class without crowds; empty if the source has no objects.
std::vector<int64_t> object_counts(const Source& source);
// Throws a usage error that names the source and `who` needs them if it has no objects.
const ObjectLabels& require_objects(const Source& source, std::string_view who);
// Throws an error that names the first differing class.
void require_same_objects(const Source& train, const Source& validation);

}  // namespace tessera::data
