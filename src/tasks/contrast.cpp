#include "tasks/contrast.h"

#include <torch/nn/modules/container/modulelist.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/clock.h"
#include "core/error.h"
#include "core/text.h"
#include "models/residual_block.h"
#include "tasks/losses.h"
#include "tasks/sample_rows.h"
#include "tasks/validation_pass.h"

namespace tessera::tasks {
namespace {

constexpr int64_t kVocabulary = 257;      // bytes plus 1; 0 fills up
constexpr double kLargestScale = 4.6052;  // log 100, as in CLIP

// The text tower and both projections, as one module: what the task adds to its backbone.
class Towers final : public torch::nn::Module {
 public:
  Towers(const ContrastConfig& config, int64_t image_width) {
    const int64_t dim = config.text_dim;
    logit_scale_ = register_parameter("logit_scale", nn::ones({}).mul_(-std::log(config.temperature)));
    token_embedding_ = register_parameter("text_token_embedding", nn::zeros({kVocabulary, dim}));
    positions_ = register_parameter("text_positions", nn::zeros({config.text_length, dim}));
    blocks_ = register_module("text_blocks", torch::nn::ModuleList());
    for (int64_t i = 0; i < config.text_depth; ++i)
      blocks_->push_back(std::make_shared<models::AttentionBlock>(
          models::ResidualBlockOptions{
              .dim = dim, .mlp = models::MlpKind::gelu, .hidden = 4 * dim, .index = i},
          config.text_heads, /*qkv_bias=*/true));
    norm_ = register_module("text_norm", nn::LayerNorm(dim));
    text_projection_ = register_module("text_projection", nn::Linear(dim, config.embed_dim, false));
    image_projection_ = register_module("image_projection", nn::Linear(image_width, config.embed_dim, false));
  }

  void initialise(uint64_t seed) {
    nn::initialise(*this, seed,
                   [](const std::string& name, const torch::Tensor& parameter, const nn::Filler& fill) {
                     if (name == "text_token_embedding" || name == "text_positions")
                       fill.normal(0.02);
                     else if (parameter.dim() == 2)
                       fill.normal(1 / std::sqrt(static_cast<double>(parameter.size(1))));
                   });
  }

  // Vectors of length 1, [batch, embed_dim].
  torch::Tensor image(const torch::Tensor& embedded) {
    return normalised(image_projection_->forward(embedded));
  }

  // Tokens int32 [batch, length].
  torch::Tensor text(const torch::Tensor& tokens, const models::Context& context) {
    torch::Tensor x = token_embedding_.index_select(0, tokens.to(torch::kInt64).flatten())
                          .view({tokens.size(0), tokens.size(1), -1}) +
                      positions_;
    for (const auto& block : *blocks_)
      x = std::dynamic_pointer_cast<models::AttentionBlock>(block)->forward(x, {.causal = true}, context);
    const torch::Tensor last =
        ((tokens != 0).sum(1) - 1).clamp_min(0).view({-1, 1, 1}).expand({-1, 1, x.size(2)});
    return normalised(text_projection_->forward(norm_(x.gather(1, last).squeeze(1))));
  }

  torch::Tensor scale() const { return logit_scale_.clamp_max(kLargestScale).exp(); }

  int64_t macs() const {
    const int64_t tokens = positions_.size(0);
    int64_t total = image_projection_->macs() + text_projection_->macs();
    for (const auto& block : *blocks_)
      total += std::dynamic_pointer_cast<models::AttentionBlock>(block)->macs(tokens);
    return total;
  }

 private:
  static torch::Tensor normalised(const torch::Tensor& x) {
    const torch::Tensor wide = x.scalar_type() == torch::kFloat64 ? x : x.to(torch::kFloat32);
    return wide / wide.norm(2, {1}, true).clamp_min(1e-12);
  }

  torch::Tensor logit_scale_, token_embedding_, positions_;
  torch::nn::ModuleList blocks_{nullptr};
  nn::LayerNorm norm_{nullptr};
  nn::Linear text_projection_{nullptr}, image_projection_{nullptr};
};

class Contrast final : public Task {
 public:
  explicit Contrast(const TaskSetup& setup)
      : config_(read_config<ContrastConfig>(setup.settings, "task")),
        preprocess_(setup.preprocess),
        augment_(setup.augment),
        train_(setup.train),
        validation_(setup.validation),
        spec_(setup.model),
        backbone_(setup.build_backbone(setup.model)) {
    if (config_.text_dim % config_.text_heads != 0)
      fail_usage("task.text_dim = ", config_.text_dim,
                 ", must be a multiple of task.text_heads = ", config_.text_heads);
    for (const auto& source : {train_, validation_}) check_captions(source.get());
    towers_ = setup.build([&] {
      auto towers = std::make_shared<Towers>(config_, backbone_->embed_width());
      if (setup.draws()) towers->initialise(setup.seed);
      return towers;
    });
  }

  std::vector<Part> parts() const override { return {{"", backbone_}, {"", towers_}}; }
  std::vector<BackbonePart> backbones() const override { return {{"", backbone_, spec_}}; }
  int64_t macs(int64_t side) const override { return backbone_->macs(side, side) + towers_->macs(); }

  std::vector<StreamSpec> streams() const override {
    const auto transform = [preprocess = preprocess_, augment = augment_,
                            length = config_.text_length](int64_t side) {
      data::Preprocess sized = preprocess;
      sized.size = side;
      return data::join_transforms(
          {data::make_train_transform(sized, augment), data::make_caption_transform(length, /*draw=*/true)});
    };
    return {{.name = "train", .source = train_, .transform = transform, .labelled = false}};
  }
  StreamSpec validation() const override {
    const auto transform = [preprocess = preprocess_, length = config_.text_length](int64_t side) {
      data::Preprocess sized = preprocess;
      sized.size = side;
      return data::join_transforms(
          {data::make_eval_transform(sized), data::make_caption_transform(length, /*draw=*/false)});
    };
    return {.name = "validation", .source = validation_, .transform = transform};
  }

  std::vector<MetricInfo> step_metrics() const override { return {{"accuracy", Unit::share}}; }
  bool whole_batch() const override { return true; }
  Loss loss(const Inputs& inputs, const models::Context& context, Collective& others) override;

  std::vector<std::unique_ptr<Evaluator>> evaluators() override {
    return one_evaluator([this](const EvaluateOptions& options) { return evaluate(options); });
  }
  MetricInfo main_metric() const override { return {"caption_accuracy", Unit::share}; }

  Findings evaluate(const EvaluateOptions& options);

 private:
  static void check_captions(const data::Source* source) {
    if (source && source->size() > 0 && source->read(0).annotation.captions.empty())
      fail_usage("task contrast needs captions, which ", source->describe(), " does not have");
  }

  ContrastConfig config_;
  data::Preprocess preprocess_;
  data::AugmentConfig augment_;
  std::shared_ptr<const data::Source> train_, validation_;
  models::ModelSpec spec_;
  std::shared_ptr<models::Backbone> backbone_;
  std::shared_ptr<Towers> towers_;
};

// Each process compares its own samples with those of all: rows and columns of the matrix of similarities.
Loss Contrast::loss(const Inputs& inputs, const models::Context& context, Collective& others) {
  const int64_t first = inputs.main().first, whole = inputs.main().whole;
  const torch::Tensor images = towers_->image(backbone_->embed(inputs.at("image"), context));
  const torch::Tensor texts = towers_->text(inputs.at("tokens"), context);
  const torch::Tensor all_images = others.gather(images, first, whole),
                      all_texts = others.gather(texts, first, whole);
  const torch::Tensor scale = towers_->scale();
  const torch::Tensor by_image = scale * images.mm(all_texts.t()), by_text = scale * texts.mm(all_images.t());
  const torch::Tensor own = torch::arange(first, first + inputs.size(),
                                          torch::TensorOptions(torch::kInt64).device(images.device()));
  const CrossEntropyOptions summed{.sum = true};
  const torch::Tensor right = by_image.detach().argmax(1).eq(own).to(torch::kFloat32).sum();
  return {(cross_entropy(by_image, own, summed) + cross_entropy(by_text, own, summed)) / 2,
          {{right, static_cast<double>(inputs.size())}}};
}

// Each image is compared with every distinct caption of the set: the share of images whose best one is their
// own.
Findings Contrast::evaluate(const EvaluateOptions& options) {
  const torch::NoGradGuard no_grad;
  set_training(parts(), false);
  const double began = steady_seconds();
  const auto loader = options.open(validation());
  SampleRows images(config_.embed_dim), captions(config_.text_length);
  each_batch(options, *loader, [&](data::Batch& loaded, int64_t before) {
    const StreamInputs batch = to_device(loaded, "validation", options.device, options.precision);
    {
      const AutocastScope autocast(options.device, options.precision);
      images.add(loaded, before, towers_->image(backbone_->embed(batch.at("image"))));
    }
    captions.add(loaded, before, batch.at("tokens").to(torch::kFloat32));
  });
  images.collect(options), captions.collect(options);
  Findings out{.samples = images.size()};
  out.broken = loader->bad_images();
  check(out.samples > 0, "there is no image to evaluate on");
  const auto [distinct, own, counts] = torch::unique_dim(captions.rows(), 0, true, true);
  torch::Tensor texts;
  {
    const AutocastScope autocast(options.device, options.precision);
    texts = towers_->text(distinct.to(torch::kInt32).to(options.device), {});
  }
  const torch::Tensor scores = images.rows().mm(texts.to(torch::kCPU, torch::kFloat32).t());
  const double right = scores.isnan().any().item<bool>()
                           ? std::numeric_limits<double>::quiet_NaN()
                           : scores.argmax(1).eq(own).to(torch::kFloat64).mean().item<double>();
  out.metrics = {{main_metric(), right}, {{"captions"}, static_cast<double>(distinct.size(0))}};
  out.seconds = steady_seconds() - began;
  return out;
}

}  // namespace

TaskKind contrast_kind() {
  return {
      .name = "contrast",
      .summary = "images and captions in one space, by two towers",
      .resolve =
          [](const Value& settings) { return write_config(read_config<ContrastConfig>(settings, "task")); },
      .keys = [] { return describe_config(ContrastConfig(), "task"); },
      .fit_model = [](Value& model, const Value&, const data::Source*) { model.set("classes", 0); },
      .make = [](const TaskSetup& setup) -> std::unique_ptr<Task> {
        return std::make_unique<Contrast>(setup);
      }};
}

}  // namespace tessera::tasks
