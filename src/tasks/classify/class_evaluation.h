// Options and results of a classification evaluation, beyond its findings.
#pragma once

#include "data/transforms/transform.h"
#include "models/heads/class_head.h"
#include "tasks/base/score_accumulator.h"

namespace tessera::tasks {

// Views of each image, with averaged probabilities (Krizhevsky et al. 2012). 1 crop: the test crop. 5 crops:
// corners and centre of the area that the test crop is cut from. `flip` adds the mirror image of each.
struct TestViews {
  int64_t crops = 1;  // 1 or 5
  bool flip = false;
};
// Throws a usage error for several views of multi-label data, and for crops that do not fit the
// preprocessing.
void check_views(const TestViews& views, const data::Preprocess& preprocess, bool multi_label);
// Returns [images, classes]: log of the mean probability over views of `side` pixels; for one view the
// model's logits. With 5 crops, `images` must be the uncropped area.
torch::Tensor scores_of_views(models::Classifier& model, const torch::Tensor& images, const TestViews& views,
                              int64_t side);

// Implemented by tasks that compute one score per class for every image.
class ClassEvaluation {
 public:
  static constexpr const char* kAbility = "a task that gives each image one score a class: task classify";
  virtual ~ClassEvaluation() = default;
  // For all later evaluations. Throws a usage error for crops that do not fit the weights' preprocessing.
  virtual void set_views(const TestViews& views) = 0;
  // The samples of the last evaluation in this process, with scores if its blocks contained "scores".
  virtual const ScoredSamples& last_scores() const = 0;
  // Names of the columns of those scores: the set's classes.
  virtual const std::vector<std::string>& scored_classes() const = 0;
  // How the set's classes were matched to those of the weights (data/base/class_names.h).
  virtual const std::string& class_mapping() const = 0;
};

}  // namespace tessera::tasks
