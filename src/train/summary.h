// What a finished run has to show: confusion matrix and a grid of predictions.
#pragma once

#include <vector>

#include "tasks/task.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace tessera::train {

// [truth][prediction] counts; empty where multi-label, or of more than 4096 classes.
std::vector<std::vector<int64_t>> confusion_of(const tasks::Evaluation& evaluation);

// Up to `count` held-out pictures, the same in every run of a recipe, as people see them (whole, at most 160
// pixels a side). Pictures that cannot be read are left out.
std::vector<PredictedPicture> predicted_pictures(const Setup& setup, const tasks::Evaluation& evaluation,
                                                 int64_t count);

}  // namespace tessera::train
