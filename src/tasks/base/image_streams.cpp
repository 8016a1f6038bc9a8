#include "tasks/base/validation_pass.h"

#include <utility>

namespace tessera::tasks {
namespace {

data::Preprocess of_side(data::Preprocess preprocess, int64_t side) {
  preprocess.size = side;
  return preprocess;
}

}  // namespace

StreamSpec training_images(std::shared_ptr<const data::Source> source, const data::Preprocess& preprocess,
                           const data::AugmentConfig& augment) {
  const auto transform = [preprocess, augment](int64_t side) {
    return data::make_train_transform(of_side(preprocess, side), augment);
  };
  return {.name = "train", .source = std::move(source), .transform = transform, .labelled = false};
}

StreamSpec training_pairs(std::shared_ptr<const data::Source> source, const data::Preprocess& preprocess,
                          const data::AugmentConfig& augment, const TextInput& input, int64_t length,
                          TrainCaptions captions) {
  const auto transform = [preprocess, augment, input, length, captions](int64_t side) {
    return data::join_transforms({data::make_train_transform(of_side(preprocess, side), augment),
                                  make_text_transform(input, length, captions == TrainCaptions::drawn)});
  };
  return {.name = "train", .source = std::move(source), .transform = transform, .labelled = false};
}

StreamSpec validation_images(std::shared_ptr<const data::Source> source, const data::Preprocess& preprocess) {
  const auto transform = [preprocess](int64_t side) {
    return data::make_eval_transform(of_side(preprocess, side));
  };
  return {.name = "validation", .source = std::move(source), .transform = transform};
}

}  // namespace tessera::tasks
