#include "tasks/dense/detect.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "tasks/base/layer_features.h"
#include "tasks/base/task_kind.h"
#include "tasks/dense/object_task.h"

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
  if (test_scales.empty()) fail_usage("task.test_scales is empty, must have a factor at least, such as 1.0");
}

namespace {

using models::Extent;

// All stages of a pyramid, or the last block of a single grid.
BackboneMaps detector_maps(const models::ModelSpec& spec, int64_t block_count) {
  const bool stages = spec.settings.find("dims") != nullptr;
  return maps_of(spec, stages ? std::vector<int64_t>{} : std::vector{block_count - 1}, block_count);
}

std::shared_ptr<models::PyramidNeck> make_neck(const DetectConfig& config, const BackboneMaps& maps,
                                               const std::string& model) {
  const bool simple =
      config.neck == DetectorNeck::simple || (config.neck == DetectorNeck::automatic && !maps.stages);
  if (!simple) {
    if (!maps.stages)
      fail_usage("task.neck = \"fpn\" reads the stages of a model, ", model,
                 " has a single grid: use \"simple\"");
    return std::make_shared<models::Fpn>(models::FpnOptions{
        .in = maps.widths, .strides = maps.strides, .width = config.width, .norm = config.norm});
  }
  if (maps.stages)
    fail_usage("task.neck = \"simple\" reads a single grid, ", model, " has stages: use \"fpn\"");
  models::SimplePyramidOptions options{
      .in = maps.widths.back(), .stride = maps.strides.back(), .width = config.width};
  // The finest map has cells of four pixels, so small patches give fewer maps.
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

data::ObjectGeometry geometry_of(const DetectConfig& config) {
  return {.shortest = config.shortest,
          .longest = config.longest,
          .jitter = config.jitter,
          .flip = config.flip,
          .masks = config.masks};
}

std::vector<TestView> views_of(const DetectConfig& config) {
  std::vector<TestView> views;
  for (const double scale : config.test_scales)
    for (const bool mirrored : {false, true})
      if (!mirrored || config.test_flip) views.push_back({scale, mirrored});
  return views;
}

class Detect final : public ObjectTask, public AnchorMatching {
 public:
  explicit Detect(const TaskSetup& setup) : Detect(setup, read_task<DetectConfig>(setup.settings)) {}

  std::vector<Part> parts() const override { return {{"", backbone_}, {"", detector_}}; }
  std::vector<BackbonePart> backbones() const override { return {{"", backbone_, spec_}}; }
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
    const auto pyramid = pyramid_of(images, context);
    const auto count = static_cast<double>(images.size(0));
    Loss out;
    for (const auto& [name, value] : detector_->losses(
             pyramid, {images.size(2), images.size(3)}, shown_extents(inputs.on_host("extent")),
             targets(inputs), models::choose_at_random(context.seed, context.step, context.first_sample))) {
      out.sum = out.sum.defined() ? out.sum + value * count : value * count;
      out.terms.push_back({value.detach() * count, count});
    }
    return out;
  }

  std::vector<models::AnchorMatches> match_anchors(const Inputs& inputs) const override {
    const torch::Tensor& images = inputs.at("image");
    const std::vector<Extent> shown = shown_extents(inputs.on_host("extent"));
    const std::vector<models::DetectionTarget> truths = targets(inputs);
    std::vector<models::AnchorMatches> all;
    for (size_t i = 0; i < shown.size(); ++i)
      all.push_back(detector_->match_anchors({images.size(2), images.size(3)}, shown[i], truths[i].boxes));
    return all;
  }

 protected:
  std::vector<std::vector<FoundObject>> find_in_batch(const torch::Tensor& images,
                                                      const std::vector<Extent>& shown,
                                                      const std::vector<Extent>& sizes,
                                                      double score) override {
    detector_->set_limits(score, config_.most);
    const auto found = detector_->detect(pyramid_of(images), {images.size(2), images.size(3)}, shown);
    std::vector<std::vector<FoundObject>> out;
    for (size_t i = 0; i < found.size(); ++i) out.push_back(objects_of(found[i], shown[i], sizes[i]));
    return out;
  }
  std::vector<FoundObject> find_in_views(const std::vector<ViewedImage>& views, Extent size,
                                         double score) override;
  int64_t side_unit() const override { return maps_.strides.back(); }

 private:
  Detect(const TaskSetup& setup, const DetectConfig& config)
      : ObjectTask(setup, "task detect", geometry_of(config), config.score),
        config_(config),
        maps_(detector_maps(spec_, backbone_->block_count())) {
    detector_ = setup.build([&] {
      auto neck = make_neck(config_, maps_, spec_.name);
      const models::DetectorOptions options = detector_options(config_, *neck, std::ssize(classes_.names));
      auto detector = std::make_shared<models::Detector>(options, std::move(neck));
      if (setup.draws()) detector->initialise(setup.seed);
      return detector;
    });
    check_outlines(train_.get());
    check_outlines(validation_.get());
    set_views(views_of(config_));
  }

  // A set with boxes but no masks cannot train a mask head. A set without objects has neither.
  void check_outlines(const data::Source* source) const {
    if (!config_.masks || !source) return;
    const data::ObjectLabels& labels = data::require_objects(*source, "task detect");
    if (labels.has_outlines()) return;
    for (int64_t i = 0; i < source->size(); ++i)
      if (!labels.objects(i).empty())
        fail_usage("task.masks: ", source->describe(), " has boxes without masks: set task.masks = false");
  }

  std::vector<models::DetectionTarget> targets(const Inputs& inputs) const {
    const FieldTensor& boxes = ragged_field(inputs, "boxes");
    const FieldTensor* masks = config_.masks ? &ragged_field(inputs, "masks") : nullptr;
    const std::vector<Extent> sizes = shown_extents(inputs.on_host("extent"));
    const torch::Tensor host = boxes.on_host();
    std::vector<models::DetectionTarget> all;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const int64_t from = boxes.offsets[i], count = boxes.offsets[i + 1] - from;
      const torch::Tensor rows = host.narrow(0, from, count);
      models::DetectionTarget target{rows.slice(1, 0, 4), rows.select(1, 4).to(torch::kInt64), {}};
      // Crop to the image: the padding is not part of it and must not count as 0.
      if (masks)
        target.masks = masks->on_host()
                           .narrow(0, masks->offsets[i], count)
                           .slice(1, 0, sizes[i].height)
                           .slice(2, 0, sizes[i].width);
      all.push_back(target);
    }
    return all;
  }

  // Converts the detections of one image to objects in pixels of the original image.
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

  std::vector<torch::Tensor> pyramid_of(const torch::Tensor& images, const models::Context& context = {}) {
    return detector_->pyramid(backbone_->features(images, maps_.blocks, context));
  }

  DetectConfig config_;
  BackboneMaps maps_;
  std::shared_ptr<models::Detector> detector_;
};

// Swaps left and right of the boxes if the view is mirrored.
torch::Tensor unmirrored(const torch::Tensor& boxes, const ViewedImage& view) {
  if (!view.mirrored) return boxes;
  const auto width = static_cast<double>(view.shown.width);
  return torch::stack(
      {width - boxes.select(1, 2), boxes.select(1, 1), width - boxes.select(1, 0), boxes.select(1, 3)}, 1);
}

// Pools the detections of all views and suppresses overlaps. Then runs every view's mask head on the kept
// boxes and averages the masks (detectron2's GeneralizedRCNNWithTTA).
std::vector<FoundObject> Detect::find_in_views(const std::vector<ViewedImage>& views, Extent size,
                                               double score) {
  detector_->set_limits(score, config_.most);
  const auto factors = [&](const ViewedImage& view, const torch::Tensor& boxes) {
    const double across = static_cast<double>(size.width) / static_cast<double>(view.shown.width),
                 down = static_cast<double>(size.height) / static_cast<double>(view.shown.height);
    return torch::tensor({across, down, across, down}, boxes.options());
  };
  std::vector<std::vector<torch::Tensor>> pyramids;
  std::vector<torch::Tensor> boxes, scores, labels;
  for (const ViewedImage& view : views) {
    pyramids.push_back(pyramid_of(view.pixels));
    const models::Detections found =
        detector_->detect(pyramids.back(), {view.pixels.size(2), view.pixels.size(3)}, {view.shown}).front();
    boxes.push_back(unmirrored(found.boxes, view) * factors(view, found.boxes));
    scores.push_back(found.scores), labels.push_back(found.labels);
  }
  models::Detections merged{torch::cat(boxes), torch::cat(scores), torch::cat(labels), {}};
  torch::Tensor keep = ops::nms(merged.boxes, merged.scores, merged.labels, config_.nms);
  keep = keep.slice(0, 0, std::min(config_.most, keep.size(0)));
  for (torch::Tensor* values : {&merged.boxes, &merged.scores, &merged.labels})
    *values = values->index_select(0, keep);
  if (config_.masks) {
    torch::Tensor sum;
    for (size_t i = 0; i < views.size(); ++i) {
      std::vector<models::Detections> seen{merged};
      seen[0].boxes = unmirrored(merged.boxes / factors(views[i], merged.boxes), views[i]);
      detector_->add_masks(pyramids[i], seen);
      const torch::Tensor masks = views[i].mirrored ? seen[0].masks.flip(2) : seen[0].masks;
      sum = sum.defined() ? sum + masks : masks;
    }
    merged.masks = sum / static_cast<double>(views.size());
  }
  return objects_of(merged, size, size);
}

}  // namespace

TaskKind detect_kind() {
  return task_kind<Detect, DetectConfig>(
      "detect", "objects: their boxes, classes and masks (Mask R-CNN, Cascade R-CNN, ViTDet)",
      {.command = "detect", .tables = {"classes"}, .captions = data::CaptionUse::none});
}

}  // namespace tessera::tasks
