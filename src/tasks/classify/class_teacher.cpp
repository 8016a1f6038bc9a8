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

torch::Tensor ClassTeacher::scores(const torch::Tensor& images, nn::Taps* taps) const {
  const torch::NoGradGuard no_grad;
  models::Context context;
  context.taps = taps;
  return model_->forward(scale_.defined() ? images * scale_ + shift_ : images, context);
}

nn::Taps query_taps() {
  nn::Taps taps;
  taps.wanted = [](const std::string& name) { return name.ends_with(".queries") || name.ends_with(".keys"); };
  return taps;
}

torch::Tensor tapped_similarities(const std::vector<nn::Taps>& student, const nn::Taps& teacher) {
  constexpr const char* kKey = "task.distil.similarities";
  if (teacher.kept.empty() || student.front().kept.size() != teacher.kept.size())
    fail_usage(kKey, " compares attentions of equal number: the teacher has ", teacher.kept.size() / 2,
               ", the model ", student.front().kept.size() / 2);
  std::vector<torch::Tensor> own, shown;
  for (const auto& [name, tokens] : teacher.kept) {
    std::vector<torch::Tensor> parts;
    for (const nn::Taps& taps : student) {
      const auto found = taps.kept.find(name);
      if (found == taps.kept.end()) fail_usage(kKey, ": the model has no ", name, ", which the teacher has");
      parts.push_back(found->second);
    }
    own.push_back(parts.size() == 1 ? parts.front() : torch::cat(parts));
    shown.push_back(tokens);
    if (own.back().sizes().slice(0, 3) != tokens.sizes().slice(0, 3))
      fail_usage(kKey, ": ", name,
                 " of the teacher is [images, heads, tokens] = ", tokens.sizes().slice(0, 3),
                 ", of the model ", own.back().sizes().slice(0, 3));
  }
  return similarity_distillation(own, shown);
}

}  // namespace tessera::tasks
