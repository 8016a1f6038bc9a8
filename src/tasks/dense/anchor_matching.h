// Implemented by tasks that train on anchors: the assignment of anchors to objects.
#pragma once

#include <cstdint>
#include <vector>

#include "models/detection/detector.h"
#include "tasks/base/inputs.h"

namespace tessera::tasks {

class AnchorMatching {
 public:
  static constexpr const char* kAbility = "anchors: task detect";
  virtual ~AnchorMatching() = default;
  // For each image of a training batch of the task's first stream; truths are the rows of its field "boxes".
  virtual std::vector<models::AnchorMatches> match_anchors(const Inputs& inputs) const = 0;
};

}  // namespace tessera::tasks
