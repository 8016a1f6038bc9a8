#include "tasks/dense/detr.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "nn/boxes.h"
#include "ops/gpu.h"
#include "ops/roi_align.h"
#include "tasks/base/exported.h"
#include "tasks/base/layer_features.h"
#include "tasks/base/task_kind.h"
#include "tasks/dense/object_task.h"
#include "tasks/dense/set_loss.h"

namespace tessera::tasks {
namespace {

using models::Extent;
using torch::Tensor;

// prefix of the tensor names in the published files
constexpr const char* kBackbone = "backbone.0.body.";

// True in the padding right of and below each image, [batch, height, width].
// In main memory: the model decides by it what to compute.
Tensor padding_of(const std::vector<Extent>& shown, const Tensor& images) {
  const int64_t height = images.size(2), width = images.size(3);
  const Tensor padding = torch::ones({images.size(0), height, width}, torch::kBool);
  for (size_t i = 0; i < shown.size(); ++i)
    padding[static_cast<int64_t>(i)].slice(0, 0, shown[i].height).slice(1, 0, shown[i].width).fill_(false);
  return padding;
}

class DetrTask final : public ObjectTask {
 public:
  explicit DetrTask(const TaskSetup& setup) : DetrTask(setup, read_task<DetrTaskConfig>(setup.settings)) {}

  std::vector<Part> parts() const override { return {{kBackbone, backbone_}, {"", detr_}}; }
  std::vector<BackbonePart> backbones() const override { return {{kBackbone, backbone_, spec_}}; }
  std::vector<std::string> output_names() const override {
    return {"class_embed.weight", "class_embed.bias"};
  }
  std::string outputs() const override {
    return text("classifier of ", classes_.names.size(), " kinds of object");
  }
  int64_t macs(int64_t side) const override {
    const int64_t cell = maps_.strides.back();
    const int64_t cells = (side + cell - 1) / cell;
    return backbone_->macs(side, side) + detr_->macs(cells, cells);
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
  // Class scores, the last one for "nothing", and boxes as centre and size relative to the image.
  std::vector<ExportedPart> exported(int64_t side) override {
    const int64_t channels = models::input_channels(spec_.settings);
    return {
        exported_part("", {image_input(channels, side, side)}, {"logits", "boxes"}, [this](const auto& in) {
          const Tensor map = backbone_->features(in[0], maps_.blocks).at(0);
          const Tensor no_padding = torch::zeros({in[0].size(0), in[0].size(2), in[0].size(3)}, torch::kBool);
          const models::Detr::Objects found = detr_->forward(map, no_padding);
          return std::vector<Tensor>{found.logits[-1], found.boxes[-1]};
        })};
  }

 protected:
  std::vector<std::vector<FoundObject>> find_in_batch(const Tensor& images, const std::vector<Extent>& shown,
                                                      const std::vector<Extent>& sizes,
                                                      double score) override {
    const models::Detr::Objects found = objects(images, shown);
    std::vector<std::vector<FoundObject>> out;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      out.push_back(found_in(found.logits[-1][row], found.boxes[-1][row], sizes[i], score));
    }
    return out;
  }

  // Pools the objects of all views; of two that overlap by half in one class, keeps the more confident.
  std::vector<FoundObject> find_in_views(const std::vector<ViewedImage>& views, Extent size,
                                         double score) override {
    std::vector<FoundObject> all;
    for (const ViewedImage& view : views) {
      const models::Detr::Objects found = objects(view.pixels, {view.shown});
      for (FoundObject& object : found_in(found.logits[-1][0], found.boxes[-1][0], size, score)) {
        const auto width = static_cast<double>(size.width);
        if (view.mirrored)
          std::tie(object.left, object.right) = std::pair(width - object.right, width - object.left);
        all.push_back(std::move(object));
      }
    }
    const auto count = std::ssize(all);
    Tensor boxes = torch::empty({count, 4}, torch::kFloat64), scores = torch::empty({count}, torch::kFloat64),
           labels = torch::empty({count}, torch::kInt64);
    for (int64_t i = 0; i < count; ++i) {
      const FoundObject& object = all[static_cast<size_t>(i)];
      boxes[i] = torch::tensor({object.left, object.top, object.right, object.bottom}, torch::kFloat64);
      scores[i] = object.score, labels[i] = object.label;
    }
    const Tensor keep = ops::nms(boxes, scores, labels, kSameObject);
    std::vector<FoundObject> out;
    for (int64_t k = 0; k < std::min(config_.most, keep.size(0)); ++k)
      out.push_back(std::move(all[static_cast<size_t>(keep[k].item<int64_t>())]));
    return out;
  }

 private:
  static constexpr double kSameObject = 0.5;  // overlap of one object in two views, as in mmdet

  DetrTask(const TaskSetup& setup, const DetrTaskConfig& config)
      : ObjectTask(setup, "task detr",
                   {.shortest = config.shortest,
                    .longest = config.longest,
                    .jitter = config.jitter,
                    .flip = config.flip,
                    .masks = false},
                   config.score),
        config_(config),
        maps_(maps_of(spec_, {backbone_->block_count() - 1}, backbone_->block_count())) {
    detr_ = setup.build([&] {
      auto detr = std::make_shared<models::Detr>(config_, maps_.widths.back(), std::ssize(classes_.names));
      if (setup.draws()) detr->initialise(setup.seed);
      return detr;
    });
  }

  SetCosts costs() const {
    return {.label = config_.label_cost,
            .box = config_.box_cost,
            .overlap = config_.overlap_cost,
            .no_object = config_.no_object};
  }

  models::Detr::Objects objects(const Tensor& images, const std::vector<Extent>& shown,
                                const models::Context& context = {}) {
    const Tensor map = backbone_->features(images, maps_.blocks, context).at(0);
    return detr_->forward(map, padding_of(shown, images));
  }

  // Converts boxes in pixels of the batch's images to centres and sizes relative to each image's extent.
  std::vector<SetTargets> targets(const Inputs& inputs, const std::vector<Extent>& shown) const {
    const FieldTensor& boxes = ragged_field(inputs, "boxes");
    const Tensor host = boxes.on_host();
    std::vector<SetTargets> all;
    for (size_t i = 0; i < shown.size(); ++i) {
      const Tensor rows = host.narrow(0, boxes.offsets[i], boxes.offsets[i + 1] - boxes.offsets[i]);
      // In a dry pass, which only measures memory, images have no extent.
      const auto height = static_cast<double>(std::max<int64_t>(shown[i].height, 1)),
                 width = static_cast<double>(std::max<int64_t>(shown[i].width, 1));
      const Tensor size = torch::tensor({width, height, width, height}, rows.options());
      all.push_back(
          {rows.select(1, 4).to(torch::kInt64), nn::centres_of_corners(rows.slice(1, 0, 4) / size)});
    }
    return all;
  }

  // Returns the targets of a batch on a device, in two copies.
  static std::vector<SetTargets> sent(std::vector<SetTargets> targets, torch::Device device) {
    if (device.is_cpu() || targets.empty()) return targets;
    std::vector<Tensor> labels, boxes;
    for (const SetTargets& one : targets) labels.push_back(one.labels), boxes.push_back(one.boxes);
    const Tensor all_labels = ops::sent_to(device, torch::cat(labels)),
                 all_boxes = ops::sent_to(device, torch::cat(boxes));
    int64_t at = 0;
    for (SetTargets& one : targets) {
      const int64_t count = one.labels.size(0);
      one = {all_labels.narrow(0, at, count), all_boxes.narrow(0, at, count)}, at += count;
    }
    return targets;
  }

  // Returns the objects of one image, best first, in pixels of the original image.
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
  BackboneMaps maps_;
  std::shared_ptr<models::Detr> detr_;
};

// The published code divides boxes by the objects of all processes, and classes by the weights of each
// process. Here both are summed over all samples computed at a time, so the loss does not depend on the
// number of processes.
Loss DetrTask::loss(const Inputs& inputs, const models::Context& context, Collective& others) {
  const Tensor& images = inputs.at("image");
  const std::vector<Extent> shown = shown_extents(inputs.on_host("extent"));
  const std::vector<SetTargets> wanted = sent(targets(inputs, shown), images.device());
  const models::Detr::Objects all = objects(images, shown, context);
  const int64_t layers = all.logits.size(0);
  const auto exact = [](const Tensor& x) {
    return x.scalar_type() == torch::kFloat64 ? x : x.to(torch::kFloat32);
  };
  Loss out;
  double count = 0, label_share = 0, box_share = 0;  // samples over all processes; factors of the sums
  for (int64_t layer = config_.auxiliary ? 0 : layers - 1; layer < layers; ++layer) {
    const Tensor logits = exact(all.logits[layer]), boxes = exact(all.boxes[layer]);
    const SetLoss part = set_loss(logits, boxes, wanted, match_sets(logits, boxes, wanted, costs()), costs());
    if (!out.sum.defined()) {  // every decoder layer matches the same number of objects
      const Tensor totals = others.sum(torch::tensor(
          {static_cast<double>(images.size(0)), part.label_weight, static_cast<double>(part.objects)},
          torch::kFloat64));
      count = totals[0].item<double>();
      if (const double weight = totals[1].item<double>(); weight > 0) label_share = count / weight;
      box_share = count / std::max(1.0, totals[2].item<double>());
    }
    const Tensor label = part.label * label_share, box = part.box * box_share,
                 overlap = part.overlap * box_share;
    const Tensor loss = config_.label_cost * label + config_.box_cost * box + config_.overlap_cost * overlap;
    out.sum = out.sum.defined() ? out.sum + loss : loss;
    if (layer + 1 < layers) continue;
    const auto own = static_cast<double>(images.size(0));
    for (const Tensor& term : {label, box, overlap, part.label_error * own})
      out.terms.push_back({term.detach(), own});
  }
  return out;
}

}  // namespace

TaskKind detr_kind() {
  return task_kind<DetrTask, DetrTaskConfig>(
      "detr", "objects as a set that a Transformer predicts (DETR)",
      {.command = "detect", .tables = {"classes"}, .captions = data::CaptionUse::none});
}

}  // namespace tessera::tasks
