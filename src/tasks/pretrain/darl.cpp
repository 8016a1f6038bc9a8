#include "tasks/pretrain/darl.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "core/threads.h"
#include "models/base/family.h"
#include "models/base/generation.h"
#include "nn/patch_embed.h"
#include "tasks/base/exported.h"
#include "tasks/base/report_blocks.h"
#include "tasks/base/sample_rows.h"
#include "tasks/base/task_kind.h"
#include "tasks/base/validation_pass.h"
#include "tasks/pretrain/patch_bound.h"
#include "tasks/pretrain/patch_drawing.h"
#include "tasks/pretrain/patch_tokens.h"

namespace tessera::tasks {
namespace {

constexpr int64_t kShown = 8, kDrawn = 4;  // images in the report: predicted, and completed
constexpr int64_t kDrawingSteps = 50;
constexpr int64_t kBoundSteps = 1000;  // levels of the chain in the bound
constexpr double kShownGamma = 0.25;   // noise level of the report's denoised patches

class Darl final : public Task, public DrawsPatches {
 public:
  explicit Darl(const TaskSetup& setup)
      : config_(read_task<DarlConfig>(setup.settings)),
        preprocess_(setup.preprocess),
        augment_(setup.augment),
        train_(setup.train),
        validation_(setup.validation),
        spec_(setup.model),
        backbone_(setup.build_backbone(setup.model)),
        predictor_(backbone_, spec_, order_of(setup), "task darl"),
        tokens_(setup, config_.tokeniser, "task.tokeniser", "task.codes", config_.codes) {
    if (config_.order == DarlOrder::random && !predictor_.knows_next_place())
      fail_usage("task.order = \"random\" needs a model that reads the next position: a darl model with ",
                 "model.two_stream = true");
    for (const int64_t side : setup.sides)
      if (side != predictor_.rows() * predictor_.patch() || side != predictor_.columns() * predictor_.patch())
        fail_usage("train.sizes holds ", side,
                   ": task darl takes images of model.image_size = ", predictor_.rows() * predictor_.patch());
    const models::PatchDecoderOptions options = darl_decoder(config_, predictor_);
    decoder_ = setup.build([&] {
      auto decoder = std::make_shared<models::PatchDecoder>(options);
      if (setup.draws()) decoder->initialise(setup.seed);
      return decoder;
    });
  }

  std::vector<Part> parts() const override { return {{"", backbone_}, {"decoder.", decoder_}}; }
  std::vector<BackbonePart> backbones() const override { return {{"", backbone_, spec_}}; }
  std::vector<ExportedPart> exported(int64_t side) override {
    return {exported_features(backbones()[0], side)};
  }
  int64_t macs(int64_t side) const override {
    return backbone_->macs(side, side) + predictor_.patches() * decoder_->macs();
  }
  // Decoders for two objectives may have tensors of the same shapes.
  Value metadata() const override { return Value(Value::Table{{"objective", name_of(config_.objective)}}); }
  bool takes_outputs_of(const Value& metadata) const override {
    const Value* objective = metadata.find("objective");
    return objective && *objective == Value(name_of(config_.objective));
  }
  std::string metadata_conflict(const Value& stored) const override {
    return takes_outputs_of(stored) ? ""
                                    : "it was trained by another objective than task.objective = \"" +
                                          name_of(config_.objective) + "\"";
  }
  std::string outputs() const override { return "decoder for objective " + name_of(config_.objective); }

  std::vector<StreamSpec> streams() const override {
    return {training_images(train_, preprocess_, augment_)};
  }
  StreamSpec validation() const override { return validation_images(validation_, preprocess_); }
  void prepare(std::span<data::Batch> batches, const StepKey& key) const override {
    data::Batch& batch = batches[0];
    if (config_.order == DarlOrder::random) draw_orders(batch, predictor_.patches(), "patch order", key);
    add_noise(batch, [&](int64_t sample) {
      return RandomStream(key.seed, "patch noise", static_cast<uint64_t>(key.step),
                          static_cast<uint64_t>(batch.first + sample));
    });
  }

  Loss loss(const Inputs& inputs, const models::Context& context, Collective&) override {
    return {pass(inputs.main(), context).each().mean(1).sum(), {}};
  }
  bool repeats_its_calls() const override { return true; }

  std::vector<std::unique_ptr<Evaluator>> evaluators() override {
    return one_evaluator(*this, [this](const EvaluateOptions& options) { return evaluate(options); });
  }
  MetricInfo main_metric() const override { return {"loss", Unit::number, false}; }
  std::vector<std::pair<std::string, std::string>> fingerprints() const override {
    if (!draws_tokens()) return {};
    return {{"tokeniser", tokens_.checksum()}};
  }

  Findings evaluate(const EvaluateOptions& options);

  int64_t patches() const override { return predictor_.patches(); }
  std::array<int64_t, 2> image_size() const override {
    return {predictor_.rows() * predictor_.patch(), predictor_.columns() * predictor_.patch()};
  }
  std::string drawing_refusal() const override {
    const auto* reader = dynamic_cast<const models::ReadsTokens*>(backbone_.get());
    const bool reads_tokens = reader && reader->input_codes() > 0;
    if (draws_tokens()) {
      if (!reads_tokens) return "they predict tokens but read pixels, and one token gives no pixels";
      if (reader->tokens_checksum() != tokens_.checksum())
        return "model.tokeniser and task.tokeniser differ, so they do not read the tokens that they predict";
      return tokens_.picture_refusal();
    }
    if (reads_tokens) return "they predict pixels but read tokens, which need whole images";
    if (config_.normalise_pixels)
      return "they predict normalised pixels: means and deviations of later patches are missing";
    return "";
  }
  bool draws_tokens() const override { return config_.objective == DarlObjective::tokens; }
  torch::Tensor draw(const DrawRequest& request) override;
  torch::Tensor known_part(const torch::Tensor& images, int64_t known) override {
    torch::Tensor pixels = predictor_.in_order(images).clone();
    pixels.slice(1, known).zero_();
    return predictor_.to_images(pixels);
  }

 private:
  bool denoises() const { return config_.objective == DarlObjective::diffusion; }

  std::vector<int64_t> order_of(const TaskSetup& setup) const {
    const models::Extent image = models::extent_of(*setup.model.settings.find("image_size"), "image_size");
    const int64_t patch = setup.model.settings.find("patch_size")->as_int();
    return darl_order(config_, image.height / patch, image.width / patch);
  }

  // Fields "gamma", f32 [patches], and "noise", f32 [patches, 3 patch^2], in sequence order.
  template <class StreamOf>
  void add_noise(data::Batch& batch, const StreamOf& stream_of) const {
    if (!denoises()) return;
    const int64_t patches = predictor_.patches(), pixels = 3 * predictor_.patch() * predictor_.patch();
    const auto gammas = batch.add({"gamma", DType::f32, {patches}}).values<float>();
    const auto noise = batch.add({"noise", DType::f32, {patches, pixels}}).values<float>();
    const NoiseLevels levels{config_.schedule, config_.a, config_.b};
    parallel_for(batch.size, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        RandomStream stream = stream_of(i);
        for (int64_t t = 0; t < patches; ++t)
          gammas[static_cast<size_t>(i * patches + t)] = static_cast<float>(draw_gamma(stream, levels));
        for (int64_t at = i * patches * pixels; at < (i + 1) * patches * pixels; ++at)
          noise[static_cast<size_t>(at)] = static_cast<float>(stream.normal());
      }
    });
  }

  DarlPass pass(const StreamInputs& inputs, const models::Context& context) {
    DarlDraws draws{.orders = orders_of(inputs)};
    if (denoises()) draws.noise = inputs.at("noise"), draws.gamma = inputs.at("gamma");
    if (draws_tokens()) draws.tokens = tokens_(inputs.at("image"), predictor_.rows(), predictor_.columns());
    return darl_pass(config_, predictor_, *decoder_, inputs.at("image"), draws, context);
  }
  // Per-sample orders, or undefined.
  static torch::Tensor orders_of(const StreamInputs& inputs) {
    const torch::Tensor* orders = inputs.find("order");
    return orders ? *orders : torch::Tensor();
  }

  // Draws for validation images depend only on their index, so losses of two steps are comparable.
  void add_draws(data::Batch& batch) const {
    const auto number = [&](int64_t sample) { return static_cast<uint64_t>(batch.first + sample); };
    if (config_.order == DarlOrder::random)
      add_orders(batch, predictor_.patches(),
                 [&](int64_t sample) { return RandomStream(0, "validation patch order", number(sample)); });
    add_noise(batch,
              [&](int64_t sample) { return RandomStream(0, "validation patch noise", number(sample)); });
  }

  torch::Tensor draw_by_tokens(const DrawRequest& request);
  torch::Tensor bound_of(const StreamInputs& batch, const DarlPass& passed, int64_t first);
  std::vector<report::Block> pictures(const StreamInputs& batch, const DarlPass& passed,
                                      const EvaluateOptions& options);
  report::PicturesBlock order_of_patches() const;
  report::PicturesBlock predictions(const StreamInputs& batch, const DarlPass& pass);
  report::PicturesBlock completions(const StreamInputs& batch, uint64_t seed);
  report::ChartBlock errors_by_place(const torch::Tensor& each) const;

  DarlConfig config_;
  data::Preprocess preprocess_;
  data::AugmentConfig augment_;
  std::shared_ptr<const data::Source> train_, validation_;
  models::ModelSpec spec_;
  std::shared_ptr<models::Backbone> backbone_;
  models::PatchPredictor predictor_;
  mutable PatchTokens tokens_;
  std::shared_ptr<models::PatchDecoder> decoder_;
};

Findings Darl::evaluate(const EvaluateOptions& options) {
  SampleRows errors(predictor_.patches()), bounds(1);
  FeatureHealth health(predictor_.width());
  std::vector<report::Block> shown;
  Findings out = evaluate_rows(options, validation(), errors, [&](data::Batch& loaded) {
    add_draws(loaded);
    const StreamInputs batch = to_device(loaded, options);
    DarlPass passed;
    {
      const AutocastScope autocast(options.device, options.precision);
      passed = pass(batch, {});
      if (config_.bound_draws > 0) bounds.add(loaded, bound_of(batch, passed, loaded.first));
      if (loaded.first == 0 && options.wants("pictures")) shown = pictures(batch, passed, options);
    }
    health.add(loaded, passed.z.mean(1));
    return passed.each();
  });
  out.blocks = std::move(shown);
  const torch::Tensor each = errors.rows().to(torch::kFloat64);
  out.metrics = {{main_metric(), each.mean().item<double>()}};
  if (config_.bound_draws > 0) {
    bounds.collect(options);
    out.metrics.push_back(
        {{"bits_per_dim", Unit::number, false}, bounds.rows().to(torch::kFloat64).mean().item<double>()});
  }
  health.finish(options, validation_.get(), out);
  if (options.wants("pictures")) out.blocks.emplace_back(errors_by_place(each.mean(0)));
  return out;
}

// Per image, [batch, 1].
torch::Tensor Darl::bound_of(const StreamInputs& batch, const DarlPass& passed, int64_t first) {
  PatchBound bound{.gammas = sampling_gammas(config_.schedule, kBoundSteps),
                   .predicts_noise = config_.predict == DarlPredict::noise,
                   .draws = config_.bound_draws};
  set_bins(bound, preprocess_.mean, preprocess_.std, predictor_.patch());
  const torch::Tensor pixels = predictor_.in_order(batch.at("image"), orders_of(batch));
  const auto drawn = [&](const char* purpose, int64_t index, int64_t width, const auto& draw) {
    torch::Tensor out = torch::empty({batch.size, predictor_.patches() * width}, torch::kFloat64);
    double* at = out.data_ptr<double>();
    const int64_t count = out.size(1);
    parallel_for(batch.size, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        RandomStream stream(0, purpose, static_cast<uint64_t>(first + i), static_cast<uint64_t>(index));
        for (int64_t n = 0; n < count; ++n) at[i * count + n] = draw(stream);
      }
    });
    return out.to(pixels.device());
  };
  const auto places = [&](int64_t index) {
    return drawn("bound level", index, 1, [](RandomStream& stream) { return stream.uniform(); });
  };
  const auto noise = [&](int64_t index) {
    return drawn("bound noise", index, pixels.size(2), [](RandomStream& stream) { return stream.normal(); })
        .view(pixels.sizes());
  };
  return bits_per_dimension(bound, *decoder_, passed.z, pixels, places, noise).mean(1, true);
}

torch::Tensor Darl::draw(const DrawRequest& request) {
  const torch::NoGradGuard no_grad;
  if (const std::string why = drawing_refusal(); !why.empty())
    fail_usage("these weights draw no images: ", why);
  check(request.given.size(0) == std::ssize(request.seeds), "each image that is drawn needs a seed");
  set_training(parts(), false);
  if (draws_tokens()) return draw_by_tokens(request);
  const torch::Tensor given = predictor_.in_order(request.given);
  const models::PatchSampling sampling{
      .gammas = denoises() ? sampling_gammas(config_.schedule, request.steps) : std::vector<double>(),
      .predicts_noise = config_.predict == DarlPredict::noise,
      .progress = request.progress};
  return predictor_.to_images(
      models::draw_patches(predictor_, *decoder_, given, request.known, sampling,
                           patch_noise_of(request.seeds, given.size(2), given.options())));
}

// Given patches keep their pixels; later patches see their tokens, computed without any later patch.
torch::Tensor Darl::draw_by_tokens(const DrawRequest& request) {
  const int64_t batch = request.given.size(0), rows = predictor_.rows(), columns = predictor_.columns();
  const auto [height, width] = image_size();
  torch::Tensor known = torch::zeros({batch, patches()}, request.given.options().dtype(torch::kInt64));
  if (request.known > 0)
    known = predictor_.arranged(tokens_(known_part(request.given, request.known), rows, columns));
  const auto choose = [&](int64_t patch, const torch::Tensor& scores) {
    torch::Tensor tokens = torch::empty({batch}, torch::kInt64);
    for (int64_t i = 0; i < batch; ++i) {
      RandomStream stream(request.seeds[static_cast<size_t>(i)], "token", static_cast<uint64_t>(patch));
      tokens[i] = models::draw_token(scores[i].to(torch::kFloat64) / request.temperature, stream);
    }
    return tokens.to(scores.device());
  };
  const torch::Tensor tokens =
      models::draw_tokens(predictor_, *decoder_, known, request.known, choose, request.progress);
  torch::Tensor pixels = predictor_.in_order(tokens_.images_of(
      predictor_.in_raster(tokens).view({batch, rows, columns}), height, width, request.given.options()));
  pixels.slice(1, 0, request.known).copy_(predictor_.in_order(request.given).slice(1, 0, request.known));
  return predictor_.to_images(pixels);
}

std::vector<report::Block> Darl::pictures(const StreamInputs& batch, const DarlPass& passed,
                                          const EvaluateOptions& options) {
  std::vector<report::Block> blocks;
  if (config_.order != DarlOrder::random) blocks.emplace_back(order_of_patches());
  if (!draws_tokens()) blocks.emplace_back(predictions(batch, passed));
  if (options.wants("completions") && drawing_refusal().empty())
    blocks.emplace_back(completions(batch, options.seed));
  return blocks;
}

// The grid, with later patches in a lighter shade.
report::PicturesBlock Darl::order_of_patches() const {
  constexpr int64_t kSide = 8;
  Image picture(static_cast<int>(kSide * predictor_.columns()), static_cast<int>(kSide * predictor_.rows()));
  const int64_t last = std::max<int64_t>(1, predictor_.patches() - 1);
  for (int64_t t = 0; t < predictor_.patches(); ++t) {
    const int64_t patch = predictor_.order()[static_cast<size_t>(t)], row = patch / predictor_.columns(),
                  column = patch % predictor_.columns();
    for (int64_t y = 0; y < kSide; ++y)
      std::fill_n(picture.row(static_cast<int>(kSide * row + y)) + 3 * kSide * column, 3 * kSide,
                  static_cast<uint8_t>(20 + 215 * t / last));
  }
  return {.heading = "Order of the patches",
          .note = "The later a patch comes, the lighter it is.",
          .pictures = {{picture, name_of(config_.order), ""}}};
}

// Each image, and the image with each patch predicted from its true predecessors.
report::PicturesBlock Darl::predictions(const StreamInputs& batch, const DarlPass& passed) {
  report::PicturesBlock block{
      .heading = "Predictions",
      .note = "Validation images, and each of their patches predicted from the true patches before it."};
  const int64_t count = std::min(kShown, batch.size);
  const torch::Tensor images = batch.at("image").slice(0, 0, count).to(torch::kFloat32);
  torch::Tensor orders = orders_of(batch);
  if (orders.defined()) orders = orders.slice(0, 0, count);
  const torch::Tensor pixels = predictor_.in_order(images, orders);
  torch::Tensor predicted, noised;
  if (denoises()) {
    block.note += text(" In the middle the noised input, with gamma = ", fixed(kShownGamma, 2), ".");
    const torch::Tensor noise = batch.at("noise").slice(0, 0, count).to(torch::kFloat32);
    const torch::Tensor gamma = torch::full({count, pixels.size(1), 1}, kShownGamma, pixels.options());
    noised = gamma.sqrt() * pixels + (1 - gamma).sqrt() * noise;
    predicted = decoder_
                    ->denoise(*decoder_->condition(passed.z.slice(0, 0, count)),
                              noised.to(batch.at("image").scalar_type()), gamma)
                    .to(torch::kFloat32);
    if (config_.predict == DarlPredict::noise)
      predicted = (noised - std::sqrt(1 - kShownGamma) * predicted) / std::sqrt(kShownGamma);
  } else {
    predicted = passed.predicted.slice(0, 0, count).to(torch::kFloat32);
    if (config_.normalise_pixels)
      predicted = predicted * (pixels.var(-1, true, true) + 1e-6).sqrt() + pixels.mean(-1, true);
  }
  for (int64_t i = 0; i < count; ++i) {
    const auto picture = [&](const torch::Tensor& all) {
      const torch::Tensor order = orders.defined() ? orders.slice(0, i, i + 1) : orders;
      return picture_of(predictor_.to_images(all.slice(0, i, i + 1), order)[0], preprocess_);
    };
    block.pictures.push_back({picture_of(images[i], preprocess_), "image", ""});
    if (noised.defined()) block.pictures.push_back({picture(noised), "noised", ""});
    block.pictures.push_back({picture(predicted), "predicted", ""});
  }
  return block;
}

// Images with the second half of their patches, in sequence order, drawn by the model.
report::PicturesBlock Darl::completions(const StreamInputs& batch, uint64_t seed) {
  report::PicturesBlock block{.heading = "Completions",
                              .note =
                                  "The first half of a validation image's patches, and the rest drawn "
                                  "patch by patch."};
  const int64_t count = std::min(kDrawn, batch.size), known = predictor_.patches() / 2;
  const torch::Tensor given = batch.at("image").slice(0, 0, count);
  std::vector<uint64_t> seeds;
  for (int64_t i = 0; i < count; ++i) seeds.push_back(seed + static_cast<uint64_t>(i));
  const torch::Tensor drawn = draw({.given = given, .known = known, .steps = kDrawingSteps, .seeds = seeds});
  const torch::Tensor kept = known_part(given, known);
  for (int64_t i = 0; i < count; ++i) {
    block.pictures.push_back({picture_of(kept[i], preprocess_), "given", ""});
    block.pictures.push_back({picture_of(drawn[i], preprocess_), "completed", ""});
  }
  return block;
}

// Mean error at each position [patches] in sequence order; it shows the benefit of context.
report::ChartBlock Darl::errors_by_place(const torch::Tensor& each) const {
  report::Curve curve;
  for (int64_t t = 0; t < predictor_.patches(); ++t)
    curve.points.push_back({static_cast<double>(t + 1), each[t].item<double>()});
  return {
      .heading = "Error by patch",
      .note = "Validation images; patches in the order in which they come.",
      .charts = {{.options = {.title = "Loss", .x_label = "patch", .y_label = "loss"}, .curves = {curve}}}};
}

}  // namespace

void DarlConfig::check() const {
  const bool diffusion = objective == DarlObjective::diffusion, tokens = objective == DarlObjective::tokens;
  if (!diffusion && decoder == DarlDecoder::transformer)
    fail_usage("task.decoder = \"transformer\" reads a noised patch, which objective \"", name_of(objective),
               "\" has not, must be linear or mlp");
  if (!diffusion && predict == DarlPredict::noise)
    fail_usage("task.predict = \"noise\" goes with objective \"diffusion\"");
  if (!diffusion && gamma) fail_usage("task.gamma goes with objective \"diffusion\"");
  if (!diffusion && bound_draws > 0)
    fail_usage(
        "task.bound_draws goes with objective \"diffusion\": the others bound no likelihood of pixels");
  if (diffusion && normalise_pixels)
    fail_usage("task.normalise_pixels goes with objective \"mse\": noise is added to the pixels as they are");
  if (tokens && normalise_pixels)
    fail_usage("task.normalise_pixels goes with objective \"mse\": tokens are no pixels");
  if (tokens && tokeniser.empty())
    fail_usage(
        "task.objective = \"tokens\" needs task.tokeniser: weights of task dvae, or of DALL-E's encoder");
  if (!tokens && !tokeniser.empty()) fail_usage("task.tokeniser goes with objective \"tokens\"");
  if (order != DarlOrder::given && !permutation.empty())
    fail_usage("task.permutation goes with task.order = \"given\"");
}

TaskKind darl_kind() {
  return task_kind<Darl, DarlConfig>("darl", "autoregressive pre-training on patches, predicted or denoised",
                                     {.command = "complete",
                                      .path_keys = {"tokeniser"},
                                      .reads_classes = false,
                                      .captions = data::CaptionUse::none});
}

}  // namespace tessera::tasks
