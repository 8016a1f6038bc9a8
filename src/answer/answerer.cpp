#include "answer/answerer.h"

#include "answer/caption.h"
#include "answer/features.h"
#include "answer/generate.h"
#include "answer/image_rows.h"
#include "answer/pictures.h"
#include "answer/predict.h"
#include "answer/zero_shot.h"
#include "core/text.h"
#include "io/files/file.h"
#include "open/open_generator.h"
#include "weights/diffusers_folder.h"

namespace tessera::answer {
namespace {

// One kind of answer; it is opened if the task has the ability that it needs.
struct AnswerKind {
  const char* name;
  std::shared_ptr<Answerer> (*open)(const AnswerSetup& setup);
};

// The first kind that a task supports is the model's own answer.
constexpr AnswerKind kAnswers[] = {{"segment", open_segmenter},   {"detect", open_finder},
                                   {"zeroshot", open_zero_shot},  {"caption", open_captions},
                                   {"predict", open_predictions}, {"features", open_features}};

train::OpenedTask open_weights(const OpenRequest& request) {
  const train::OpenOptions how{.raw = request.raw};
  if (!train::diffusers_weights(request.weights).empty() ||
      file_exists(request.weights + "/model_index.json"))
    return train::open_generator(request.weights, how);
  return train::open_task(request.weights, how);
}

}  // namespace

std::vector<NamedAnswerer> open_answerers(const OpenRequest& request, std::vector<std::string>& notes) {
  const torch::InferenceMode inference;
  const AnswerSetup setup{
      std::make_shared<const train::ReadyTask>(open_weights(request), request.device, request.precision),
      request.batch, request.max_pixels};
  for (const std::string& note : setup.model->opened().notes) notes.push_back(note);
  std::vector<NamedAnswerer> found;
  const auto add = [&](const std::string& name, std::shared_ptr<Answerer> answerer) {
    if (answerer) found.push_back({found.empty() ? "" : "." + name, std::move(answerer)});
  };
  add("generate", open_generation(setup, request.weights, notes));
  if (!tasks::generator_of(setup.model->task()))
    for (const AnswerKind& kind : kAnswers) add(kind.name, kind.open(setup));
  if (found.empty())
    fail_usage(
        "'", setup.model->file(), "' (task ", tasks::task_name(setup.model->info().task),
        ") answers no request: weights that do classify, segment, detect, compare images with texts, caption "
        "images, make images of three channels, or have a backbone of images");
  return found;
}

}  // namespace tessera::answer
