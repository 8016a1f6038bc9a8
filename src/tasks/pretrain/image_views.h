// Several augmented views of each image, for tasks that compare them: fields "image_0", "image_1", ….
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/transforms/view_augment.h"
#include "tasks/base/registry.h"
#include "tasks/base/task.h"

namespace tessera::tasks {

struct ImageView {
  data::ViewAugment augment;
  int64_t size = 0;  // side in pixels, 0 = the run's
};

class ImageViews {
 public:
  // Throws a usage error that begins with `who` if the images have no colours, or if the model refuses a view's size.
  ImageViews(const TaskSetup& setup, std::vector<ImageView> views, const std::string& who,
             models::Backbone& backbone);
  StreamSpec training() const;
  // The first `views` of each image, with draws that depend on its index alone, and "image" without augmentation.
  StreamSpec validation(int64_t views) const;

 private:
  std::vector<std::shared_ptr<const data::Transform>> transforms(int64_t side, size_t count) const;

  data::Preprocess preprocess_;
  std::shared_ptr<const data::Source> train_, validation_;
  std::vector<ImageView> views_;
};

// Returns the field's name.
inline std::string view_field(int64_t view) { return "image_" + std::to_string(view); }
// Returns the context of one view: it has its own draws.
models::Context of_view(const models::Context& context, int64_t view, int64_t views);

}  // namespace tessera::tasks
