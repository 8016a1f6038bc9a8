#include "data/base/objects.h"

#include "core/error.h"
#include "data/base/class_names.h"

namespace tessera::data {

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
