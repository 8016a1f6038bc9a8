#include "tasks/pretrain/vae.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "models/base/capability.h"
#include "nn/init.h"
#include "tasks/base/exported.h"
#include "tasks/base/report_blocks.h"
#include "tasks/base/task_kind.h"
#include "tasks/base/validation_pass.h"

namespace tessera::tasks {
namespace {

constexpr int64_t kShownImages = 8;  // images shown in the report
constexpr double kMomentum = 0.02;   // of running mean and variance of the latents: about the last 50 steps
constexpr double kLeastSquaredError = 1e-12;

// Mean and variance over all latent values. The trainer averages buffers of these names over processes.
class LatentScale : public torch::nn::Module {
 public:
  LatentScale() {
    mean_ = register_buffer("running_mean", nn::zeros({1}));
    variance_ = register_buffer("running_var", nn::ones({1}));
  }
  void follow(const torch::Tensor& latent) {
    const torch::NoGradGuard no_grad;
    const torch::Tensor numbers = latent.detach().to(mean_.scalar_type());
    mean_.lerp_(numbers.mean().view({1}), kMomentum);
    variance_.lerp_(numbers.var(/*unbiased=*/false).view({1}), kMomentum);
  }

 private:
  torch::Tensor mean_, variance_;
};

class Vae final : public Task {
 public:
  explicit Vae(const TaskSetup& setup)
      : config_(read_task<VaeConfig>(setup.settings)),
        preprocess_(setup.preprocess),
        augment_(setup.augment),
        train_(setup.train),
        validation_(setup.validation),
        spec_(setup.model),
        model_(setup.build_backbone(setup.model)),
        codec_(dynamic_cast<models::LatentCodec*>(model_.get())),
        scale_(setup.build([] { return std::make_shared<LatentScale>(); })) {
    if (!codec_)
      fail_usage("task vae needs a model that ", models::LatentCodec::kAbility, "; ", spec_.name,
                 " cannot; this one can: autoencoder_kl");
    const auto halves = [](const std::vector<double>& values) {
      return std::all_of(values.begin(), values.end(), [](double value) { return value == 0.5; });
    };
    if (!halves(preprocess_.mean) || !halves(preprocess_.std))
      fail_usage("task vae takes images with values in [-1, 1]: preprocess.mean and preprocess.std must be ",
                 "[0.5, 0.5, 0.5]");
    for (const int64_t side : setup.sides)
      if (side % codec_->factor() != 0)
        fail_usage("images of ", side, " pixels a side: ", spec_.name, " takes multiples of ",
                   codec_->factor());
  }

  std::vector<Part> parts() const override { return {{"", model_}, {"latent_scale.", scale_}}; }
  std::vector<ExportedPart> exported(int64_t side) override {
    onnx::FunctionInput latents =
        image_input(codec_->latent_channels(), side / codec_->factor(), side / codec_->factor());
    latents.name = "latents";
    return {exported_part("encoder", {image_input(3, side, side)}, {"mean", "logvar"},
                          [this](const auto& in) {
                            const auto found = models::LatentDistribution::of_moments(codec_->moments(in[0]));
                            return std::vector<torch::Tensor>{found.mean, found.logvar};
                          }),
            exported_part("decoder", {latents}, {"images"}, [this](const auto& in) {
              return std::vector<torch::Tensor>{codec_->decode(in[0])};
            })};
  }
  std::vector<BackbonePart> backbones() const override { return {{"", model_, spec_}}; }
  int64_t macs(int64_t side) const override { return model_->macs(side, side); }

  std::vector<StreamSpec> streams() const override {
    return {training_images(train_, preprocess_, augment_)};
  }
  StreamSpec validation() const override { return validation_images(validation_, preprocess_); }

  // Adds the field "noise": normal numbers with the latent's shape.
  void prepare(std::span<data::Batch> batches, const StepKey& key) const override {
    data::Batch& batch = batches[0];
    const std::vector<int64_t> image = batch.at("image").field.shape;
    const int64_t factor = codec_->factor();
    const data::Field field{
        "noise", DType::f32, {codec_->latent_channels(), image.at(1) / factor, image.at(2) / factor}};
    const int64_t numbers = field.numel();
    const std::span<float> values = batch.add(field).values<float>();
    for (int64_t i = 0; i < batch.size; ++i) {
      RandomStream random(key.seed, "latent noise", static_cast<uint64_t>(key.step),
                          static_cast<uint64_t>(batch.first + i));
      for (int64_t k = 0; k < numbers; ++k)
        values[static_cast<size_t>(i * numbers + k)] = static_cast<float>(random.normal());
    }
  }

  std::vector<MetricInfo> step_metrics() const override {
    return {{"l1", Unit::number, false}, {"kl", Unit::number, false}};
  }
  Loss loss(const Inputs& inputs, const models::Context&, Collective&) override {
    const VaePass pass = vae_pass(*codec_, inputs.at("image"), inputs.at("noise"), config_.kl_weight);
    if (scale_->is_training()) scale_->follow(pass.latent);
    const auto count = static_cast<double>(inputs.size());
    return {pass.loss.sum(), {{pass.error.detach().sum(), count}, {pass.kl.detach().sum(), count}}};
  }
  bool repeats_its_calls() const override { return true; }

  std::vector<std::unique_ptr<Evaluator>> evaluators() override {
    return one_evaluator(*this, [this](const EvaluateOptions& options) { return evaluate(options); });
  }
  MetricInfo main_metric() const override { return {"psnr", Unit::number, true}; }

 private:
  Findings evaluate(const EvaluateOptions& options);
  report::PicturesBlock reconstructions(const torch::Tensor& images, const torch::Tensor& decoded) const;

  VaeConfig config_;
  data::Preprocess preprocess_;
  data::AugmentConfig augment_;
  std::shared_ptr<const data::Source> train_, validation_;
  models::ModelSpec spec_;
  std::shared_ptr<models::Backbone> model_;
  models::LatentCodec* codec_;
  std::shared_ptr<LatentScale> scale_;
};

// Decodes each latent's mean, so metrics do not depend on a draw.
Findings Vae::evaluate(const EvaluateOptions& options) {
  enum Column { kPsnr, kError, kKl, kLoss, kColumns };
  SampleRows rows(kColumns);
  std::vector<report::Block> shown;
  Findings out = evaluate_rows(options, validation(), rows, [&](data::Batch& loaded) {
    const StreamInputs batch = to_device(loaded, options);
    VaePass pass;
    {
      const AutocastScope autocast(options.device, options.precision);
      pass = vae_pass(*codec_, batch.at("image"), {}, config_.kl_weight);
    }
    if (loaded.first == 0 && options.wants("pictures"))
      shown.emplace_back(reconstructions(batch.at("image"), pass.decoded));
    return torch::stack({psnr(pass.decoded, batch.at("image")), pass.error, pass.kl, pass.loss}, 1);
  });
  out.blocks = std::move(shown);
  const auto mean = [&](Column column) {
    double sum = 0;
    for (const float value : rows.column(column)) sum += static_cast<double>(value);
    return sum / static_cast<double>(out.samples);
  };
  out.metrics = {{main_metric(), mean(kPsnr)},
                 {{"l1", Unit::number, false}, mean(kError)},
                 {{"kl", Unit::number, false}, mean(kKl)},
                 {{"loss", Unit::number, false}, mean(kLoss)}};
  return out;
}

report::PicturesBlock Vae::reconstructions(const torch::Tensor& images, const torch::Tensor& decoded) const {
  report::PicturesBlock block{.heading = "Reconstructions",
                              .note = "Validation images, and each decoded from the mean of its latent.",
                              .together = 2};
  for (int64_t i = 0; i < std::min(kShownImages, images.size(0)); ++i) {
    block.pictures.push_back({picture_of(images[i], preprocess_), "image", ""});
    block.pictures.push_back({picture_of(decoded[i], preprocess_), "decoded", ""});
  }
  return block;
}

}  // namespace

VaePass vae_pass(models::LatentCodec& codec, const torch::Tensor& images, const torch::Tensor& noise,
                 double kl_weight) {
  const auto wide = [](const torch::Tensor& x) {
    return x.scalar_type() == torch::kFloat64 ? x : x.to(torch::kFloat32);
  };
  const models::LatentDistribution encoded =
      models::LatentDistribution::of_moments(wide(codec.moments(images)));
  VaePass pass;
  pass.latent = noise.defined() ? encoded.sample(noise) : encoded.mean;
  pass.decoded = wide(codec.decode(pass.latent));
  pass.error = (pass.decoded - images).abs().mean({1, 2, 3});
  pass.kl = encoded.kl();
  pass.loss = pass.error + kl_weight / static_cast<double>(images[0].numel()) * pass.kl;
  return pass;
}

torch::Tensor psnr(const torch::Tensor& decoded, const torch::Tensor& images) {
  const torch::Tensor error = (decoded.clamp(-1, 1) - images).square().mean({1, 2, 3});
  return 10 * (4 / error.clamp_min(kLeastSquaredError)).log10();
}

TaskKind vae_kind() {
  return task_kind<Vae, VaeConfig>("vae", "an auto-encoder of images, for a generator of its latents",
                                   {.fit_model = [](Value&, const Value&, const data::Source*) {},
                                    .reads_classes = false,
                                    .captions = data::CaptionUse::none});
}

}  // namespace tessera::tasks
