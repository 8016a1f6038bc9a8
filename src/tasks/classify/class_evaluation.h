// How the evaluation of a task that tells classes apart can be asked for more than its findings.
#pragma once

#include "data/transforms/transform.h"
#include "models/heads/class_head.h"
#include "tasks/base/score_accumulator.h"

namespace tessera::tasks {

// Views of each image whose probabilities are averaged (Krizhevsky et al. 2012): its test crop alone, or the corners and the
// centre of what the test crop is cut from; with `flip` each of them mirrored too.
struct TestViews {
  int64_t crops = 1;  // 1 or 5
  bool flip = false;
};
// A usage error for views of several classes an image, and for crops that the preprocessing leaves no room for.
void check_views(const TestViews& views, const data::Preprocess& preprocess, bool multi_label);
// [images, classes]: log of the mean probability over the views of `side` pixels; of one view the model's scores. With
// several crops the images are all that the test crop is cut from.
torch::Tensor scores_of_views(models::Classifier& model, const torch::Tensor& images, const TestViews& views,
                              int64_t side);

// A task is one of these where it gives every image one score a class.
class ClassEvaluation {
 public:
  virtual ~ClassEvaluation() = default;
  // For all later evaluations. A usage error for views that the weights' preprocessing leaves no room for.
  virtual void set_views(const TestViews& views) = 0;
  // What the last evaluation of this process saw; scores where its blocks name "scores".
  virtual const ScoredSamples& last_scores() const = 0;
  // The names of the columns of those scores: the set's classes.
  virtual const std::vector<std::string>& scored_classes() const = 0;
  // How the set's classes were found among the weights' (data/base/class_mapping.h).
  virtual const std::string& class_mapping() const = 0;
};

}  // namespace tessera::tasks
