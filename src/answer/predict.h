// Predictions of a task for images, line by line: `tessera predict` and classifiers that are served.
#pragma once

#include <memory>
#include <vector>

#include "answer/image_rows.h"

namespace tessera::answer {

// Returns at most `most` lines for each image [images, …]. Throws a usage error for weights of a task that predicts
// nothing, which names a command that takes them.
std::vector<tasks::Prediction> predictions_of(const train::ReadyTask& model, const torch::Tensor& images,
                                              int64_t most);
// The lines of one image as a list of objects.
nlohmann::ordered_json json_of(const tasks::Prediction& prediction);

struct PredictOptions {
  int64_t top = 5;
  template <class V>
  void visit(V& v) {
    v("top", top, "classes to print for each image");
  }
  void check() const;
};

// Null if the task predicts nothing for single images.
std::shared_ptr<Answerer> open_predictions(const AnswerSetup& setup);

}  // namespace tessera::answer
