#include "tasks/dense/object_task.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "tasks/base/validation_pass.h"
#include "tasks/dense/detect_scores.h"

namespace tessera::tasks {
namespace {

// Scales the usual geometry of an image by a factor.
data::ObjectGeometry scaled(data::ObjectGeometry geometry, double factor) {
  const auto times = [&](int64_t side) {
    return std::max<int64_t>(1, std::llround(static_cast<double>(side) * factor));
  };
  for (int64_t& side : geometry.shortest) side = times(side);
  geometry.longest = geometry.longest > 0 ? times(geometry.longest) : 0;
  return geometry;
}

}  // namespace

ObjectTask::ObjectTask(const TaskSetup& setup, std::string who, const data::ObjectGeometry& geometry,
                       double score)
    : preprocess_(setup.preprocess),
      geometry_(geometry),
      train_(setup.train),
      validation_(setup.validation),
      spec_(setup.model),
      backbone_(setup.build_backbone(setup.model)),
      classes_(setup, who),
      who_(std::move(who)),
      score_(score) {}

std::shared_ptr<const data::Transform> ObjectTask::transform(
    const std::shared_ptr<const data::Source>& source, int64_t side, bool training) const {
  data::Preprocess preprocess = preprocess_;
  if (side > 0) preprocess.size = side;
  data::ObjectGeometry geometry = geometry_;
  geometry.training = training;
  return data::make_object_transform(preprocess, geometry, source);
}

std::vector<StreamSpec> ObjectTask::streams() const {
  return {{.name = "train",
           .source = train_,
           .transform = [this](int64_t side) { return transform(train_, side, true); },
           .labelled = false}};
}

StreamSpec ObjectTask::validation() const {
  return {.name = "validation", .source = validation_, .transform = [this](int64_t side) {
            return transform(validation_, side, false);
          }};
}

MetricInfo ObjectTask::main_metric() const { return DetectionScores::main_metric(geometry_.masks); }

void ObjectFinder::set_classes(const std::vector<std::string>&) {
  fail_usage("classes by name need weights of task glip: these find the ", object_classes().size(),
             " classes that they were trained on");
}

void ObjectTask::set_views(const std::vector<TestView>& views) {
  if (views.empty()) fail_usage(who_, ": an image needs at least one view");
  for (const TestView& view : views)
    if (!(view.scale > 0 && view.scale <= 16))
      fail_usage("a test scale is ", shortest(view.scale), ", must be above 0 and at most 16");
  views_ = views;
}

ViewedImage ObjectTask::viewed(const Image& image, const TestView& view) const {
  // Scales the image's usual side; at least one pixel.
  const int64_t wanted =
      std::max<int64_t>(1, std::llround(static_cast<double>(preprocess_.size) * view.scale));
  const int64_t side =
      view.scale == 1 ? preprocess_.size : (wanted + side_unit() - 1) / side_unit() * side_unit();
  const data::ObjectGeometry geometry = scaled(geometry_, view.scale);
  // An image that fits the usual square fits the scaled one; padding from rounding the side stays empty.
  data::ImageView placed =
      data::whole_view({image.height, image.width}, view.scale == 1 ? side : wanted, geometry);
  placed.out_width = placed.out_height = static_cast<int>(side);
  placed.mirrored = view.mirrored;
  ViewedImage out{
      torch::empty({1, 3, side, side}), {placed.shown_height(), placed.shown_width()}, view.mirrored};
  data::write_view(image, placed, data::parse_interpolation(preprocess_.interpolation),
                   data::Normalisation(preprocess_.mean, preprocess_.std), out.pixels.data_ptr<float>());
  return out;
}

std::vector<FoundObject> ObjectTask::find(const Image& image, double score, torch::Device device,
                                          Precision precision) {
  const torch::NoGradGuard no_grad;
  set_training(parts(), false);
  const torch::ScalarType type = precision == Precision::fp64 ? torch::kFloat64 : torch::kFloat32;
  const double least = score < 0 ? score_ : score;
  const models::Extent size{image.height, image.width};
  std::vector<ViewedImage> views;
  for (const TestView& view : views_) {
    views.push_back(viewed(image, view));
    views.back().pixels = views.back().pixels.to(device, type);
  }
  const AutocastScope autocast(device, precision);
  if (plain_view()) return find_in_batch(views[0].pixels, {views[0].shown}, {size}, least)[0];
  return find_in_views(views, size, least);
}

Findings ObjectTask::evaluate(const EvaluateOptions& options) {
  DecodeOptions decode;
  decode.apply_exif = preprocess_.apply_exif;
  DetectionScores scores(*validation_, data::require_objects(*validation_, who_), geometry_.masks, decode);
  Findings out = evaluate_each(options, validation(), [&](data::Batch& loaded) {
    std::vector<std::vector<FoundObject>> found;
    if (plain_view()) {
      const StreamInputs batch = to_device(loaded, options);
      const torch::Tensor sides = batch.on_host("extent").contiguous();
      std::vector<models::Extent> sizes;
      for (int64_t i = 0; i < loaded.size; ++i) {
        const int64_t* own = sides.const_data_ptr<int64_t>() + 4 * i;
        sizes.push_back({own[2], own[3]});
      }
      const AutocastScope autocast(options.device, options.precision);
      found = find_in_batch(batch.at("image"), shown_extents(batch.on_host("extent")), sizes, score_);
    }
    for (int64_t i = 0; i < loaded.size; ++i) {
      const int64_t index = loaded.indices[static_cast<size_t>(i)];
      if (index != loaded.first + i) continue;  // substitute for a broken image
      scores.add(index, plain_view() ? std::move(found[static_cast<size_t>(i)])
                                     : find(data::decode_sample(validation_->read(index), decode), score_,
                                            options.device, options.precision));
    }
  });
  scores.collect(options);
  require_samples(scores.size());
  scores.report(options, out);
  return out;
}

}  // namespace tessera::tasks
