#include "tasks/mae.h"

#include <torch/nn/modules/container/modulelist.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/clock.h"
#include "core/error.h"
#include "core/text.h"
#include "models/capability.h"
#include "models/encoder.h"
#include "models/family.h"
#include "models/residual_block.h"
#include "nn/patch_embed.h"
#include "nn/position.h"
#include "tasks/sample_rows.h"

namespace tessera::tasks {
namespace {

constexpr int64_t kReconstructions = 8;  // images that are shown

struct Grid {
  int64_t patch = 16, rows = 14, columns = 14;
  int64_t patches() const { return rows * columns; }
};

class Decoder final : public torch::nn::Module {
 public:
  Decoder(const MaeConfig& config, const Grid& grid, int64_t encoder_width) : grid_(grid) {
    const int64_t dim = config.decoder_dim;
    mask_token_ = register_parameter("mask_token", nn::zeros({1, 1, dim}));
    embed_ = register_module("decoder_embed", nn::Linear(encoder_width, dim));
    blocks_ = register_module("decoder_blocks", torch::nn::ModuleList());
    for (int64_t i = 0; i < config.decoder_depth; ++i)
      blocks_->push_back(std::make_shared<models::AttentionBlock>(
          models::ResidualBlockOptions{
              .dim = dim, .mlp = models::MlpKind::gelu, .hidden = 4 * dim, .index = i},
          config.decoder_heads, /*qkv_bias=*/true));
    norm_ = register_module("decoder_norm", nn::LayerNorm(dim));
    pred_ = register_module("decoder_pred", nn::Linear(dim, 3 * grid.patch * grid.patch));
    positions_ = nn::sincos_2d(grid.rows, grid.columns, dim).unsqueeze(0);
  }

  void initialise(uint64_t seed) {
    nn::initialise(*this, seed,
                   [](const std::string& name, const torch::Tensor& parameter, const nn::Filler& fill) {
                     if (name == "mask_token")
                       fill.normal(0.02);
                     else if (parameter.dim() == 2)
                       fill.xavier_uniform();
                   });
  }

  // Tokens of the visible patches [batch, visible, width], and where each patch of the grid stands in
  // [visible, masked]: [batch, patches]. The predicted pixels, [batch, patches, 3 patch^2].
  torch::Tensor forward(const torch::Tensor& visible, const torch::Tensor& place,
                        const models::Context& context) {
    const torch::Tensor seen = embed_->forward(visible);
    const int64_t batch = seen.size(0), masked = grid_.patches() - seen.size(1), dim = seen.size(2);
    const torch::Tensor all =
        torch::cat({seen, mask_token_.to(seen.scalar_type()).expand({batch, masked, dim})}, 1);
    torch::Tensor x = all.gather(1, place.unsqueeze(-1).expand({-1, -1, dim})) +
                      positions_.to(seen.device(), seen.scalar_type());
    for (const auto& block : *blocks_)
      x = std::dynamic_pointer_cast<models::AttentionBlock>(block)->forward(x, {}, context);
    return pred_->forward(norm_(x));
  }

  int64_t macs() const {
    const int64_t tokens = grid_.patches();
    int64_t total = tokens * (embed_->macs() + pred_->macs());
    for (const auto& block : *blocks_)
      total += std::dynamic_pointer_cast<models::AttentionBlock>(block)->macs(tokens);
    return total;
  }

 private:
  Grid grid_;
  torch::Tensor mask_token_, positions_;
  nn::Linear embed_{nullptr}, pred_{nullptr};
  nn::LayerNorm norm_{nullptr};
  torch::nn::ModuleList blocks_{nullptr};
};

class Mae final : public Task {
 public:
  explicit Mae(const TaskSetup& setup)
      : config_(read_config<MaeConfig>(setup.settings, "task")),
        preprocess_(setup.preprocess),
        augment_(setup.augment),
        train_(setup.train),
        validation_(setup.validation),
        spec_(setup.model),
        backbone_(setup.build_backbone(setup.model)),
        encoder_(&models::require<models::TokenEncoder>(*backbone_, spec_.family, "task mae")) {
    if (const std::string why = encoder_->keep_refusal(); !why.empty())
      fail_usage("task mae leaves out patches, which ", spec_.name, " cannot do without: ", why);
    const models::Extent image = models::extent_of(*spec_.settings.find("image_size"), "image_size");
    grid_.patch = spec_.settings.find("patch_size")->as_int();
    grid_.rows = image.height / grid_.patch, grid_.columns = image.width / grid_.patch;
    if (config_.decoder_dim % config_.decoder_heads != 0 || config_.decoder_dim % 4 != 0)
      fail_usage("task.decoder_dim = ", config_.decoder_dim,
                 ", must be a multiple of 4 and of task.decoder_heads = ", config_.decoder_heads);
    visible_ =
        grid_.patches() - static_cast<int64_t>(config_.mask_ratio * static_cast<double>(grid_.patches()));
    for (const int64_t side : setup.sides)
      if (side != image.height || side != image.width)
        fail_usage("train.sizes holds ", side,
                   ": task mae takes images of model.image_size = ", image.height);
    decoder_ = setup.build([&] {
      auto decoder = std::make_shared<Decoder>(config_, grid_, encoder_->token_width());
      if (setup.draws()) decoder->initialise(setup.seed);
      return decoder;
    });
  }

  std::vector<Part> parts() const override { return {{"", backbone_}, {"", decoder_}}; }
  std::vector<BackbonePart> backbones() const override { return {{"", backbone_, spec_}}; }
  // The encoder runs on the visible patches alone.
  int64_t macs(int64_t side) const override {
    return backbone_->macs(side, side) * visible_ / grid_.patches() + decoder_->macs();
  }

  std::vector<StreamSpec> streams() const override {
    const auto transform = [preprocess = preprocess_, augment = augment_](int64_t) {
      return data::make_train_transform(preprocess, augment);
    };
    return {{.name = "train", .source = train_, .transform = transform, .labelled = false}};
  }
  StreamSpec validation() const override {
    const auto transform = [preprocess = preprocess_](int64_t) {
      return data::make_eval_transform(preprocess);
    };
    return {.name = "validation", .source = validation_, .transform = transform};
  }
  // A permutation of the patches for each sample, by its place in the step.
  void prepare(std::span<data::Batch> batches, const StepKey& key) const override {
    data::Batch& batch = batches[0];
    add_orders(batch, [&](int64_t sample) {
      return RandomStream(key.seed, "mask", static_cast<uint64_t>(key.step),
                          static_cast<uint64_t>(batch.first + sample));
    });
  }

  Loss loss(const Inputs& inputs, const models::Context& context, Collective&) override {
    return {each_loss(predict_pixels(inputs.at("image"), inputs.at("order"), context), inputs.at("image"),
                      inputs.at("order"))
                .sum(),
            {}};
  }

  std::vector<std::unique_ptr<Evaluator>> evaluators() override {
    return one_evaluator([this](const EvaluateOptions& options) { return evaluate(options); });
  }
  MetricInfo main_metric() const override { return {"loss", Unit::number, false}; }

  Findings evaluate(const EvaluateOptions& options);

 private:
  // Field "order", i64 [patches]: the visible patches, then the masked ones.
  template <class StreamOf>
  void add_orders(data::Batch& batch, const StreamOf& stream_of) const {
    const int64_t patches = grid_.patches();
    const auto orders = batch.add({"order", DType::i64, {patches}}).values<int64_t>();
    for (int64_t i = 0; i < batch.size; ++i) {
      const auto order = stream_of(i).permutation(patches);
      std::copy(order.begin(), order.end(), orders.begin() + i * patches);
    }
  }

  torch::Tensor predict_pixels(const torch::Tensor& images, const torch::Tensor& order,
                               const models::Context& context) {
    const models::Tokens tokens = encoder_->tokenise(images, context);
    const models::Encoded encoded =
        encoder_->encode(encoder_->keep(tokens, order.narrow(1, 0, visible_)), context);
    return decoder_->forward(encoded.patches_of(encoded.tokens), order.argsort(1, /*descending=*/false),
                             context);
  }

  // What is predicted, [batch, patches, 3 patch^2].
  torch::Tensor targets(const torch::Tensor& images) const {
    const torch::Tensor pixels = nn::patchify(images, grid_.patch);
    if (!config_.normalise_pixels) return pixels;
    const torch::Tensor mean = pixels.mean(-1, true), variance = pixels.var(-1, true, true);
    return (pixels - mean) / (variance + 1e-6).sqrt();
  }

  // The loss of each sample, [batch].
  torch::Tensor each_loss(const torch::Tensor& predicted, const torch::Tensor& images,
                          const torch::Tensor& order) const {
    const torch::Tensor wide =
        predicted.scalar_type() == torch::kFloat64 ? predicted : predicted.to(torch::kFloat32);
    const torch::Tensor of_patch = (wide - targets(images)).square().mean(-1);
    return of_patch.gather(1, order.slice(1, visible_)).mean(1);
  }

  report::PicturesBlock reconstructions(const StreamInputs& batch, const torch::Tensor& predicted) const;
  Image to_picture(const torch::Tensor& patches) const;

  MaeConfig config_;
  data::Preprocess preprocess_;
  data::AugmentConfig augment_;
  std::shared_ptr<const data::Source> train_, validation_;
  models::ModelSpec spec_;
  std::shared_ptr<models::Backbone> backbone_;
  models::TokenEncoder* encoder_;
  Grid grid_;
  int64_t visible_ = 0;
  std::shared_ptr<Decoder> decoder_;
};

// The masks of a validation image depend on its number alone, so that losses of two steps compare.
Findings Mae::evaluate(const EvaluateOptions& options) {
  const torch::NoGradGuard no_grad;
  set_training(parts(), false);
  const double began = steady_seconds();
  const auto loader = options.open(validation());
  SampleRows losses(1);
  Findings out;
  int64_t whole = 0, done = 0;
  while (auto loaded = loader->next()) {
    const int64_t before = whole;
    whole += loaded->whole;
    if (loaded->size == 0) continue;
    add_orders(*loaded, [&](int64_t sample) {
      return RandomStream(0, "validation mask", static_cast<uint64_t>(before + loaded->first + sample));
    });
    const StreamInputs batch = to_device(*loaded, "validation", options.device, options.precision);
    torch::Tensor predicted;
    {
      const AutocastScope autocast(options.device, options.precision);
      predicted = predict_pixels(batch.at("image"), batch.at("order"), {});
    }
    losses.add(*loaded, before, each_loss(predicted, batch.at("image"), batch.at("order")).unsqueeze(1));
    if (before + loaded->first == 0 && options.wants("pictures"))
      out.blocks.emplace_back(reconstructions(batch, predicted));
    done += loaded->size;
    if (options.progress && !options.progress(done))
      throw Error(ErrorKind::interrupted, text("interrupted after ", done, " evaluated images"));
  }
  out.broken = loader->bad_images();
  losses.collect(options);
  out.samples = losses.size();
  check(out.samples > 0, "there is no image to evaluate on");
  double sum = 0;
  for (const float loss : losses.column(0)) sum += static_cast<double>(loss);
  out.metrics = {{main_metric(), sum / static_cast<double>(out.samples)}};
  out.seconds = steady_seconds() - began;
  return out;
}

// [patches, 3 patch^2] of normalised pixels.
Image Mae::to_picture(const torch::Tensor& patches) const {
  const int64_t p = grid_.patch;
  const torch::Tensor pixels = patches.view({grid_.rows, grid_.columns, p, p, 3})
                                   .permute({0, 2, 1, 3, 4})
                                   .reshape({grid_.rows * p, grid_.columns * p, 3});
  const torch::Tensor std = torch::tensor(preprocess_.std), mean = torch::tensor(preprocess_.mean);
  const torch::Tensor bytes = ((pixels.cpu().to(torch::kFloat32) * std + mean) * 255)
                                  .round()
                                  .clamp(0, 255)
                                  .to(torch::kUInt8)
                                  .contiguous();
  Image image(static_cast<int>(bytes.size(1)), static_cast<int>(bytes.size(0)));
  std::copy_n(bytes.const_data_ptr<uint8_t>(), image.pixels.size(), image.pixels.begin());
  return image;
}

// Each image as it is, as the encoder saw it, and with the masked patches predicted.
report::PicturesBlock Mae::reconstructions(const StreamInputs& batch, const torch::Tensor& predicted) const {
  report::PicturesBlock block{
      .heading = "Reconstructions",
      .note = "Validation images: whole, the visible patches, the masked ones predicted."};
  const torch::Tensor pixels = nn::patchify(batch.at("image"), grid_.patch).to(torch::kFloat32);
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

TaskKind mae_kind() {
  return {
      .name = "mae",
      .summary = "masked auto-encoding: pre-training on images without labels",
      .resolve = [](const Value& settings) { return write_config(read_config<MaeConfig>(settings, "task")); },
      .keys = [] { return describe_config(MaeConfig(), "task"); },
      .fit_model = [](Value& model, const Value&, const data::Source*) { model.set("classes", 0); },
      .make = [](const TaskSetup& setup) -> std::unique_ptr<Task> { return std::make_unique<Mae>(setup); }};
}

}  // namespace tessera::tasks
