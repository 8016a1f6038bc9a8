#include "tasks/pretrain/image_views.h"

#include <set>

#include "core/error.h"
#include "tasks/base/validation_pass.h"

namespace tessera::tasks {

ImageViews::ImageViews(const TaskSetup& setup, std::vector<ImageView> views, const std::string& who,
                       models::Backbone& backbone)
    : preprocess_(setup.preprocess),
      train_(setup.train),
      validation_(setup.validation),
      views_(std::move(views)) {
  if (preprocess_.mean.size() != 3)
    fail_usage(who, " augments the colours of images: preprocess.mean has ", preprocess_.mean.size(),
               " numbers, must have 3");
  if (setup.meta || !setup.train) return;
  std::set<int64_t> sizes(setup.sides.begin(), setup.sides.end());
  for (const ImageView& view : views_)
    if (view.size > 0) sizes.insert(view.size);
  const torch::NoGradGuard no_grad;
  backbone.eval();
  for (const int64_t size : sizes) try {
      backbone.embed(torch::zeros({1, 3, size, size}));
    } catch (const Error& error) {
      fail_usage(who, ": the model takes no views of ", size, " pixels: ", error.what());
    }
}

std::vector<std::shared_ptr<const data::Transform>> ImageViews::transforms(int64_t side, size_t count) const {
  std::vector<std::shared_ptr<const data::Transform>> all;
  for (size_t view = 0; view < count; ++view) {
    data::Preprocess preprocess = preprocess_;
    preprocess.size = views_[view].size > 0 ? views_[view].size : side;
    all.push_back(data::make_view_transform(preprocess, views_[view].augment));
  }
  return all;
}

StreamSpec ImageViews::training() const {
  const auto transform = [views = *this](int64_t side) {
    return data::decode_once(data::join_views(views.transforms(side, views.views_.size())),
                             views.preprocess_.apply_exif);
  };
  return {.name = "train", .source = train_, .transform = transform, .labelled = false};
}

StreamSpec ImageViews::validation(int64_t count) const {
  StreamSpec stream = validation_images(validation_, preprocess_);
  stream.transform = [views = *this, plain = stream.transform, count](int64_t side) {
    return data::decode_once(data::join_transforms({plain(side), data::join_views(views.transforms(
                                                                     side, static_cast<size_t>(count)))}),
                             views.preprocess_.apply_exif);
  };
  return stream;
}

models::Context of_view(const models::Context& context, int64_t view, int64_t views) {
  models::Context one = context;
  one.step = context.step * static_cast<uint64_t>(views) + static_cast<uint64_t>(view);
  return one;
}

}  // namespace tessera::tasks
