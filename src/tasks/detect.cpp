#include "tasks/detect.h"

#include <algorithm>
#include <cmath>

#include "core/clock.h"
#include "core/error.h"
#include "core/text.h"
#include "tasks/detect_scores.h"
#include "tasks/object_inputs.h"
#include "tasks/validation_pass.h"

namespace tessera::tasks {

void DetectConfig::check() const {
  if (anchor_sizes.empty() || ratios.empty())
    fail_usage("task.anchor_sizes and task.ratios must not be empty");
  for (const double size : anchor_sizes)
    if (!(size > 0)) fail_usage("task.anchor_sizes holds ", tessera::shortest(size), ", must be positive");
  for (const double ratio : ratios)
    if (!(ratio > 0)) fail_usage("task.ratios holds ", tessera::shortest(ratio), ", must be positive");
  if (norm == models::ConvNormKind::batch)
    fail_usage("task.norm = \"batch\": a detector's heads have none or layer");
}

namespace {

using models::Extent;

DetectConfig read_settings(const Value& settings) {
  auto config = read_config<DetectConfig>(settings, "task");
  config.check();
  return config;
}

// Maps of the backbone that the neck reads.
struct BackboneMaps {
  std::vector<int64_t> blocks, channels, strides;
  bool one_grid = false;
};

BackboneMaps maps_of(const models::ModelSpec& spec, int64_t block_count) {
  BackboneMaps maps;
  const Value* dims = spec.settings.find("dims");
  if (!dims) {
    maps.one_grid = true;
    maps.blocks = {block_count - 1};
    maps.channels = {spec.settings.find("dim")->as_int()};
    maps.strides = {spec.settings.find("patch_size")->as_int()};
    return maps;
  }
  const Value* patch = spec.settings.find("patch_size");
  for (size_t stage = 0; stage < dims->as_array().size(); ++stage) {
    maps.blocks.push_back(static_cast<int64_t>(stage));
    maps.channels.push_back(dims->as_array()[stage].as_int());
    maps.strides.push_back((patch ? patch->as_int() : 4) << stage);
  }
  return maps;
}

std::shared_ptr<models::PyramidNeck> make_neck(const DetectConfig& config, const BackboneMaps& maps,
                                               const std::string& model) {
  const bool simple =
      config.neck == DetectorNeck::simple || (config.neck == DetectorNeck::automatic && maps.one_grid);
  if (!simple) {
    if (maps.one_grid)
      fail_usage("task.neck = \"fpn\" reads the stages of a model, ", model,
                 " has a single grid: use \"simple\"");
    return std::make_shared<models::Fpn>(models::FpnOptions{
        .in = maps.channels, .strides = maps.strides, .width = config.width, .norm = config.norm});
  }
  models::SimplePyramidOptions options{
      .in = maps.channels.back(), .stride = maps.strides.back(), .width = config.width};
  // No map finer than four pixels a cell: small patches give fewer of them.
  std::erase_if(options.scales,
                [&](double scale) { return static_cast<double>(options.stride) / scale < 4; });
  return std::make_shared<models::SimplePyramid>(options);
}

models::DetectorOptions detector_options(const DetectConfig& config, const models::PyramidNeck& neck,
                                         int64_t classes) {
  models::DetectorOptions o = models::published(config.code, classes, config.cascade);
  const auto levels = std::ssize(neck.strides());
  if (std::ssize(config.anchor_sizes) != levels)
    fail_usage("task.anchor_sizes has ", config.anchor_sizes.size(), " sizes, the pyramid ", levels,
               " maps: there must be one for each");
  o.pooled_levels = levels - 1;
  if (config.level_side > 0) o.levels.side = config.level_side;
  o.rpn.anchors.sizes.clear();
  for (const double size : config.anchor_sizes) o.rpn.anchors.sizes.push_back({size});
  o.rpn.anchors.ratios = config.ratios;
  o.rpn.convs = config.rpn_convs, o.rpn.batch = config.rpn_batch;
  o.rpn.after_nms_train = o.rpn.after_nms_test = config.proposals;
  o.rpn.before_nms_train = 2 * config.proposals, o.rpn.before_nms_test = config.proposals;
  o.box.convs = config.box_convs, o.box.fcs = config.box_fcs, o.box.width = config.box_width,
  o.box.norm = config.norm;
  o.box.batch = config.box_batch, o.box.score = config.score, o.box.nms = config.nms,
  o.box.most = config.most;
  o.mask.on = config.masks, o.mask.convs = config.mask_convs, o.mask.width = config.mask_width,
  o.mask.norm = config.norm;
  return o;
}

class Detect final : public Task, public ObjectFinder {
 public:
  explicit Detect(const TaskSetup& setup)
      : config_(read_settings(setup.settings)),
        preprocess_(setup.preprocess),
        train_(setup.train),
        validation_(setup.validation),
        spec_(setup.model),
        backbone_(setup.build_backbone(setup.model)),
        classes_(setup, "task detect") {
    maps_ = maps_of(spec_, backbone_->block_count());
    detector_ = setup.build([&] {
      auto neck = make_neck(config_, maps_, spec_.name);
      const models::DetectorOptions options = detector_options(config_, *neck, std::ssize(classes_.names));
      auto detector = std::make_shared<models::Detector>(options, std::move(neck));
      if (setup.draws()) detector->initialise(setup.seed);
      return detector;
    });
    geometry_ = {.shortest = config_.shortest,
                 .longest = config_.longest,
                 .jitter = config_.jitter,
                 .flip = config_.flip,
                 .masks = config_.masks};
    check_outlines(train_.get());
    check_outlines(validation_.get());
  }

  std::vector<Part> parts() const override { return {{"", backbone_}, {"", detector_}}; }
  std::vector<BackbonePart> backbones() const override { return {{"", backbone_, spec_}}; }
  bool takes_outputs_of(const Value& metadata) const override {
    return object_names_in(metadata) == classes_.names;
  }
  std::vector<std::string> output_names() const override {
    std::vector<std::string> names;
    for (const auto& entry : detector_->named_parameters()) names.push_back(entry.key());
    return names;
  }
  std::string outputs() const override {
    return text("detector of ", classes_.names.size(), " classes", config_.masks ? " with masks" : "");
  }
  int64_t macs(int64_t side) const override {
    return backbone_->macs(side, side) + detector_->macs({side, side});
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
    std::vector<MetricInfo> terms{{"rpn_objectness", Unit::number, false}, {"rpn_box", Unit::number, false}};
    const size_t stages = detector_->options().box.stages.size();
    const bool own_masks = config_.code == models::DetectorCode::mmdet;
    for (size_t stage = 1; stage <= stages; ++stage) {
      const std::string number = stages > 1 ? "_" + std::to_string(stage) : "";
      terms.push_back({"class" + number, Unit::number, false});
      terms.push_back({"box" + number, Unit::number, false});
      if (config_.masks && own_masks) terms.push_back({"mask" + number, Unit::number, false});
    }
    if (config_.masks && !own_masks) terms.push_back({"mask", Unit::number, false});
    return terms;
  }

  Loss loss(const Inputs& inputs, const models::Context& context, Collective&) override {
    const torch::Tensor& images = inputs.at("image");
    const auto pyramid = detector_->pyramid(backbone_->features(images, maps_.blocks, context));
    const auto count = static_cast<double>(images.size(0));
    Loss out;
    for (const auto& [name, value] : detector_->losses(
             pyramid, {images.size(2), images.size(3)}, shown_extents(inputs.at("extent")), targets(inputs),
             models::choose_at_random(context.seed, context.step, context.first_sample))) {
      out.sum = out.sum.defined() ? out.sum + value * count : value * count;
      out.terms.push_back({value.detach() * count, count});
    }
    return out;
  }

  std::vector<std::unique_ptr<Evaluator>> evaluators() override {
    return one_evaluator([this](const EvaluateOptions& options) { return evaluate(options); });
  }
  MetricInfo main_metric() const override { return DetectionScores::main_metric(config_.masks); }
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

  // Boxes alone make no masks.
  void check_outlines(const data::Source* source) const {
    if (config_.masks && source && !data::require_objects(*source, "task detect").has_outlines())
      fail_usage("task.masks: ", source->describe(), " has boxes without masks: set task.masks = false");
  }

  std::shared_ptr<const data::Transform> transform(const std::shared_ptr<const data::Source>& source,
                                                   int64_t side, bool training) const {
    data::Preprocess preprocess = preprocess_;
    if (side > 0) preprocess.size = side;
    data::ObjectGeometry geometry = geometry_;
    geometry.training = training;
    return data::make_object_transform(preprocess, geometry, source);
  }

  std::vector<models::DetectionTarget> targets(const Inputs& inputs) const {
    const FieldTensor& boxes = ragged_field(inputs, "boxes");
    const FieldTensor* masks = config_.masks ? &ragged_field(inputs, "masks") : nullptr;
    const std::vector<Extent> sizes = shown_extents(inputs.at("extent"));
    const torch::Tensor host = boxes.values.to(torch::kCPU);
    std::vector<models::DetectionTarget> all;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int64_t from = boxes.offsets[i], count = boxes.offsets[i + 1] - from;
      const torch::Tensor rows = host.narrow(0, from, count);
      models::DetectionTarget target{rows.slice(1, 0, 4), rows.select(1, 4).to(torch::kInt64), {}};
      // Cut to the image: what lies beyond it is not zero but unknown.
      if (masks)
        target.masks = masks->values.to(torch::kCPU)
                           .narrow(0, masks->offsets[i], count)
                           .slice(1, 0, sizes[i].height)
                           .slice(2, 0, sizes[i].width);
      all.push_back(target);
    }
    return all;
  }

  // The detections of one image as objects of the image as it was.
  std::vector<FoundObject> objects_of(const models::Detections& found, Extent shown, Extent image) const {
    const double across = static_cast<double>(image.width) / static_cast<double>(shown.width),
                 down = static_cast<double>(image.height) / static_cast<double>(shown.height);
    const models::Detections placed = models::rescaled(found, across, down, image);
    const torch::Tensor boxes = placed.boxes.to(torch::kCPU, torch::kFloat64).contiguous(),
                        scores = placed.scores.to(torch::kCPU, torch::kFloat64).contiguous(),
                        labels = placed.labels.to(torch::kCPU).contiguous();
    std::vector<FoundObject> out;
    for (int64_t i = 0; i < boxes.size(0); ++i) {
      const double* b = boxes.const_data_ptr<double>() + 4 * i;
      FoundObject object{
          b[0], b[1], b[2], b[3], scores.const_data_ptr<double>()[i], labels.const_data_ptr<int64_t>()[i]};
      if (placed.masks.defined()) {
        const torch::Tensor mask =
            ops::paste_masks_binary(placed.masks.slice(0, i, i + 1), placed.boxes.slice(0, i, i + 1),
                                    detector_->paste_rule(), 0.5, image.height, image.width);
        object.mask = runs_of_mask({mask.const_data_ptr<uint8_t>(), static_cast<size_t>(mask.numel())},
                                   image.height, image.width);
      }
      out.push_back(std::move(object));
    }
    return out;
  }

  std::vector<models::Detections> run(const torch::Tensor& images, const std::vector<Extent>& shown,
                                      torch::Device device, Precision precision) {
    const AutocastScope autocast(device, precision);
    const auto pyramid = detector_->pyramid(backbone_->features(images, maps_.blocks));
    return detector_->detect(pyramid, {images.size(2), images.size(3)}, shown);
  }

  DetectConfig config_;
  data::Preprocess preprocess_;
  data::ObjectGeometry geometry_;
  std::shared_ptr<const data::Source> train_, validation_;
  models::ModelSpec spec_;
  std::shared_ptr<models::Backbone> backbone_;
  BackboneMaps maps_;
  std::shared_ptr<models::Detector> detector_;
  ObjectClasses classes_;
};

Findings Detect::evaluate(const EvaluateOptions& options) {
  const torch::NoGradGuard no_grad;
  set_training(parts(), false);
  const double began = steady_seconds();
  const auto loader = options.open(validation());
  DetectionScores scores(*validation_, data::require_objects(*validation_, "task detect"), config_.masks);
  each_batch(options, *loader, [&](data::Batch& loaded, int64_t before) {
    const StreamInputs batch = to_device(loaded, "validation", options.device, options.precision);
    const std::vector<Extent> shown = shown_extents(batch.at("extent"));
    const torch::Tensor sides = batch.at("extent").to(torch::kCPU).contiguous();
    const auto found = run(batch.at("image"), shown, options.device, options.precision);
    for (int64_t i = 0; i < loaded.size; ++i) {
      const int64_t index = loaded.indices[static_cast<size_t>(i)];
      if (index != before + loaded.first + i) continue;  // in the place of a broken image
      const int64_t* own = sides.const_data_ptr<int64_t>() + 4 * i;
      scores.add(index,
                 objects_of(found[static_cast<size_t>(i)], shown[static_cast<size_t>(i)], {own[2], own[3]}));
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

std::vector<FoundObject> Detect::find(const Image& image, double score, torch::Device device,
                                      Precision precision) {
  const torch::NoGradGuard no_grad;
  set_training(parts(), false);
  const data::ImageView view = data::whole_view({image.height, image.width}, preprocess_.size, geometry_);
  torch::Tensor input = torch::empty({1, 3, preprocess_.size, preprocess_.size});
  data::write_view(image, view, data::parse_interpolation(preprocess_.interpolation),
                   data::Normalisation(preprocess_.mean, preprocess_.std), input.data_ptr<float>());
  const models::DetectorOptions before = detector_->options();
  if (score >= 0) detector_->set_limits(score, before.box.most);
  const Extent shown{view.shown_height(), view.shown_width()};
  const torch::ScalarType type = precision == Precision::fp64 ? torch::kFloat64 : torch::kFloat32;
  const auto found = run(input.to(device, type), {shown}, device, precision);
  detector_->set_limits(before.box.score, before.box.most);
  return objects_of(found[0], shown, {image.height, image.width});
}

}  // namespace

TaskKind detect_kind() {
  return {.name = "detect",
          .summary = "objects: their boxes, classes and masks (Mask R-CNN, Cascade R-CNN, ViTDet)",
          .resolve = [](const Value& settings) { return write_config(read_settings(settings)); },
          .keys = [] { return describe_config(DetectConfig(), "task"); },
          .fit_model = [](Value& model, const Value&, const data::Source*) { model.set("classes", 0); },
          .make = [](const TaskSetup& setup) -> std::unique_ptr<Task> {
            return std::make_unique<Detect>(setup);
          }};
}

}  // namespace tessera::tasks
