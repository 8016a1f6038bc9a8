#include "tasks/darl.h"

#include <algorithm>
#include <cmath>

#include "core/clock.h"
#include "core/error.h"
#include "core/text.h"
#include "core/threads.h"
#include "models/family.h"
#include "nn/patch_embed.h"
#include "tasks/feature_health.h"
#include "tasks/image_streams.h"
#include "tasks/patch_pictures.h"
#include "tasks/sample_rows.h"

namespace tessera::tasks {
namespace {

constexpr int64_t kShown = 8, kDrawn = 4;  // images of the report: predicted, and completed
constexpr int64_t kDrawingSteps = 50;
constexpr double kShownGamma = 0.25;  // noise level at which the report shows what is denoised

models::PatchDecoderKind kind_of(const DarlConfig& config) {
  switch (config.decoder) {
    case DarlDecoder::automatic:
      return config.objective == DarlObjective::mse ? models::PatchDecoderKind::linear
                                                    : models::PatchDecoderKind::transformer;
    case DarlDecoder::linear:
      return models::PatchDecoderKind::linear;
    case DarlDecoder::mlp:
      return models::PatchDecoderKind::mlp;
    case DarlDecoder::transformer:
      break;
  }
  return models::PatchDecoderKind::transformer;
}

void check_config(const DarlConfig& config) {
  const bool mse = config.objective == DarlObjective::mse;
  if (mse && config.decoder == DarlDecoder::transformer)
    fail_usage("task.decoder = \"transformer\" reads a noised patch, which objective \"mse\" has not, ",
               "must be linear or mlp");
  if (mse && config.predict == DarlPredict::noise)
    fail_usage("task.predict = \"noise\" goes with objective \"diffusion\"");
  if (mse && config.gamma) fail_usage("task.gamma goes with objective \"diffusion\"");
  if (!mse && config.normalise_pixels)
    fail_usage("task.normalise_pixels goes with objective \"mse\": noise is added to the pixels as they are");
  if (config.order != DarlOrder::given && !config.permutation.empty())
    fail_usage("task.permutation goes with task.order = \"given\"");
}

DarlConfig read_checked(const Value& settings) {
  const auto config = read_config<DarlConfig>(settings, "task");
  check_config(config);
  return config;
}

torch::Tensor normalised(const torch::Tensor& pixels) {
  return (pixels - pixels.mean(-1, true)) / (pixels.var(-1, true, true) + 1e-6).sqrt();
}

class Darl final : public Task {
 public:
  explicit Darl(const TaskSetup& setup)
      : config_(read_checked(setup.settings)),
        preprocess_(setup.preprocess),
        augment_(setup.augment),
        train_(setup.train),
        validation_(setup.validation),
        spec_(setup.model),
        backbone_(setup.build_backbone(setup.model)),
        predictor_(backbone_, spec_, order_of(setup), "task darl") {
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
  int64_t macs(int64_t side) const override {
    return backbone_->macs(side, side) + predictor_.patches() * decoder_->macs();
  }
  // Decoders of the two objectives may have tensors of the same shapes.
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
    add_noise(batch, [&](int64_t sample) {
      return RandomStream(key.seed, "patch noise", static_cast<uint64_t>(key.step),
                          static_cast<uint64_t>(batch.first + sample));
    });
  }

  Loss loss(const Inputs& inputs, const models::Context& context, Collective&) override {
    return {pass(inputs.main(), context).each().mean(1).sum(), {}};
  }

  std::vector<std::unique_ptr<Evaluator>> evaluators() override {
    return one_evaluator([this](const EvaluateOptions& options) { return evaluate(options); });
  }
  MetricInfo main_metric() const override { return {"loss", Unit::number, false}; }

  Findings evaluate(const EvaluateOptions& options);

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
    if (!denoises()) return darl_pass(config_, predictor_, *decoder_, inputs.at("image"), {}, {}, context);
    return darl_pass(config_, predictor_, *decoder_, inputs.at("image"), inputs.at("noise"),
                     inputs.at("gamma"), context);
  }

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
  std::shared_ptr<models::PatchDecoder> decoder_;
};

// Noise of a validation image depends on its number alone, so that losses of two steps compare.
Findings Darl::evaluate(const EvaluateOptions& options) {
  const torch::NoGradGuard no_grad;
  set_training(parts(), false);
  const double began = steady_seconds();
  const auto loader = options.open(validation());
  SampleRows errors(predictor_.patches());
  FeatureHealth health(predictor_.width());
  Findings out;
  int64_t whole = 0, done = 0;
  while (auto loaded = loader->next()) {
    const int64_t before = whole;
    whole += loaded->whole;
    if (loaded->size == 0) continue;
    add_noise(*loaded, [&](int64_t sample) {
      return RandomStream(0, "validation patch noise",
                          static_cast<uint64_t>(before + loaded->first + sample));
    });
    const StreamInputs batch = to_device(*loaded, "validation", options.device, options.precision);
    DarlPass passed;
    {
      const AutocastScope autocast(options.device, options.precision);
      passed = pass(batch, {});
      if (before + loaded->first == 0 && options.wants("pictures")) {
        out.blocks.emplace_back(predictions(batch, passed));
        out.blocks.emplace_back(completions(batch, options.seed));
      }
    }
    errors.add(*loaded, before, passed.each());
    health.add(*loaded, before, passed.z.mean(1));
    done += loaded->size;
    if (options.progress && !options.progress(done))
      throw Error(ErrorKind::interrupted, text("interrupted after ", done, " evaluated images"));
  }
  out.broken = loader->bad_images();
  errors.collect(options);
  out.samples = errors.size();
  check(out.samples > 0, "there is no image to evaluate on");
  const torch::Tensor each = errors.rows().to(torch::kFloat64);
  out.metrics = {{main_metric(), each.mean().item<double>()}};
  health.finish(options, validation_.get(), out);
  if (options.wants("pictures")) out.blocks.emplace_back(errors_by_place(each.mean(0)));
  out.seconds = steady_seconds() - began;
  return out;
}

// Each image, and each of its patches predicted from the true ones before it.
report::PicturesBlock Darl::predictions(const StreamInputs& batch, const DarlPass& passed) {
  report::PicturesBlock block{
      .heading = "Predictions",
      .note = "Validation images, and each of their patches predicted from the true patches before it."};
  const int64_t count = std::min(kShown, batch.size);
  const torch::Tensor images = batch.at("image").slice(0, 0, count).to(torch::kFloat32);
  const torch::Tensor pixels = predictor_.in_order(images);
  torch::Tensor predicted, noised;
  if (denoises()) {
    block.note += text(" In the middle what the decoder denoises, with gamma = ", fixed(kShownGamma, 2), ".");
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
      return picture_of(predictor_.to_images(all.slice(0, i, i + 1))[0], preprocess_);
    };
    block.pictures.push_back({picture_of(images[i], preprocess_), "image", ""});
    if (noised.defined()) block.pictures.push_back({picture(noised), "noised", ""});
    block.pictures.push_back({picture(predicted), "predicted", ""});
  }
  return block;
}

// Images whose second half, in the order of the patches, the model draws by itself.
report::PicturesBlock Darl::completions(const StreamInputs& batch, uint64_t seed) {
  report::PicturesBlock block{.heading = "Completions",
                              .note =
                                  "The first half of a validation image's patches, and the rest drawn "
                                  "patch by patch."};
  if (config_.normalise_pixels) return {};  // means and deviations of the patches to come are not known
  const int64_t count = std::min(kDrawn, batch.size), known = predictor_.patches() / 2;
  const torch::Tensor given = predictor_.in_order(batch.at("image").slice(0, 0, count));
  const models::PatchSampling sampling{
      .gammas = denoises() ? sampling_gammas(config_.schedule, kDrawingSteps) : std::vector<double>(),
      .predicts_noise = config_.predict == DarlPredict::noise};
  const auto noise = [&](int64_t patch, int64_t step) {
    torch::Tensor out = torch::empty({count, given.size(2)}, torch::kFloat64);
    for (int64_t i = 0; i < count; ++i) {
      RandomStream stream(seed + static_cast<uint64_t>(i), "completion", static_cast<uint64_t>(patch),
                          static_cast<uint64_t>(step));
      double* row = out[i].data_ptr<double>();
      for (int64_t at = 0; at < given.size(2); ++at) row[at] = stream.normal();
    }
    return out.to(given.device(), given.scalar_type());
  };
  const torch::Tensor drawn =
      predictor_.to_images(models::draw_patches(predictor_, *decoder_, given, known, sampling, noise));
  torch::Tensor first = given.clone();
  first.slice(1, known).zero_();
  const torch::Tensor kept = predictor_.to_images(first);
  for (int64_t i = 0; i < count; ++i) {
    block.pictures.push_back({picture_of(kept[i], preprocess_), "given", ""});
    block.pictures.push_back({picture_of(drawn[i], preprocess_), "completed", ""});
  }
  return block;
}

// Mean errors [patches] in sequence order: how much what came before helps.
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

std::vector<int64_t> darl_order(const DarlConfig& config, int64_t rows, int64_t columns) {
  const int64_t patches = rows * columns;
  if (config.order != DarlOrder::given) {
    const torch::Tensor order = models::patch_order(name_of(config.order), rows, columns, config.block);
    return {order.data_ptr<int64_t>(), order.data_ptr<int64_t>() + order.numel()};
  }
  std::vector<bool> seen(static_cast<size_t>(patches), false);
  if (static_cast<int64_t>(config.permutation.size()) != patches)
    fail_usage("task.permutation names ", config.permutation.size(),
               " patches, must be a permutation of 0 to ", patches - 1);
  for (const int64_t patch : config.permutation) {
    if (patch >= patches || seen[static_cast<size_t>(patch)])
      fail_usage("task.permutation holds ", patch, patch >= patches ? "" : " twice",
                 ", must be a permutation of 0 to ", patches - 1);
    seen[static_cast<size_t>(patch)] = true;
  }
  return config.permutation;
}

models::PatchDecoderOptions darl_decoder(const DarlConfig& config, const models::PatchPredictor& predictor) {
  const models::PatchDecoderKind kind = kind_of(config);
  const int64_t width = predictor.width();
  const int64_t heads = config.decoder_heads > 0 ? config.decoder_heads : std::max<int64_t>(1, width / 64);
  if (kind == models::PatchDecoderKind::transformer && width % heads != 0)
    fail_usage("task.decoder_heads = ", heads, " must divide the trunk's width, which is ", width);
  return {.kind = kind,
          .width = width,
          .pixels = 3 * predictor.patch() * predictor.patch(),
          .depth = kind == models::PatchDecoderKind::linear ? 0 : config.decoder_depth,
          .heads = heads,
          .denoises = config.objective == DarlObjective::diffusion,
          .gamma = config.gamma,
          .learns_start = !predictor.has_front()};
}

torch::Tensor DarlPass::each() const {
  const torch::Tensor wide =
      predicted.scalar_type() == torch::kFloat64 ? predicted : predicted.to(torch::kFloat32);
  return (wide - target).square().mean(-1);
}

DarlPass darl_pass(const DarlConfig& config, models::PatchPredictor& predictor, models::PatchDecoder& decoder,
                   const torch::Tensor& images, const torch::Tensor& noise, const torch::Tensor& gamma,
                   const models::Context& context) {
  const torch::Tensor pixels = predictor.in_order(images);
  DarlPass pass{.z = predictor.before_each_patch(images, decoder.start(), context)};
  if (config.objective == DarlObjective::mse) {
    pass.predicted = decoder.forward(pass.z);
    pass.target = config.normalise_pixels ? normalised(pixels) : pixels;
    return pass;
  }
  const torch::Tensor level = gamma.unsqueeze(-1);
  pass.noised = level.sqrt() * pixels + (1 - level).sqrt() * noise;
  pass.predicted = decoder.denoise(*decoder.condition(pass.z), pass.noised, level);
  pass.target = config.predict == DarlPredict::noise ? noise : pixels;
  return pass;
}

TaskKind darl_kind() {
  return {
      .name = "darl",
      .summary = "autoregressive pre-training on patches, predicted or denoised",
      .resolve = [](const Value& settings) { return write_config(read_checked(settings)); },
      .keys = [] { return describe_config(DarlConfig(), "task"); },
      .fit_model = [](Value& model, const Value&, const data::Source*) { model.set("classes", 0); },
      .make = [](const TaskSetup& setup) -> std::unique_ptr<Task> { return std::make_unique<Darl>(setup); }};
}

}  // namespace tessera::tasks
