// The streams of a task that learns from images alone: one of training images without their labels, one of
// validation images.
#pragma once

#include <memory>

#include "data/transform.h"
#include "tasks/task.h"

namespace tessera::tasks {

StreamSpec training_images(std::shared_ptr<const data::Source> source, const data::Preprocess& preprocess,
                           const data::AugmentConfig& augment);
StreamSpec validation_images(std::shared_ptr<const data::Source> source, const data::Preprocess& preprocess);

}  // namespace tessera::tasks
