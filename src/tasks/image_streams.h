// The streams that several tasks share: training images without their labels, alone or with captions, and validation
// images. Images have the side that the trainer asks for.
#pragma once

#include <memory>

#include "data/transform.h"
#include "tasks/paired_findings.h"
#include "tasks/task.h"
#include "tasks/text_input.h"

namespace tessera::tasks {

StreamSpec training_images(std::shared_ptr<const data::Source> source, const data::Preprocess& preprocess,
                           const data::AugmentConfig& augment);
// Images with "tokens" of one of their captions (make_text_transform).
StreamSpec training_pairs(std::shared_ptr<const data::Source> source, const data::Preprocess& preprocess,
                          const data::AugmentConfig& augment, const TextInput& input, int64_t length,
                          TrainCaptions captions);
StreamSpec validation_images(std::shared_ptr<const data::Source> source, const data::Preprocess& preprocess);

}  // namespace tessera::tasks
