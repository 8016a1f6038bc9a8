// Streams shared by several tasks: training images without labels, alone or with captions, and validation
// images. The trainer chooses the image side.
#pragma once

#include <memory>

#include "data/transforms/transform.h"
#include "tasks/base/paired_findings.h"
#include "tasks/base/task.h"
#include "tasks/base/text_input.h"

namespace tessera::tasks {

StreamSpec training_images(std::shared_ptr<const data::Source> source, const data::Preprocess& preprocess,
                           const data::AugmentConfig& augment);
// Images with "tokens" of one of their captions (make_text_transform).
StreamSpec training_pairs(std::shared_ptr<const data::Source> source, const data::Preprocess& preprocess,
                          const data::AugmentConfig& augment, const TextInput& input, int64_t length,
                          TrainCaptions captions);
StreamSpec validation_images(std::shared_ptr<const data::Source> source, const data::Preprocess& preprocess);

}  // namespace tessera::tasks
