// What a source knows of the objects in its images: boxes, classes, outlines.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/base/geometry.h"
#include "data/base/outline.h"
#include "data/base/source.h"

namespace tessera::data {

// One object of an image, in its pixels.
struct ObjectAnnotation {
  Instance box = {};     // its label is the class, 0 … classes - 1
  bool crowd = false;    // many objects in one outline: not learned from, not counted against a detector
  double area = 0;       // as annotated, in pixels
  Outline outline = {};  // empty where there are boxes alone
  int64_t number = 0;    // of the annotation, as its file has it
};

class ObjectLabels {
 public:
  virtual ~ObjectLabels() = default;
  virtual const std::vector<std::string>& object_classes() const = 0;
  // Whether every object has an outline.
  virtual bool has_outlines() const = 0;
  // The objects of a sample, without reading its image.
  virtual const std::vector<ObjectAnnotation>& objects(int64_t index) const = 0;
  // The same of the sample that read() gives this name; an error if there is none.
  virtual const std::vector<ObjectAnnotation>& objects_of(const std::string& name) const = 0;
  // The numbers of images and classes in the set's own files.
  virtual int64_t image_number(int64_t index) const { return index; }
  virtual int64_t class_number(int64_t label) const { return label; }
  // The size of an image, without reading it; zeros where it is not known.
  virtual Extent image_extent(int64_t index) const = 0;
};

// Null where a source knows of no objects.
const ObjectLabels* object_labels(const Source& source);
// Objects of each class, crowds left out; empty where a source knows of none.
std::vector<int64_t> object_counts(const Source& source);
// A usage error that names the source and `who` needs them where it has none.
const ObjectLabels& require_objects(const Source& source, std::string_view who);
// Fails, naming the first class that differs.
void require_same_objects(const Source& train, const Source& validation);

}  // namespace tessera::data
