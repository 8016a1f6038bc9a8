#include "answer/answerer.h"

#include "answer/caption.h"
#include "answer/chat.h"
#include "answer/complete.h"
#include "answer/features.h"
#include "answer/generate.h"
#include "answer/image_rows.h"
#include "answer/pictures.h"
#include "answer/predict.h"
#include "answer/retrieve.h"
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

// The first that a task can give is the model's own answer.
constexpr AnswerKind kAnswers[] = {{"segment", open_segmenter},        {"detect", open_finder},
                                   {"zeroshot", open_zero_shot},       {"caption", open_captions},
                                   {"complete", open_completions},     {"predict", open_predictions},
                                   {"predict", open_text_predictions}, {"features", open_features}};

// Answers under the names of one model.
class Answers {
 public:
  void add(const std::string& name, std::shared_ptr<Answerer> answerer) {
    if (answerer) found.push_back({found.empty() ? "" : "." + name, std::move(answerer)});
  }
  std::vector<NamedAnswerer> found;
};

bool is_diffusers_folder(const std::string& weights) {
  return !train::diffusers_weights(weights).empty() || file_exists(weights + "/model_index.json");
}

train::OpenedTask open_weights(const OpenRequest& request) {
  const train::OpenOptions how{.raw = request.raw};
  return is_diffusers_folder(request.weights) ? train::open_generator(request.weights, how)
                                              : train::open_task(request.weights, how);
}

}  // namespace

std::vector<NamedAnswerer> open_answerers(const OpenRequest& request, std::vector<std::string>& notes) {
  const torch::InferenceMode inference;
  Answers answers;
  if (!is_diffusers_folder(request.weights)) answers.add("chat", open_chat(request, notes));
  if (!answers.found.empty()) return answers.found;
  const AnswerSetup setup{
      std::make_shared<const train::ReadyTask>(open_weights(request), request.device, request.precision),
      request.batch, request.max_pixels};
  for (const std::string& note : setup.model->opened().notes) notes.push_back(note);
  answers.add("generate", open_generation(setup, request.weights, notes));
  if (!tasks::generator_of(setup.model->task()))
    for (const AnswerKind& kind : kAnswers) answers.add(kind.name, kind.open(setup));
  answers.add("retrieve", open_gallery(setup, request, notes));
  if (answers.found.empty())
    fail_usage("'", setup.model->file(), "' (task ", tasks::task_name(setup.model->info().task),
               ") answers no request: weights that do classify, segment, detect, compare images with texts, "
               "caption images, make images of three channels, write texts, or have a backbone of images");
  return answers.found;
}

}  // namespace tessera::answer
