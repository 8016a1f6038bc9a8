#include "tasks/pretrain/mae.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "models/base/capability.h"
#include "models/base/encoder.h"
#include "models/base/family.h"
#include "models/base/model.h"
#include "nn/init.h"
#include "nn/patch_embed.h"
#include "ops/gpu.h"
#include "tasks/base/exported.h"
#include "tasks/base/report_blocks.h"
#include "tasks/base/sample_rows.h"
#include "tasks/base/task_kind.h"
#include "tasks/base/validation_pass.h"
#include "tasks/pretrain/patch_tokens.h"

namespace tessera::tasks {
namespace {

constexpr int64_t kReconstructions = 8;  // images shown in the report

class Mae final : public Task {
 public:
  explicit Mae(const TaskSetup& setup)
      : config_(read_task<MaeConfig>(setup.settings)),
        preprocess_(setup.preprocess),
        augment_(setup.augment),
        train_(setup.train),
        validation_(setup.validation),
        spec_(setup.model),
        backbone_(setup.build_backbone(setup.model)),
        encoder_(&models::require<models::TokenEncoder>(*backbone_, spec_.family, "task mae")) {
    if (const std::string why = encoder_->keep_refusal(); !why.empty())
      fail_usage("task mae skips patches, but ", spec_.name, " needs all: ", why);
    models::require_colours(spec_.settings, "task mae");
    const models::Extent image = models::extent_of(*spec_.settings.find("image_size"), "image_size");
    patch_ = spec_.settings.find("patch_size")->as_int();
    rows_ = image.height / patch_, columns_ = image.width / patch_;
    if (config_.decoder_dim % config_.decoder_heads != 0 || config_.decoder_dim % 4 != 0)
      fail_usage("task.decoder_dim = ", config_.decoder_dim,
                 ", must be a multiple of 4 and of task.decoder_heads = ", config_.decoder_heads);
    models::check_tokens(rows_, columns_, config_.decoder_dim);
    visible_ = static_cast<int64_t>(static_cast<double>(patches()) * (1 - config_.mask_ratio));
    if (visible_ < 1 || visible_ == patches())
      fail_usage("task.mask_ratio = ", shortest(config_.mask_ratio), " ",
                 visible_ < 1 ? "keeps none of the " : "masks none of the ", patches(), " patches");
    if (config_.late_class_token && backbone_->named_parameters().contains("cls_token"))
      fail_usage("task.late_class_token: ", spec_.name, " has a class token of its own");
    for (const int64_t side : setup.sides)
      if (side != image.height || side != image.width)
        fail_usage("train.sizes holds ", side,
                   ": task mae takes images of model.image_size = ", image.height);
    decoder_ = setup.build([&] {
      auto decoder = std::make_shared<models::MaeDecoder>(
          models::MaeDecoderOptions{.dim = config_.decoder_dim,
                                    .depth = config_.decoder_depth,
                                    .heads = config_.decoder_heads,
                                    .encoder_width = encoder_->token_width(),
                                    .patch = patch_,
                                    .rows = rows_,
                                    .columns = columns_,
                                    .late_class_token = config_.late_class_token,
                                    .rows_first = config_.late_class_token});
      if (setup.draws()) decoder->initialise(setup.seed);
      return decoder;
    });
    if (config_.fuse.empty()) return;
    for (size_t i = 0; i < config_.fuse.size(); ++i)
      if (config_.fuse[i] + 1 >= backbone_->block_count() ||
          (i > 0 && config_.fuse[i] <= config_.fuse[i - 1]))
        fail_usage("task.fuse holds ", config_.fuse[i],
                   ": it must be rising, of the blocks before the last, 0 to ", backbone_->block_count() - 2);
    fusion_ = setup.build([&] {
      auto fusion = std::make_shared<LevelFusion>(config_.fuse, encoder_->token_width());
      if (setup.draws()) fusion->initialise(setup.seed);
      return fusion;
    });
  }

  std::vector<Part> parts() const override {
    std::vector<Part> parts = {{"", backbone_}, {"", decoder_}};
    if (fusion_) parts.push_back({"", fusion_});
    return parts;
  }
  std::vector<BackbonePart> backbones() const override { return {{"", backbone_, spec_}}; }
  std::vector<ExportedPart> exported(int64_t side) override {
    return {exported_features(backbones()[0], side)};
  }
  // The encoder runs only on the visible patches.
  int64_t macs(int64_t side) const override {
    return backbone_->macs(side, side) * visible_ / patches() + decoder_->macs() +
           (fusion_ ? fusion_->macs(visible_) : 0);
  }

  std::vector<StreamSpec> streams() const override {
    return {training_images(train_, preprocess_, augment_)};
  }
  StreamSpec validation() const override { return validation_images(validation_, preprocess_); }
  // Adds the field "order": each sample's visible patches, then the masked ones.
  void prepare(std::span<data::Batch> batches, const StepKey& key) const override {
    draw_orders(batches[0], patches(), "mask", key);
  }

  Loss loss(const Inputs& inputs, const models::Context& context, Collective&) override {
    const torch::Tensor &images = inputs.at("image"), &order = inputs.at("order");
    return {each_loss(predict_pixels(images, order, context), images, order).sum(), {}};
  }
  bool repeats_its_calls() const override { return true; }

  std::vector<std::unique_ptr<Evaluator>> evaluators() override {
    return one_evaluator(*this, [this](const EvaluateOptions& options) { return evaluate(options); });
  }
  MetricInfo main_metric() const override { return {"loss", Unit::number, false}; }

  Findings evaluate(const EvaluateOptions& options);

 private:
  torch::Tensor predict_pixels(const torch::Tensor& images, const torch::Tensor& order,
                               const models::Context& context) {
    return mae_pass(*encoder_, *decoder_, images, order, visible_, context, fusion_.get()).predicted;
  }
  torch::Tensor each_loss(const torch::Tensor& predicted, const torch::Tensor& images,
                          const torch::Tensor& order) const {
    return mae_loss(predicted, mae_targets(images, patch_, config_.normalise_pixels),
                    order.slice(1, visible_));
  }
  int64_t patches() const { return rows_ * columns_; }

  report::PicturesBlock reconstructions(const StreamInputs& batch, const torch::Tensor& predicted) const;
  Image to_picture(const torch::Tensor& pixels) const;

  MaeConfig config_;
  data::Preprocess preprocess_;
  data::AugmentConfig augment_;
  std::shared_ptr<const data::Source> train_, validation_;
  models::ModelSpec spec_;
  std::shared_ptr<models::Backbone> backbone_;
  models::TokenEncoder* encoder_;
  int64_t patch_ = 16, rows_ = 14, columns_ = 14, visible_ = 0;
  std::shared_ptr<models::MaeDecoder> decoder_;
  std::shared_ptr<LevelFusion> fusion_;  // null without inner blocks
};

// Masks of validation images depend only on their index, so losses of two steps are comparable.
Findings Mae::evaluate(const EvaluateOptions& options) {
  SampleRows losses(1);
  FeatureHealth health(encoder_->token_width());
  std::vector<report::Block> shown;
  Findings out = evaluate_rows(options, validation(), losses, [&](data::Batch& loaded) {
    add_orders(loaded, patches(), [&](int64_t sample) {
      return RandomStream(0, "validation mask", static_cast<uint64_t>(loaded.first + sample));
    });
    const StreamInputs batch = to_device(loaded, options);
    torch::Tensor predicted;
    {
      const AutocastScope autocast(options.device, options.precision);
      predicted = predict_pixels(batch.at("image"), batch.at("order"), {});
      if (health.wants(loaded)) {
        const models::Encoded whole_images = encoder_->encode(encoder_->tokenise(batch.at("image")));
        health.add(loaded, whole_images.patches_of(whole_images.tokens).mean(1));
      }
    }
    if (loaded.first == 0 && options.wants("pictures")) shown.emplace_back(reconstructions(batch, predicted));
    return each_loss(predicted, batch.at("image"), batch.at("order")).unsqueeze(1);
  });
  out.blocks = std::move(shown);
  double sum = 0;
  for (const float loss : losses.column(0)) sum += static_cast<double>(loss);
  out.metrics = {{main_metric(), sum / static_cast<double>(out.samples)}};
  health.finish(options, validation_.get(), out);
  return out;
}

// `pixels` [patches, 3 patch^2] are normalised.
Image Mae::to_picture(const torch::Tensor& pixels) const {
  return picture_of(pixels.view({rows_, columns_, patch_, patch_, 3})
                        .permute({4, 0, 2, 1, 3})
                        .reshape({3, rows_ * patch_, columns_ * patch_}),
                    preprocess_);
}

// Each image in full, its visible patches, and the image with its masked patches predicted.
report::PicturesBlock Mae::reconstructions(const StreamInputs& batch, const torch::Tensor& predicted) const {
  report::PicturesBlock block{
      .heading = "Reconstructions",
      .note = "Validation images: whole, the visible patches, the masked ones predicted.",
      .together = 3};
  const torch::Tensor pixels = nn::patchify(batch.at("image"), patch_).to(torch::kFloat32);
  torch::Tensor filled = predicted.to(torch::kFloat32);
  if (config_.normalise_pixels) {
    const torch::Tensor mean = pixels.mean(-1, true), variance = pixels.var(-1, true, true);
    filled = filled * (variance + 1e-6).sqrt() + mean;
  }
  for (int64_t i = 0; i < std::min(kReconstructions, batch.size); ++i) {
    const torch::Tensor masked = batch.at("order")[i].slice(0, visible_);
    torch::Tensor seen = pixels[i].clone(), guess = pixels[i].clone();
    seen.index_fill_(0, masked, 0);
    guess.index_copy_(0, masked, filled[i].index_select(0, masked));
    block.pictures.push_back({to_picture(pixels[i]), "image", ""});
    block.pictures.push_back({to_picture(seen), "visible", ""});
    block.pictures.push_back({to_picture(guess), "predicted", ""});
  }
  return block;
}

}  // namespace

LevelFusion::LevelFusion(std::vector<int64_t> blocks, int64_t width) : blocks_(std::move(blocks)) {
  auto layers = register_module("proj_layers", std::make_shared<torch::nn::Module>());
  for (size_t i = 0; i < blocks_.size(); ++i)
    layers_.push_back(layers->register_module(std::to_string(i), nn::Linear(width, width)));
  weights_ = register_parameter("proj_weights", nn::ones({std::ssize(blocks_) + 1}));
}

void LevelFusion::initialise(uint64_t seed) {
  nn::initialise(*this, seed, [](const std::string&, const torch::Tensor& parameter, const nn::Filler& fill) {
    if (parameter.dim() == 2) fill.xavier_uniform();
  });
}

torch::Tensor LevelFusion::forward(const std::vector<torch::Tensor>& levels) const {
  check(std::ssize(levels) == weights_.size(0), levels.size(), " levels of tokens, must be ",
        weights_.size(0));
  const torch::Tensor shares = weights_.softmax(0).to(levels.back().scalar_type());
  torch::Tensor fused = levels.back() * shares[-1];
  for (size_t i = 0; i < layers_.size(); ++i)
    fused = fused + layers_[i]->forward(levels[i]) * shares[static_cast<int64_t>(i)];
  return fused;
}

int64_t LevelFusion::macs(int64_t tokens) const {
  int64_t total = 0;
  for (const nn::Linear& layer : layers_) total += tokens * layer->macs();
  return total;
}

MaePass mae_pass(models::TokenEncoder& encoder, models::MaeDecoder& decoder, const torch::Tensor& images,
                 const torch::Tensor& order, int64_t visible, const models::Context& given,
                 const LevelFusion* fusion) {
  models::Context context = given;
  nn::Taps taps;
  const auto name = [](int64_t block) { return "blocks." + std::to_string(block); };
  if (fusion) {
    taps.wanted = [&](const std::string& tapped) {
      return std::ranges::any_of(fusion->blocks(), [&](int64_t block) { return tapped == name(block); });
    };
    taps.whole_blocks = true;
    context.taps = &taps;
  }
  const models::Tokens tokens = encoder.tokenise(images, context);
  models::Encoded encoded = encoder.encode(encoder.keep(tokens, order.narrow(1, 0, visible)), context);
  if (fusion) {
    std::vector<torch::Tensor> levels;
    for (const int64_t block : fusion->blocks()) levels.push_back(taps.kept.at(name(block)));
    // Levels have no norm: it follows their sum, as in the published code (MFFViT).
    levels.push_back(encoded.last);
    encoded.last = fusion->forward(levels);
    encoded.tokens = encoder.last_norm(encoded.last);
  }
  torch::Tensor front;
  if (const std::vector<int64_t> others = encoded.others(); !others.empty())
    front = encoded.tokens.index_select(
        1, ops::kept_on(encoded.tokens.device(), torch::tensor(others, torch::kInt64)));
  if (decoder.class_token().defined()) {
    const torch::Tensor late = encoder.last_norm(decoder.class_token().to(encoded.last.scalar_type()))
                                   .expand({images.size(0), -1, -1});
    front = front.defined() ? torch::cat({late, front}, 1) : late;
  }
  const torch::Tensor seen = encoded.patches_of(encoded.tokens);
  MaePass pass{.latent = front.defined() ? torch::cat({front, seen}, 1) : seen};
  pass.predicted = decoder.forward(front, seen, order.argsort(1, /*descending=*/false), context);
  return pass;
}

torch::Tensor mae_targets(const torch::Tensor& images, int64_t patch, bool normalise) {
  const torch::Tensor pixels = nn::patchify(images, patch);
  if (!normalise) return pixels;
  const torch::Tensor mean = pixels.mean(-1, true), variance = pixels.var(-1, true, true);
  return (pixels - mean) / (variance + 1e-6).sqrt();
}

torch::Tensor mae_loss(const torch::Tensor& predicted, const torch::Tensor& targets,
                       const torch::Tensor& masked) {
  const torch::Tensor wide =
      predicted.scalar_type() == torch::kFloat64 ? predicted : predicted.to(torch::kFloat32);
  return (wide - targets).square().mean(-1).gather(1, masked).mean(1);
}

TaskKind mae_kind() {
  return task_kind<Mae, MaeConfig>("mae", "masked auto-encoding: pre-training on images without labels",
                                   {.reads_classes = false, .captions = data::CaptionUse::none});
}

}  // namespace tessera::tasks
