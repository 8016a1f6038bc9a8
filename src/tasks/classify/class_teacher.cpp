#include "tasks/classify/classify.h"

#include "core/error.h"

namespace tessera::tasks {
namespace {

torch::Tensor channels(const std::vector<double>& values, torch::TensorOptions options) {
  return torch::tensor(values, options).reshape({1, -1, 1, 1});
}

// Throws for a mismatch before the run begins.
void check_teacher(const OpenedWeights& teacher, const std::vector<int64_t>& sides, int64_t channels,
                   int64_t classes) {
  const torch::NoGradGuard no_grad;
  for (const int64_t side : sides) {
    torch::Tensor scores;
    try {
      scores = teacher.task->classifier()->forward(torch::zeros({1, channels, side, side}));
    } catch (const Error& error) {
      fail_usage("task.distil.teacher '", teacher.file, "' cannot take images of ", side, ": ", error.what());
    }
    if (scores.size(-1) != classes)
      fail_usage("task.distil.teacher '", teacher.file, "' has ", scores.size(-1), " classes, the data has ",
                 classes);
  }
}

}  // namespace

// Converts the student's input to the teacher's normalisation.
ClassTeacher::ClassTeacher(const OpenedWeights& opened, const TaskSetup& setup, int64_t classes)
    : model_(opened.task->classifier()), checksum_(opened.checksum) {
  const data::Preprocess &ours = setup.preprocess, &theirs = opened.preprocess;
  check_teacher(opened, setup.sides, std::ssize(ours.mean), classes);
  const auto type = setup.precision == Precision::fp64 ? torch::kFloat64 : torch::kFloat32;
  model_->backbone->to(setup.device, type);
  if (theirs.mean == ours.mean && theirs.std == ours.std) return;
  const auto options = torch::TensorOptions(setup.device).dtype(type);
  const torch::Tensor deviation = channels(theirs.std, options);
  scale_ = channels(ours.std, options) / deviation;
  shift_ = (channels(ours.mean, options) - channels(theirs.mean, options)) / deviation;
}

torch::Tensor ClassTeacher::scores(const torch::Tensor& images) const {
  const torch::NoGradGuard no_grad;
  return model_->forward(scale_.defined() ? images * scale_ + shift_ : images);
}

}  // namespace tessera::tasks
