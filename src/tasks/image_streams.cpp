#include "tasks/image_streams.h"

#include <utility>

namespace tessera::tasks {

StreamSpec training_images(std::shared_ptr<const data::Source> source, const data::Preprocess& preprocess,
                           const data::AugmentConfig& augment) {
  const auto transform = [preprocess, augment](int64_t) {
    return data::make_train_transform(preprocess, augment);
  };
  return {.name = "train", .source = std::move(source), .transform = transform, .labelled = false};
}

StreamSpec validation_images(std::shared_ptr<const data::Source> source, const data::Preprocess& preprocess) {
  const auto transform = [preprocess](int64_t) { return data::make_eval_transform(preprocess); };
  return {.name = "validation", .source = std::move(source), .transform = transform};
}

}  // namespace tessera::tasks
