// Predictions of a task for images or texts, in lines: `tessera predict`, and classifiers that are served.
#pragma once

#include <memory>
#include <vector>

#include "answer/image_rows.h"

namespace tessera::answer {

// Returns at most `most` lines for each image [images, …]. If the task predicts nothing, throws a usage error
// that names a command for such weights.
std::vector<tasks::Prediction> predictions_of(const train::ReadyTask& model, const torch::Tensor& images,
                                              int64_t most);
// Returns the lines of one image as a list of objects.
nlohmann::ordered_json json_of(const tasks::Prediction& prediction);

struct PredictOptions {
  int64_t top = 5;
  template <class V>
  void visit(V& v) {
    v("top", top, "classes to print for each image or text");
  }
  void check() const;
};

// Returns the lines of several images as one array [images, lines] for each of their values.
std::vector<Array> columns_of(const std::vector<tasks::Prediction>& predictions);

// Null if the task has no predictions for single images.
std::shared_ptr<Answerer> open_predictions(const AnswerSetup& setup);
// Null if the task has no classes of texts.
std::shared_ptr<Answerer> open_text_predictions(const AnswerSetup& setup);

}  // namespace tessera::answer
