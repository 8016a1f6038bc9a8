// Base of tasks that find objects: streams, evaluation as in COCO, and detection in one image of any size. A
// derived task adds its parts, its loss and the detection in a batch.
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

// One view of an image, as input of the model.
struct ViewedImage {
  torch::Tensor pixels;  // [1, 3, side, side]
  models::Extent shown;  // part that the image fills
  bool mirrored = false;
};

class ObjectTask : public Task, public ObjectFinder {
 public:
  std::vector<StreamSpec> streams() const override;
  StreamSpec validation() const override;
  std::vector<std::unique_ptr<Evaluator>> evaluators() override {
    return one_evaluator(*this, [this](const EvaluateOptions& options) { return evaluate(options); });
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
  std::vector<TestView> views() const override { return views_; }

 protected:
  // `who` names the task in errors; `score` is the lowest score of detections in evaluation.
  ObjectTask(const TaskSetup& setup, std::string who, const data::ObjectGeometry& geometry, double score);

  // Returns the objects of each image of a batch, best first, in pixels of the original images. `shown` is
  // the part of the batch that each image fills, `sizes` are the original sizes.
  virtual std::vector<std::vector<FoundObject>> find_in_batch(const torch::Tensor& images,
                                                              const std::vector<models::Extent>& shown,
                                                              const std::vector<models::Extent>& sizes,
                                                              double score) = 0;
  // Returns the objects of several views of one image, without duplicates.
  virtual std::vector<FoundObject> find_in_views(const std::vector<ViewedImage>& views, models::Extent size,
                                                 double score) = 0;

  // The sides of a rescaled view are multiples of this.
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
