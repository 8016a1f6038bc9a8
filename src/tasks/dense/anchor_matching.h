// What a task offers that trains on anchors: which of them belong to which object.
#pragma once

#include <cstdint>
#include <vector>

#include "models/detection/detector.h"
#include "tasks/base/inputs.h"

namespace tessera::tasks {

class AnchorMatching {
 public:
  virtual ~AnchorMatching() = default;
  // Of each image of a training batch of the task's first stream; truths are the rows of its field "boxes".
  virtual std::vector<models::AnchorMatches> match_anchors(const Inputs& inputs) const = 0;
};

}  // namespace tessera::tasks
