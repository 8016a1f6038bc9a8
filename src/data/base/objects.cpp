#include "data/base/objects.h"

#include <algorithm>

#include "core/error.h"
#include "data/base/class_names.h"

namespace tessera::data {

namespace {

struct Point {
  double x, y;
};

// Returns the place of a point after the image, of `stored` pixels, was oriented.
Point moved(Point p, int orientation, Extent stored) {
  if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8) p.x = stored.width - p.x;
  if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7) p.y = stored.height - p.y;
  return orientation >= 5 ? Point{p.y, p.x} : p;
}

}  // namespace

ObjectAnnotation oriented(ObjectAnnotation object, int orientation, Extent stored) {
  Instance& box = object.box;
  const Point a = moved({box.left, box.top}, orientation, stored),
              b = moved({box.right, box.bottom}, orientation, stored);
  box.left = std::min(a.x, b.x), box.right = std::max(a.x, b.x);
  box.top = std::min(a.y, b.y), box.bottom = std::max(a.y, b.y);
  for (std::vector<double>& polygon : object.outline.polygons)
    for (size_t i = 0; i + 1 < polygon.size(); i += 2) {
      const Point p = moved({polygon[i], polygon[i + 1]}, orientation, stored);
      polygon[i] = p.x, polygon[i + 1] = p.y;
    }
  if (!object.outline.has_runs()) return object;
  RunLengths& runs = object.outline.runs;
  Image mask(static_cast<int>(runs.width), static_cast<int>(runs.height), 1);
  mask.pixels = mask_of_runs(runs);
  mask = orient(mask, orientation);
  runs = runs_of_mask(mask.pixels, mask.height, mask.width);
  return object;
}

const ObjectLabels* object_labels(const Source& source) { return dynamic_cast<const ObjectLabels*>(&source); }

std::vector<int64_t> object_counts(const Source& source) {
  const ObjectLabels* labels = object_labels(source);
  if (!labels) return {};
  std::vector<int64_t> counts(labels->object_classes().size());
  for (int64_t i = 0; i < source.size(); ++i)
    for (const ObjectAnnotation& object : labels->objects(i))
      if (!object.crowd) ++counts[static_cast<size_t>(object.box.label)];
  return counts;
}

const ObjectLabels& require_objects(const Source& source, std::string_view who) {
  const ObjectLabels* labels = object_labels(source);
  if (!labels)
    fail_usage(who, " needs the boxes of objects, which ", source.describe(),
               " does not have; give a file or folder in COCO's form, or shapes:task=detect");
  return *labels;
}

void require_same_objects(const Source& train, const Source& validation) {
  const std::string difference = first_difference(
      require_objects(train, "the task").object_classes(), train.describe(),
      require_objects(validation, "the task").object_classes(), validation.describe(), " of the objects");
  if (!difference.empty()) fail(difference);
}

}  // namespace tessera::data
