// What tasks that find objects have in common besides what they learn: their streams, their evaluation as COCO counts,
// and finding in one image of any size. A derived task gives its parts, its loss and the objects of a batch.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/transforms/transform_objects.h"
#include "models/base/family.h"
#include "tasks/base/registry.h"
#include "tasks/dense/object_finder.h"
#include "tasks/dense/object_inputs.h"

namespace tessera::tasks {

// One view of an image as the model sees it.
struct ViewedImage {
  torch::Tensor pixels;  // [1, 3, side, side]
  models::Extent shown;  // what of it the image fills
  bool mirrored = false;
};

class ObjectTask : public Task, public ObjectFinder {
 public:
  std::vector<StreamSpec> streams() const override;
  StreamSpec validation() const override;
  std::vector<std::unique_ptr<Evaluator>> evaluators() override {
    return one_evaluator([this](const EvaluateOptions& options) { return evaluate(options); });
  }
  MetricInfo main_metric() const override;
  bool takes_outputs_of(const Value& metadata) const override {
    return object_names_in(metadata) == classes_.names;
  }
  Value metadata() const override { return classes_.metadata(); }
  std::string metadata_conflict(const Value& stored) const override {
    return object_names_in(stored) == classes_.names ? "" : "the run began with other classes";
  }
  const std::vector<std::string>& object_classes() const override { return classes_.names; }
  int64_t class_number(int64_t label) const override { return classes_.numbers[static_cast<size_t>(label)]; }
  std::vector<FoundObject> find(const Image& image, double score, torch::Device device,
                                Precision precision) override;
  void set_views(const std::vector<TestView>& views) override;

 protected:
  // `who` names the task in errors; `score` is the lowest that a detection has in evaluation.
  ObjectTask(const TaskSetup& setup, std::string who, const data::ObjectGeometry& geometry, double score);

  // The objects of each image of a batch, best first, in the pixels of the images as they were: `shown` is what each
  // fills of its place in the batch, `sizes` are their own sizes.
  virtual std::vector<std::vector<FoundObject>> find_in_batch(const torch::Tensor& images,
                                                              const std::vector<models::Extent>& shown,
                                                              const std::vector<models::Extent>& sizes,
                                                              double score) = 0;
  // The objects of one image that was looked at in several views: what is
  // found twice is kept once.
  virtual std::vector<FoundObject> find_in_views(const std::vector<ViewedImage>& views, models::Extent size,
                                                 double score) = 0;

  // What the side of a larger or smaller view is a multiple of.
  virtual int64_t side_unit() const { return 32; }

  data::Preprocess preprocess_;
  data::ObjectGeometry geometry_;
  std::shared_ptr<const data::Source> train_, validation_;
  models::ModelSpec spec_;
  std::shared_ptr<models::Backbone> backbone_;
  ObjectClasses classes_;
  std::vector<TestView> views_ = {{}};

 private:
  Findings evaluate(const EvaluateOptions& options);
  std::shared_ptr<const data::Transform> transform(const std::shared_ptr<const data::Source>& source,
                                                   int64_t side, bool training) const;
  ViewedImage viewed(const Image& image, const TestView& view) const;
  bool plain_view() const { return views_ == std::vector<TestView>{{}}; }

  std::string who_;
  double score_;
};

}  // namespace tessera::tasks
