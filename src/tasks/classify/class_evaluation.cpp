#include "tasks/classify/class_evaluation.h"

#include "core/error.h"
#include "core/text.h"

namespace tessera::tasks {

void check_views(const TestViews& views, const data::Preprocess& preprocess, bool multi_label) {
  check(views.crops == 1 || views.crops == 5, "test views: ", views.crops, " crops, there are 1 or 5");
  if (multi_label && (views.crops > 1 || views.flip))
    fail_usage("several views are averaged where an image has one class, these weights give it several");
  if (views.crops > 1 && (preprocess.crop >= 1 || preprocess.crop_mode != "center"))
    fail_usage("five crops need a test crop below 1 from the centre, the weights have crop ",
               shortest(preprocess.crop), ", ", preprocess.crop_mode, ": set another with --crop");
}

torch::Tensor scores_of_views(models::Classifier& model, const torch::Tensor& images, const TestViews& views,
                              int64_t side) {
  if (views.crops == 1 && !views.flip) return model.forward(images);
  std::vector<std::pair<int64_t, int64_t>> corners = {{0, 0}};
  const int64_t whole = images.size(2), cut = views.crops == 1 ? whole : side;
  if (views.crops > 1) {
    const int64_t end = whole - cut, middle = end / 2;
    corners = {{0, 0}, {0, end}, {end, 0}, {end, end}, {middle, middle}};
  }
  torch::Tensor sum;
  const auto add = [&](const torch::Tensor& view) {
    const torch::Tensor likely = model.forward(view.contiguous()).to(torch::kFloat32).softmax(-1);
    sum = sum.defined() ? sum + likely : likely;
  };
  for (const auto& [top, left] : corners) {
    const torch::Tensor view = images.slice(2, top, top + cut).slice(3, left, left + cut);
    add(view);
    if (views.flip) add(view.flip({3}));
  }
  return (sum / static_cast<double>(std::ssize(corners) * (views.flip ? 2 : 1))).log();
}

}  // namespace tessera::tasks
