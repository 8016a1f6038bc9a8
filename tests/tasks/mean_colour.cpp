// A whole task in one file: an image's mean colour from a backbone's vector.
#include "tests/tasks/mean_colour.h"
#include "tasks/base/task_kind.h"
#include "tasks/base/validation_pass.h"

namespace tessera::tasks {
namespace {

struct Config {
  double scale = 1;
  template <class V>
  void visit(V& v) {
    v("scale", scale, above(0), "factor on the loss");
  }
};

class MeanColour final : public Task {
 public:
  explicit MeanColour(const TaskSetup& setup) : config_(read_task<Config>(setup.settings)), setup_(setup) {
    backbone_ = setup.build_backbone(setup.model);
    head_ = setup.build([&] {
      auto head = std::make_shared<nn::LinearImpl>(backbone_->embed_width(), 3);
      if (setup.draws())
        nn::initialise(*head, setup.seed, [](auto&, auto&, auto& fill) { fill.truncated_normal(0.02); });
      return head;
    });
  }

  std::vector<Part> parts() const override { return {{"", backbone_}, {"colour.", head_}}; }
  std::vector<BackbonePart> backbones() const override { return {{"", backbone_, setup_.model}}; }
  int64_t macs(int64_t side) const override { return backbone_->macs(side, side) + head_->macs(); }
  std::vector<StreamSpec> streams() const override {
    const auto images = [this](int64_t) {
      return data::make_train_transform(setup_.preprocess, setup_.augment);
    };
    return {{"train", setup_.train, images}};
  }
  StreamSpec validation() const override {
    const auto images = [this](int64_t) { return data::make_eval_transform(setup_.preprocess); };
    return {"validation", setup_.validation, images};
  }

  Loss loss(const Inputs& inputs, const models::Context& context, Collective&) override {
    return {errors(inputs.at("image"), context).sum() * config_.scale, {}};
  }
  void after_step(const models::TrainingStep&) override { ++steps_; }
  Value state() const override { return Value::Table{{"steps", steps_}}; }
  void load_state(const Value& state) override { steps_ = state.find("steps")->as_int(); }

  std::vector<std::unique_ptr<Evaluator>> evaluators() override {
    return one_evaluator(*this, [this](const EvaluateOptions& options) { return evaluate(options); });
  }
  MetricInfo main_metric() const override { return {"error", Unit::number, false}; }
  Findings evaluate(const EvaluateOptions& options) {
    SampleRows rows(1);
    Findings found = evaluate_rows(options, validation(), rows, [&](data::Batch& batch) {
      return errors(to_device(batch, options).at("image"), {}).unsqueeze(1);
    });
    found.metrics = {{main_metric(), rows.rows().mean().item<double>()}};
    found.blocks = {report::TextBlock{"Colours", text("after ", steps_, " steps")}};
    return found;
  }
  Value metadata() const override { return Value::Table{{"colours", "red, green, blue"}}; }
  std::vector<Prediction> predict(const torch::Tensor& images, int64_t) override {
    const torch::Tensor colours = head_->forward(backbone_->embed(images)).to(torch::kCPU, torch::kFloat64);
    std::vector<Prediction> predictions;
    for (int64_t i = 0; i < colours.size(0); ++i) {
      PredictionLine line;
      for (const auto& [name, at] : {std::pair("red", 0), {"green", 1}, {"blue", 2}})
        line.values.emplace_back(name, colours[i][at].item<double>());
      predictions.push_back({line});
    }
    return predictions;
  }

 private:
  torch::Tensor errors(const torch::Tensor& images, const models::Context& context) {
    return (head_->forward(backbone_->embed(images, context)) - images.mean({2, 3})).square().mean(1);
  }
  Config config_;
  TaskSetup setup_;
  std::shared_ptr<models::Backbone> backbone_;
  std::shared_ptr<nn::LinearImpl> head_;
  int64_t steps_ = 0;
};

}  // namespace

TaskKind mean_colour_kind() { return task_kind<MeanColour, Config>("mean_colour", "an image's mean colour"); }

}  // namespace tessera::tasks
