#include "tasks/detr.h"

#include <algorithm>
#include <numeric>

#include "core/clock.h"
#include "core/error.h"
#include "core/text.h"
#include "nn/boxes.h"
#include "tasks/detect.h"
#include "tasks/detect_scores.h"
#include "tasks/object_inputs.h"
#include "tasks/set_loss.h"
#include "tasks/validation_pass.h"

namespace tessera::tasks {
namespace {

using models::Extent;
using torch::Tensor;

// As the published files have it.
constexpr const char* kBackbone = "backbone.0.body.";

DetrTaskConfig read_settings(const Value& settings) {
  auto config = read_config<DetrTaskConfig>(settings, "task");
  config.check("task");
  return config;
}

int64_t last_channels(const models::ModelSpec& spec) {
  const Value* dims = spec.settings.find("dims");
  return dims ? dims->as_array().back().as_int() : spec.settings.find("dim")->as_int();
}

// True right of and below what each image shows, [batch, height, width].
Tensor padding_of(const std::vector<Extent>& shown, const Tensor& images) {
  const int64_t height = images.size(2), width = images.size(3);
  const Tensor padding = torch::ones({images.size(0), height, width}, torch::kBool);
  for (size_t i = 0; i < shown.size(); ++i)
    padding[static_cast<int64_t>(i)].slice(0, 0, shown[i].height).slice(1, 0, shown[i].width).fill_(false);
  return padding.to(images.device());
}

class DetrTask final : public Task, public ObjectFinder {
 public:
  explicit DetrTask(const TaskSetup& setup)
      : config_(read_settings(setup.settings)),
        preprocess_(setup.preprocess),
        train_(setup.train),
        validation_(setup.validation),
        spec_(setup.model),
        backbone_(setup.build_backbone(setup.model)),
        classes_(setup, "task detr") {
    detr_ = setup.build([&] {
      auto detr = std::make_shared<models::Detr>(config_, last_channels(spec_), std::ssize(classes_.names));
      if (setup.draws()) detr->initialise(setup.seed);
      return detr;
    });
    geometry_ = {.shortest = config_.shortest,
                 .longest = config_.longest,
                 .jitter = config_.jitter,
                 .flip = config_.flip,
                 .masks = false};
  }

  std::vector<Part> parts() const override { return {{kBackbone, backbone_}, {"", detr_}}; }
  std::vector<BackbonePart> backbones() const override { return {{kBackbone, backbone_, spec_}}; }
  bool takes_outputs_of(const Value& metadata) const override {
    return object_names_in(metadata) == classes_.names;
  }
  std::vector<std::string> output_names() const override {
    return {"class_embed.weight", "class_embed.bias"};
  }
  std::string outputs() const override {
    return text("classifier of ", classes_.names.size(), " kinds of object");
  }
  int64_t macs(int64_t side) const override {
    const Value* stride = spec_.settings.find("output_stride");
    const Value *dims = spec_.settings.find("dims"), *patch = spec_.settings.find("patch_size");
    int64_t cell = patch ? patch->as_int() : 4;
    if (dims) cell <<= dims->as_array().size() - 1;
    if (stride) cell = std::min(cell, stride->as_int());
    const int64_t cells = (side + cell - 1) / cell;
    return backbone_->macs(side, side) + detr_->macs(cells, cells);
  }

  std::vector<StreamSpec> streams() const override {
    return {{.name = "train",
             .source = train_,
             .transform = [this](int64_t side) { return transform(train_, side, true); },
             .labelled = false}};
  }
  StreamSpec validation() const override {
    return {.name = "validation", .source = validation_, .transform = [this](int64_t side) {
              return transform(validation_, side, false);
            }};
  }

  std::vector<MetricInfo> step_metrics() const override {
    return {{"class", Unit::number, false},
            {"box", Unit::number, false},
            {"overlap", Unit::number, false},
            {"class_error", Unit::number, false}};
  }
  void before_step(const models::TrainingStep&) override {
    if (config_.frozen_norms) backbone_->eval();
  }
  Loss loss(const Inputs& inputs, const models::Context& context, Collective&) override;

  std::vector<std::unique_ptr<Evaluator>> evaluators() override {
    return one_evaluator([this](const EvaluateOptions& options) { return evaluate(options); });
  }
  MetricInfo main_metric() const override { return DetectionScores::main_metric(/*masks=*/false); }
  Value metadata() const override { return classes_.metadata(); }
  std::string metadata_conflict(const Value& stored) const override {
    return object_names_in(stored) == classes_.names ? "" : "the run began with other classes";
  }

  const std::vector<std::string>& object_classes() const override { return classes_.names; }
  int64_t class_number(int64_t label) const override { return classes_.numbers[static_cast<size_t>(label)]; }
  std::vector<FoundObject> find(const Image& image, double score, torch::Device device,
                                Precision precision) override;

 private:
  Findings evaluate(const EvaluateOptions& options);

  SetCosts costs() const {
    return {.label = config_.label_cost,
            .box = config_.box_cost,
            .overlap = config_.overlap_cost,
            .no_object = config_.no_object};
  }

  std::shared_ptr<const data::Transform> transform(const std::shared_ptr<const data::Source>& source,
                                                   int64_t side, bool training) const {
    data::Preprocess preprocess = preprocess_;
    if (side > 0) preprocess.size = side;
    data::ObjectGeometry geometry = geometry_;
    geometry.training = training;
    return data::make_object_transform(preprocess, geometry, source);
  }

  models::Detr::Objects objects(const Tensor& images, const std::vector<Extent>& shown,
                                const models::Context& context = {}) {
    const Tensor map = backbone_->features(images, {backbone_->block_count() - 1}, context).at(0);
    return detr_->forward(map, padding_of(shown, images));
  }

  // Boxes in pixels of the batch's images become centres and sides as shares of what each image shows.
  std::vector<SetTargets> targets(const Inputs& inputs, const std::vector<Extent>& shown) const {
    const FieldTensor& boxes = ragged_field(inputs, "boxes");
    const Tensor host = boxes.values.to(torch::kCPU);
    std::vector<SetTargets> all;
    for (size_t i = 0; i < shown.size(); ++i) {
      const Tensor rows = host.narrow(0, boxes.offsets[i], boxes.offsets[i + 1] - boxes.offsets[i]);
      // A batch that is only measured shows nothing of its images.
      const auto height = static_cast<double>(std::max<int64_t>(shown[i].height, 1)),
                 width = static_cast<double>(std::max<int64_t>(shown[i].width, 1));
      const Tensor size = torch::tensor({width, height, width, height}, rows.options());
      all.push_back(
          {rows.select(1, 4).to(torch::kInt64), nn::centres_of_corners(rows.slice(1, 0, 4) / size)});
    }
    return all;
  }

  // Of one image, best first, in the pixels of the image as it was.
  std::vector<FoundObject> found_in(const Tensor& logits, const Tensor& boxes, Extent image,
                                    double least) const {
    const auto found = models::detr_detections(
        logits.to(torch::kCPU, torch::kFloat64), boxes.to(torch::kCPU, torch::kFloat64),
        static_cast<double>(image.height), static_cast<double>(image.width));
    const Tensor order = found.scores.argsort(/*stable=*/true, 0, /*descending=*/true);
    std::vector<FoundObject> out;
    for (int64_t k = 0; k < order.size(0) && std::ssize(out) < config_.most; ++k) {
      const int64_t i = order[k].item<int64_t>();
      const double score = found.scores[i].item<double>();
      if (score < least) break;
      const Tensor box = found.boxes[i].contiguous();
      const double* b = box.const_data_ptr<double>();
      const auto within = [](double place, int64_t side) {
        return std::clamp(place, 0.0, static_cast<double>(side));
      };
      out.push_back({within(b[0], image.width),
                     within(b[1], image.height),
                     within(b[2], image.width),
                     within(b[3], image.height),
                     score,
                     found.labels[i].item<int64_t>(),
                     {}});
    }
    return out;
  }

  DetrTaskConfig config_;
  data::Preprocess preprocess_;
  data::ObjectGeometry geometry_;
  std::shared_ptr<const data::Source> train_, validation_;
  models::ModelSpec spec_;
  std::shared_ptr<models::Backbone> backbone_;
  ObjectClasses classes_;
  std::shared_ptr<models::Detr> detr_;
};

// What the published losses are divided by is counted within the samples that a process computes at a time.
Loss DetrTask::loss(const Inputs& inputs, const models::Context& context, Collective&) {
  const Tensor& images = inputs.at("image");
  const std::vector<Extent> shown = shown_extents(inputs.at("extent"));
  const std::vector<SetTargets> wanted = targets(inputs, shown);
  const models::Detr::Objects all = objects(images, shown, context);
  const auto count = static_cast<double>(images.size(0));
  const int64_t layers = all.logits.size(0);
  Loss out;
  for (int64_t layer = config_.auxiliary ? 0 : layers - 1; layer < layers; ++layer) {
    const Tensor logits = all.logits[layer].to(torch::kFloat32), boxes = all.boxes[layer].to(torch::kFloat32);
    const SetLoss part = set_loss(logits, boxes, wanted, match_sets(logits, boxes, wanted, costs()), costs());
    const Tensor loss = config_.label_cost * part.mean_label() + config_.box_cost * part.mean_box() +
                        config_.overlap_cost * part.mean_overlap();
    out.sum = out.sum.defined() ? out.sum + loss * count : loss * count;
    if (layer + 1 < layers) continue;
    for (const Tensor& term : {part.mean_label(), part.mean_box(), part.mean_overlap(),
                               torch::tensor(part.label_error, logits.options().requires_grad(false))})
      out.terms.push_back({term.detach() * count, count});
  }
  return out;
}

Findings DetrTask::evaluate(const EvaluateOptions& options) {
  const torch::NoGradGuard no_grad;
  set_training(parts(), false);
  const double began = steady_seconds();
  const auto loader = options.open(validation());
  DetectionScores scores(*validation_, data::require_objects(*validation_, "task detr"), /*masks=*/false);
  each_batch(options, *loader, [&](data::Batch& loaded, int64_t before) {
    const StreamInputs batch = to_device(loaded, "validation", options.device, options.precision);
    const std::vector<Extent> shown = shown_extents(batch.at("extent"));
    const Tensor sides = batch.at("extent").to(torch::kCPU).contiguous();
    models::Detr::Objects found;
    {
      const AutocastScope autocast(options.device, options.precision);
      found = objects(batch.at("image"), shown);
    }
    for (int64_t i = 0; i < loaded.size; ++i) {
      const int64_t index = loaded.indices[static_cast<size_t>(i)];
      if (index != before + loaded.first + i) continue;  // in the place of a broken image
      const int64_t* own = sides.const_data_ptr<int64_t>() + 4 * i;
      scores.add(index, found_in(found.logits[-1][i], found.boxes[-1][i], {own[2], own[3]}, config_.score));
    }
  });
  Findings out;
  out.broken = loader->bad_images();
  scores.collect(options);
  check(scores.size() > 0, "there is no image to evaluate on");
  scores.report(options, out);
  out.seconds = steady_seconds() - began;
  return out;
}

std::vector<FoundObject> DetrTask::find(const Image& image, double score, torch::Device device,
                                        Precision precision) {
  const torch::NoGradGuard no_grad;
  set_training(parts(), false);
  const data::ImageView view = data::whole_view({image.height, image.width}, preprocess_.size, geometry_);
  const Tensor input = torch::empty({1, 3, preprocess_.size, preprocess_.size});
  data::write_view(image, view, data::parse_interpolation(preprocess_.interpolation),
                   data::Normalisation(preprocess_.mean, preprocess_.std), input.data_ptr<float>());
  const torch::ScalarType type = precision == Precision::fp64 ? torch::kFloat64 : torch::kFloat32;
  const AutocastScope autocast(device, precision);
  const auto found = objects(input.to(device, type), {{view.shown_height(), view.shown_width()}});
  return found_in(found.logits[-1][0], found.boxes[-1][0], {image.height, image.width},
                  score < 0 ? config_.score : score);
}

}  // namespace

TaskKind detr_kind() {
  return {.name = "detr",
          .summary = "objects as a set that a Transformer predicts (DETR)",
          .resolve = [](const Value& settings) { return write_config(read_settings(settings)); },
          .keys = [] { return describe_config(DetrTaskConfig(), "task"); },
          .fit_model = [](Value& model, const Value&, const data::Source*) { model.set("classes", 0); },
          .make = [](const TaskSetup& setup) -> std::unique_ptr<Task> {
            return std::make_unique<DetrTask>(setup);
          }};
}

}  // namespace tessera::tasks
