#include "tasks/dense/segment.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "data/base/class_names.h"
#include "data/transforms/mask_labels.h"
#include "models/base/family.h"
#include "models/base/graphed.h"
#include "models/heads/feature_pyramid.h"
#include "models/heads/segmentation_heads.h"
#include "ops/gpu.h"
#include "tasks/base/exported.h"
#include "tasks/base/layer_features.h"
#include "tasks/base/task_kind.h"
#include "tasks/base/validation_pass.h"

namespace tessera::tasks {
namespace {

constexpr size_t kShown = 8;             // validation images in the report, and as many of the worst
constexpr int64_t kEvaluatedAtOnce = 4;  // images in a validation batch, which are large

std::vector<std::string> names_in(const Value& metadata) {
  std::vector<std::string> names;
  if (const Value* list = metadata.find("class_names"); list && list->is_array())
    for (const Value& name : list->as_array())
      if (name.is_string()) names.push_back(name.as_string());
  return names;
}

class Segment final : public Task, public Segmenter {
 public:
  explicit Segment(const TaskSetup& setup)
      : config_(read_task<SegmentConfig>(setup.settings)),
        preprocess_(setup.preprocess),
        augment_(setup.augment),
        train_(setup.train),
        validation_(setup.validation),
        spec_(setup.model),
        normalisation_(setup.preprocess.mean, setup.preprocess.std),
        backbone_(setup.build_backbone(setup.model)),
        maps_(maps_of(setup.model, config_.blocks, backbone_->block_count())) {
    describe_classes(setup);
    check_augment();
    build_heads(setup);
    check_inference(inference());
  }

  std::vector<Part> parts() const override {
    std::vector<Part> parts = {{"", backbone_}};
    if (neck_) parts.push_back({"neck.", neck_});
    parts.push_back({"decode_head.", head_});
    if (auxiliary_) parts.push_back({"auxiliary_head.", auxiliary_});
    return parts;
  }
  std::vector<BackbonePart> backbones() const override { return {{"", backbone_, spec_}}; }
  bool takes_outputs_of(const Value& metadata) const override { return names_in(metadata) == names_; }
  std::vector<std::string> output_names() const override {
    std::vector<std::string> names;
    for (const char* head : {"decode_head.", "auxiliary_head."})
      for (const char* name : {"conv_seg.weight", "conv_seg.bias"})
        if (auxiliary_ || head[0] == 'd') names.push_back(std::string(head) + name);
    return names;
  }
  std::string outputs() const override {
    return text("head for masks of ", names_.empty() ? config_.classes : std::ssize(names_), " classes");
  }
  int64_t macs(int64_t side) const override;

  std::vector<StreamSpec> streams() const override;
  StreamSpec validation() const override {
    return {.name = "validation",
            .source = validation_,
            .transform = [exif = preprocess_.apply_exif](int64_t) { return data::make_whole_masks(exif); },
            .batch_size = kEvaluatedAtOnce,
            .labelled = false};
  }
  void prepare(std::span<data::Batch> batches, const StepKey& key) const override;

  std::vector<MetricInfo> step_metrics() const override { return {{"pixel_accuracy", Unit::share}}; }
  double weight(const Inputs& inputs) const override {
    return inputs.on_host("divisor").sum().item<double>();
  }
  bool weight_counts_samples() const override { return false; }
  Loss loss(const Inputs& inputs, const models::Context& context, Collective& others) override;

  std::vector<std::unique_ptr<Evaluator>> evaluators() override {
    return one_evaluator(*this, [this](const EvaluateOptions& options) { return evaluate(options); });
  }
  MetricInfo main_metric() const override { return {"miou", Unit::share}; }
  Value metadata() const override {
    Value out;
    out.set("class_names", Value::Array(names_.begin(), names_.end()));
    return out;
  }
  std::string metadata_conflict(const Value& stored) const override {
    const std::vector<std::string> then = names_in(stored);
    return then == names_ ? ""
                          : text(train_ ? train_->describe() : "", ": the masks have ", names_.size(),
                                 " classes, those of the run were ", then.size(),
                                 then.size() == names_.size() ? " others" : "");
  }
  std::vector<Prediction> predict(const torch::Tensor& images, int64_t most) override;

  const std::vector<std::string>& mask_classes() const override { return names_; }
  SegmentInference inference() const override;
  void set_inference(const SegmentInference& how) override { asked_ = how; }
  Image segment(const Image& picture, const SegmentInference& how) override;

  Findings evaluate(const EvaluateOptions& options);
  // Scores of the classes on the grid of the head, [batch, classes, rows, columns].
  std::vector<ExportedPart> exported(int64_t side) override {
    const int64_t channels = models::input_channels(spec_.settings);
    return {exported_part("", {image_input(channels, side, side)}, {"scores"}, [this](const auto& in) {
      return std::vector<torch::Tensor>{head_->forward(head_maps(in[0], {}))};
    })};
  }

 private:
  Image segment_or_not(const Image& picture, const SegmentInference& how, bool& finite);
  void describe_classes(const TaskSetup& setup);
  void check_augment() const;
  void build_heads(const TaskSetup& setup);
  std::vector<torch::Tensor> head_maps(const torch::Tensor& images, const models::Context& context,
                                       const models::GatherRows& gather = {}) {
    const std::vector<torch::Tensor> maps = backbone_->features(images, maps_.blocks, context);
    return neck_ ? neck_->forward(maps, gather) : maps;
  }
  torch::Tensor pixel_loss(const torch::Tensor& scores, const torch::Tensor& labels) const;
  int64_t classes() const { return names_.empty() ? config_.classes : std::ssize(names_); }

  SegmentConfig config_;
  data::Preprocess preprocess_;
  data::AugmentConfig augment_;
  std::shared_ptr<const data::Source> train_, validation_;
  models::ModelSpec spec_;
  data::Normalisation normalisation_;
  std::shared_ptr<models::Backbone> backbone_;
  BackboneMaps maps_;
  std::vector<double> cells_;  // pixels per cell of each map that the heads read
  std::shared_ptr<models::MapNeck> neck_;
  std::shared_ptr<models::SegmentationHead> head_, auxiliary_;
  models::GraphedPass graphs_;      // of windows without gradients
  std::vector<std::string> names_;  // class names
  std::optional<SegmentInference> asked_;
};

// --- setup

// Takes the classes from the data, or else from the weights.
void Segment::describe_classes(const TaskSetup& setup) {
  const std::vector<std::string> stored = names_in(setup.metadata);
  if (train_) {
    names_ = data::require_masks(*train_, "task segment").mask_classes();
    if (validation_) data::require_same_masks(*train_, *validation_);
  } else {
    names_ = stored;
    if (validation_) {
      const std::vector<std::string>& theirs =
          data::require_masks(*validation_, "task segment").mask_classes();
      if (names_.empty()) names_ = theirs;
      const std::string difference =
          data::first_difference(names_, "the model", theirs, validation_->describe());
      if (!difference.empty()) fail(setup.file, ": ", difference);
    }
  }
  if (!config_.class_weights.empty() && std::ssize(config_.class_weights) != classes())
    fail_usage("task.class_weights has ", config_.class_weights.size(), " numbers, the masks have ",
               classes(), " classes");
}

void Segment::check_augment() const {
  if (!augment_.auto_augment.empty() || augment_.three_augment || augment_.erase.probability > 0)
    fail_usage(
        "task segment cuts and colours images by itself: augment.auto_augment, augment.three_augment and "
        "augment.erase do not go with masks");
}

void Segment::build_heads(const TaskSetup& setup) {
  const bool neck = config_.neck == NeckKind::automatic ? !maps_.stages : config_.neck != NeckKind::none;
  if (neck && config_.factors.size() != maps_.blocks.size())
    fail_usage("task.factors has ", config_.factors.size(), " numbers for the maps of ", maps_.blocks.size(),
               " blocks");
  if (config_.auxiliary_weight > 0 && config_.auxiliary_index >= std::ssize(maps_.blocks))
    fail_usage("task.auxiliary_index = ", config_.auxiliary_index, ", there are ", maps_.blocks.size(),
               " maps, counted from 0");
  std::vector<int64_t> widths = maps_.widths;
  cells_.assign(maps_.strides.begin(), maps_.strides.end());
  const auto drawn = [&](auto made) {
    if (setup.draws()) made->initialise(setup.seed);
    return made;
  };
  if (neck) {
    const int64_t width = config_.neck_channels > 0 ? config_.neck_channels : widths.front();
    neck_ = setup.build([&]() -> std::shared_ptr<models::MapNeck> {
      if (config_.neck == NeckKind::multilevel)
        return drawn(std::make_shared<models::MultiLevelNeck>(widths, width, config_.factors));
      return drawn(std::make_shared<models::Feature2Pyramid>(widths.front(), config_.factors));
    });
    widths = neck_->widths();
    for (size_t i = 0; i < cells_.size(); ++i) cells_[i] /= config_.factors[i];
  }
  const auto fcn = [&](int64_t index, int64_t channels, int64_t convolutions) {
    return drawn(
        std::make_shared<models::FcnHead>(models::FcnHeadOptions{.in = widths.at(static_cast<size_t>(index)),
                                                                 .channels = channels,
                                                                 .classes = classes(),
                                                                 .index = index,
                                                                 .convolutions = convolutions,
                                                                 .dropout = config_.dropout}));
  };
  const int64_t last = std::ssize(widths) - 1;
  head_ = setup.build([&]() -> std::shared_ptr<models::SegmentationHead> {
    if (config_.head == SegmentHeadKind::fcn) return fcn(last, config_.channels, 1);
    if (config_.head == SegmentHeadKind::linear) return fcn(last, widths.back(), 0);
    return drawn(std::make_shared<models::UperHead>(models::UperHeadOptions{.in = widths,
                                                                            .channels = config_.channels,
                                                                            .classes = classes(),
                                                                            .pool_sides = config_.pool_sides,
                                                                            .dropout = config_.dropout}));
  });
  if (config_.auxiliary_weight > 0)
    auxiliary_ = setup.build([&]() -> std::shared_ptr<models::SegmentationHead> {
      return fcn(config_.auxiliary_index, config_.auxiliary_channels, config_.auxiliary_convolutions);
    });
}

int64_t Segment::macs(int64_t side) const {
  std::vector<std::pair<int64_t, int64_t>> sizes;
  for (const double cell : cells_) {
    const auto cells = static_cast<int64_t>(static_cast<double>(side) / cell);
    sizes.emplace_back(cells, cells);
  }
  const int64_t grid = side / maps_.strides.front();
  return backbone_->macs(side, side) + (neck_ ? neck_->macs(grid, grid) : 0) + head_->macs(sizes) +
         (auxiliary_ ? auxiliary_->macs(sizes) : 0);
}

// --- input

std::vector<StreamSpec> Segment::streams() const {
  data::MaskTraining options;
  options.crop = {.scale = config_.scale,
                  .ratio = config_.ratio,
                  .most_of_one_class = config_.most_of_one_class,
                  .flip = augment_.flip};
  options.photometric = config_.photometric;
  options.color_jitter = augment_.color_jitter;
  options.jitter_probability = config_.jitter_probability;
  options.interpolation = preprocess_.interpolation;
  const auto transform = [preprocess = preprocess_, options](int64_t side) {
    return data::make_mask_training(preprocess, options, side, side);
  };
  return {{.name = "train", .source = train_, .transform = transform, .labelled = false}};
}

// Adds the fields "divisor" and "labelled", f64 [] each: the sample's part of the loss divisor, and its
// labelled pixels.
void Segment::prepare(std::span<data::Batch> batches, const StepKey&) const {
  data::Batch& batch = batches[0];
  const auto mask = batch.values<uint8_t>("mask");
  const size_t pixels = batch.size > 0 ? mask.size() / static_cast<size_t>(batch.size) : 0;
  std::vector<double> divisors, counts;
  for (size_t sample = 0; sample < static_cast<size_t>(batch.size); ++sample) {
    double labelled = 0, weighted = 0;
    for (const uint8_t label : mask.subspan(sample * pixels, pixels)) {
      if (label == data::kIgnoredPixel) continue;
      labelled += 1;
      weighted += config_.class_weights.empty() || label >= config_.class_weights.size()
                      ? 1
                      : config_.class_weights[label];
    }
    counts.push_back(labelled);
    divisors.push_back(!config_.class_weights.empty()              ? weighted
                       : config_.divisor == PixelDivisor::labelled ? labelled
                                                                   : static_cast<double>(pixels));
  }
  const auto add = [&](const char* name, const std::vector<double>& values) {
    const auto column = batch.add({name, DType::f64, {}}).values<double>();
    std::copy(values.begin(), values.end(), column.begin());
  };
  add("divisor", divisors), add("labelled", counts);
}

// --- a step

torch::Tensor Segment::pixel_loss(const torch::Tensor& scores, const torch::Tensor& labels) const {
  torch::Tensor weights;
  if (!config_.class_weights.empty())
    weights = ops::kept_on(scores.device(), torch::tensor(config_.class_weights, torch::kFloat64));
  const torch::Tensor losses = pixel_cross_entropy(scores, labels, data::kIgnoredPixel, weights);
  if (config_.hard_pixels == 0) return losses.sum();
  const torch::Tensor plain =
      weights.defined() ? pixel_cross_entropy(scores.detach(), labels, data::kIgnoredPixel) : losses;
  const torch::Tensor kept =
      keep_hard_pixels(plain, labels, data::kIgnoredPixel, config_.hard_threshold, config_.hard_pixels);
  return weights.defined() ? (losses * (kept != 0)).sum() : kept.sum();
}

Loss Segment::loss(const Inputs& inputs, const models::Context& context, Collective& others) {
  const torch::Tensor &images = inputs.at("image"), labels = inputs.at("mask").to(torch::kInt64);
  const StreamInputs& main = inputs.main();
  models::GatherRows gather;
  if (config_.sync_batch_norm && main.whole > main.size)
    gather = [&](const torch::Tensor& rows) { return others.gather(rows, main.first, main.whole); };
  const std::vector<torch::Tensor> maps = head_maps(images, context, gather);
  const torch::Tensor scores = head_->forward(maps, context, gather);
  torch::Tensor sum = pixel_loss(scores, labels);
  if (auxiliary_)
    sum = sum + pixel_loss(auxiliary_->forward(maps, context, gather), labels) * config_.auxiliary_weight;
  const PixelCounts counts = count_right_pixels(scores.detach(), labels, data::kIgnoredPixel);
  return {
      sum,
      {{counts.right.to(torch::kFloat32), std::max(1.0, inputs.on_host("labelled").sum().item<double>())}}};
}

// --- inference

SegmentInference Segment::inference() const {
  if (asked_) return *asked_;
  SegmentInference how;
  how.slide = config_.test_mode == TestMode::slide;
  how.crop = config_.test_crop > 0 ? config_.test_crop : preprocess_.size;
  how.stride = config_.test_stride > 0 ? config_.test_stride : std::max<int64_t>(1, how.crop * 2 / 3);
  how.scale = config_.test_scale.empty() ? config_.scale : config_.test_scale;
  how.scales = config_.test_scales;
  how.flip = config_.test_flip;
  return how;
}

Image Segment::segment_or_not(const Image& picture, const SegmentInference& how, bool& finite) {
  const auto score = [&](const torch::Tensor& images) {
    return score_padded(images, maps_.unit, [&](const torch::Tensor& padded) {
      torch::nn::Module* const last = head_.get();
      return graphs_.run(
          padded, {backbone_.get(), neck_ ? neck_.get() : last, last},
          [this](const torch::Tensor& in) { return head_->forward(head_maps(in, {})).to(torch::kFloat32); });
    });
  };
  const PixelModel model{.score = score,
                         .normalisation = &normalisation_,
                         .options = backbone_->parameters().at(0).options().requires_grad(false),
                         .classes = classes(),
                         .unit = static_cast<int>(maps_.unit),
                         .interpolation = data::parse_interpolation(preprocess_.interpolation)};
  return segment_image(model, picture, how, finite);
}

Image Segment::segment(const Image& picture, const SegmentInference& how) {
  bool finite = true;
  Image mask = segment_or_not(picture, how, finite);
  check(finite, "the model's scores are not finite: its training went astray, or the file is damaged");
  return mask;
}

// Returns the classes that fill the most pixels of each image.
std::vector<Prediction> Segment::predict(const torch::Tensor& images, int64_t most) {
  const torch::Tensor best =
      score_padded(images, maps_.unit,
                   [&](const torch::Tensor& padded) { return head_->forward(head_maps(padded, {})); })
          .argmax(1)
          .cpu();
  std::vector<Prediction> out;
  for (int64_t i = 0; i < images.size(0); ++i) {
    const torch::Tensor counts = best[i].flatten().bincount({}, classes()).to(torch::kFloat64);
    const auto [shares, indices] = (counts / counts.sum()).topk(std::min(most, classes()));
    Prediction lines;
    for (int64_t rank = 0; rank < shares.size(0); ++rank) {
      const double share = shares[rank].item<double>();
      const int64_t index = indices[rank].item<int64_t>();
      if (share == 0) break;
      const std::string name =
          index < std::ssize(names_) ? names_[static_cast<size_t>(index)] : text("class ", index);
      lines.push_back({{{"class", name}, {"index", index}, {"share", share}},
                       fixed(100 * share, 2) + " % of the pixels  " + name});
    }
    out.push_back(std::move(lines));
  }
  return out;
}

// --- evaluation

// Extracts one image of a ragged batch, or its mask.
Image image_in(const data::Column& column, size_t sample, const int64_t* extent, int channels) {
  Image image(static_cast<int>(extent[1]), static_cast<int>(extent[0]), channels);
  const auto first = static_cast<size_t>(column.offsets[sample]) * static_cast<size_t>(channels);
  std::memcpy(image.pixels.data(), column.memory.data() + first, image.pixels.size());
  return image;
}

// Keeps the first images of the set and those with the fewest correct pixels.
void keep_worth_seeing(std::vector<SegmentedSample>& kept, SegmentedSample sample) {
  kept.push_back(std::move(sample));
  if (kept.size() <= 2 * kShown) return;
  const auto best = std::max_element(kept.begin() + kShown, kept.end(),
                                     [](const auto& a, const auto& b) { return a.right < b.right; });
  kept.erase(best);
}

// Sums the counts of all processes; they are integers, so the order does not matter.
void add_counts_of_all(const EvaluateOptions& options, eval::SegmentationMeter& meter, int64_t& samples) {
  if (!options.gather) return;
  std::vector<int64_t> mine = meter.confusion();
  mine.push_back(samples);
  const std::string bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(int64_t));
  std::vector<int64_t> sum(mine.size(), 0), part(mine.size());
  for (const std::string& others : options.gather(bytes)) {
    check(others.size() == bytes.size(), "a process counted the pixels of other classes");
    std::memcpy(part.data(), others.data(), others.size());
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  samples = sum.back();
  sum.pop_back();
  std::vector<int64_t> others = sum;
  for (size_t i = 0; i < others.size(); ++i) others[i] -= meter.confusion()[i];
  meter.add_counts(others);
}

Findings Segment::evaluate(const EvaluateOptions& options) {
  eval::SegmentationMeter meter(classes());
  std::vector<SegmentedSample> shown;
  const SegmentInference how = inference();
  int64_t samples = 0;
  bool finite = true;
  Findings out = evaluate_each(options, validation(), [&](data::Batch& batch) {
    for (size_t i = 0; i < static_cast<size_t>(batch.size); ++i) {
      // The loader substitutes other samples for broken images.
      if (batch.indices[i] != batch.first + static_cast<int64_t>(i)) continue;
      const int64_t* extent = batch.values<int64_t>("extent").data() + 2 * i;
      const Image picture = image_in(batch.at("pixels"), i, extent, 3),
                  labels = image_in(batch.at("mask"), i, extent, 1);
      Image predicted;
      {
        const AutocastScope autocast(options.device, options.precision);
        predicted = segment_or_not(picture, how, finite);
      }
      meter.add(predicted.pixels, labels.pixels, data::kIgnoredPixel);
      ++samples;
      if (!options.wants("pictures")) continue;
      eval::SegmentationMeter one(classes());
      one.add(predicted.pixels, labels.pixels, data::kIgnoredPixel);
      keep_worth_seeing(shown, {batch.indices[i], one.scores().pixel_accuracy, std::move(predicted)});
    }
  });
  add_counts_of_all(options, meter, samples);
  require_samples(samples);
  eval::SegmentationScores scores = meter.scores();
  const bool labelled = !std::isnan(scores.pixel_accuracy);
  if (!finite) scores.mean_iou = std::numeric_limits<double>::quiet_NaN();
  out.samples = samples;
  out.metrics = {{main_metric(), scores.mean_iou, labelled || !finite},
                 {{"mean_accuracy", Unit::share}, scores.mean_accuracy, labelled},
                 {{"pixel_accuracy", Unit::share}, scores.pixel_accuracy, labelled}};
  if (const std::string line = classes_without_pixels(scores, names_); labelled && !line.empty())
    out.notes.push_back(validation_->describe() + ": " + line);
  if (options.wants("pictures")) out.blocks.emplace_back(segmented_pictures(shown, *validation_, names_));
  if (options.wants("confusion")) out.blocks.emplace_back(pixel_confusion(meter, names_));
  if (options.wants("classes") || options.wants("confusion"))
    out.blocks.emplace_back(class_table(scores, names_));
  return out;
}

}  // namespace

void SegmentConfig::check() const {
  if (scale.size() != 2) fail_usage("task.scale has ", scale.size(), " numbers, must be two sides in pixels");
  if (!test_scale.empty() && test_scale.size() != 2)
    fail_usage("task.test_scale has ", test_scale.size(), " numbers, must be two sides in pixels, or none");
  if (ratio.size() != 2 || ratio[0] > ratio[1])
    fail_usage("task.ratio must be two numbers, the smaller first");
  if (test_scales.empty()) fail_usage("task.test_scales is empty, must have a factor at least, such as 1.0");
  if (pool_sides.empty() && head == SegmentHeadKind::uper)
    fail_usage("task.pool_sides is empty, UperNet pools to a side at least");
}

TaskKind segment_kind() {
  return task_kind<Segment, SegmentConfig>(
      "segment", "semantic segmentation: the class of every pixel",
      {.command = "segment", .tables = {"classes"}, .reads_masks = true, .captions = data::CaptionUse::none});
}

}  // namespace tessera::tasks
