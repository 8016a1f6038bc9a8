#include "tasks/pretrain/dvae.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "core/threads.h"
#include "models/base/capability.h"
#include "models/base/codebook.h"
#include "models/base/tokeniser.h"
#include "models/heads/dvae_decoder.h"
#include "tasks/base/exported.h"
#include "tasks/base/report_blocks.h"
#include "tasks/base/task_kind.h"
#include "tasks/base/validation_pass.h"

namespace tessera::tasks {
namespace {

constexpr int64_t kDrawnImages = 8;  // images in the report
constexpr int64_t kPixel = 3;

std::vector<int64_t> integers_of(const Value& list) {
  std::vector<int64_t> out;
  for (const Value& item : list.as_array()) out.push_back(item.as_int());
  return out;
}

// The encoder's widths and blocks, reversed.
models::DvaeDecoderOptions decoder_options(const DvaeConfig& config, const models::ModelSpec& spec,
                                           const models::Tokeniser& tokeniser) {
  const torch::Tensor vectors = tokeniser.code_vectors();
  models::DvaeDecoderOptions options{.codes = vectors.defined() ? 0 : tokeniser.codes(),
                                     .code_width = vectors.defined() ? vectors.size(1) : config.code_width,
                                     .dims = integers_of(*spec.settings.find("dims")),
                                     .depths = integers_of(*spec.settings.find("depths")),
                                     .outputs = config.loss == DvaeLoss::mse ? kPixel : 2 * kPixel};
  std::reverse(options.dims.begin(), options.dims.end());
  std::reverse(options.depths.begin(), options.depths.end());
  return options;
}

class Dvae final : public Task, public models::DecodesTokens {
 public:
  explicit Dvae(const TaskSetup& setup)
      : config_(read_task<DvaeConfig>(setup.settings)),
        preprocess_(setup.preprocess),
        augment_(setup.augment),
        train_(setup.train),
        validation_(setup.validation),
        spec_(setup.model),
        backbone_(setup.build_backbone(setup.model)),
        tokeniser_(&models::require<models::Tokeniser>(*backbone_, spec_.family, "task dvae")),
        nearest_(tokeniser_->code_vectors().defined()),
        seed_(setup.seed) {
    for (size_t c = 0; c < preprocess_.mean.size(); ++c)
      if (preprocess_.mean[c] != 0 || preprocess_.std[c] != 1)
        fail_usage("task dvae reads pixels in [0, 1]: preprocess.mean must be [0, 0, 0] and preprocess.std ",
                   "[1, 1, 1]");
    for (const int64_t side : setup.sides)
      if (side % tokeniser_->cell() != 0)
        fail_usage("task dvae encodes a token from ", tokeniser_->cell(), " pixels a side; images of ", side,
                   " are no multiple of it");
    decoder_ = setup.build([&] {
      auto decoder = std::make_shared<models::DvaeDecoder>(decoder_options(config_, spec_, *tokeniser_));
      if (setup.draws()) decoder->initialise(setup.seed);
      return decoder;
    });
    if (nearest_) {
      const torch::Tensor vectors = tokeniser_->code_vectors();
      averages_ = setup.build([&] {
        auto averages = std::make_shared<torch::nn::Module>();
        averages->register_buffer("counts", nn::zeros({vectors.size(0)}));
        averages->register_buffer("sums", nn::zeros(vectors.sizes()));
        return averages;
      });
    }
  }

  std::vector<Part> parts() const override {
    std::vector<Part> parts = {{"", backbone_}, {"decoder.", decoder_}};
    if (nearest_) parts.push_back({"averages.", averages_});
    return parts;
  }
  std::vector<BackbonePart> backbones() const override { return {{"", backbone_, spec_}}; }
  int64_t macs(int64_t side) const override {
    const int64_t cells = side / tokeniser_->cell();
    return backbone_->macs(side, side) + decoder_->macs(cells, cells);
  }

  std::vector<StreamSpec> streams() const override {
    return {training_images(train_, preprocess_, augment_)};
  }
  StreamSpec validation() const override { return validation_images(validation_, preprocess_); }
  void prepare(std::span<data::Batch> batches, const StepKey& key) const override;
  // The codebook update uses all samples of a step, over all processes.
  bool whole_batch() const override { return nearest_; }
  std::vector<MetricInfo> step_metrics() const override {
    return {{nearest_ ? "commitment" : "divergence", Unit::number, false}};
  }
  Loss loss(const Inputs& inputs, const models::Context& context, Collective& others) override;
  void before_step(const models::TrainingStep& step) override { step_ = step.step; }
  void after_step(const models::TrainingStep& step) override;
  bool reads_steps() const override { return true; }

  std::vector<std::unique_ptr<Evaluator>> evaluators() override {
    return one_evaluator(*this, [this](const EvaluateOptions& options) { return evaluate(options); });
  }
  MetricInfo main_metric() const override { return {"loss", Unit::number, false}; }
  Findings evaluate(const EvaluateOptions& options);
  torch::Tensor pictures(const torch::Tensor& tokens) override { return pixels_of(decode(tokens)); }
  std::vector<ExportedPart> exported(int64_t side) override;

 private:
  // From the decoder's outputs: the pixel loss, [batch], and the pixels, [batch, 3, height, width].
  torch::Tensor each_loss(const torch::Tensor& decoded, const torch::Tensor& images) const;
  torch::Tensor pixels_of(const torch::Tensor& decoded) const;
  torch::Tensor decode(const torch::Tensor& tokens);
  report::PicturesBlock reconstructions(const torch::Tensor& images, const torch::Tensor& pixels) const;

  DvaeConfig config_;
  data::Preprocess preprocess_;
  data::AugmentConfig augment_;
  std::shared_ptr<const data::Source> train_, validation_;
  models::ModelSpec spec_;
  std::shared_ptr<models::Backbone> backbone_;
  models::Tokeniser* tokeniser_;
  bool nearest_;
  uint64_t seed_;
  std::shared_ptr<models::DvaeDecoder> decoder_;
  std::shared_ptr<torch::nn::Module> averages_;
  int64_t step_ = 0;
  torch::Tensor seen_;  // the step's vectors, of all processes
};

// Adds the field "gumbel", f32 [cells, codes], if codes are scored.
void Dvae::prepare(std::span<data::Batch> batches, const StepKey& key) const {
  if (nearest_) return;
  data::Batch& batch = batches[0];
  const std::vector<int64_t>& shape = batch.at("image").field.shape;
  const int64_t cells = shape[1] / tokeniser_->cell() * (shape[2] / tokeniser_->cell()),
                numbers = cells * tokeniser_->codes();
  const auto values = batch.add({"gumbel", DType::f32, {cells, tokeniser_->codes()}}).values<float>();
  parallel_for(batch.size, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      RandomStream stream(key.seed, "gumbel", static_cast<uint64_t>(key.step),
                          static_cast<uint64_t>(batch.first + i));
      for (int64_t at = i * numbers; at < (i + 1) * numbers; ++at) {
        const double uniform = (static_cast<double>(stream.next_u32()) + 0.5) / 4294967296.0;
        values[static_cast<size_t>(at)] = static_cast<float>(-std::log(-std::log(uniform)));
      }
    }
  });
}

Loss Dvae::loss(const Inputs& inputs, const models::Context&, Collective& others) {
  const torch::Tensor& images = inputs.at("image");
  const torch::Tensor outputs = tokeniser_->code_outputs(images);
  const auto samples = static_cast<double>(inputs.size());
  if (nearest_) {
    const models::Quantised quantised = models::quantise(outputs, tokeniser_->code_vectors());
    seen_ = others.gather(outputs.detach().flatten(1), inputs.main().first, inputs.main().whole)
                .reshape({-1, outputs.size(3)});
    const torch::Tensor commitment = quantised.commitment_loss * samples;
    return {each_loss(decoder_->forward(quantised.passed), images).sum() + config_.commitment * commitment,
            {{commitment.detach(), samples}}};
  }
  const double temperature = dvae_annealed(config_.temperature, config_.temperature_end, step_,
                                           config_.temperature_steps),
               weight = dvae_annealed(0, config_.kl_weight, step_, config_.kl_steps);
  const torch::Tensor gumbel = inputs.at("gumbel").view(outputs.sizes());
  const torch::Tensor weights = models::gumbel_weights(outputs, gumbel, temperature, config_.hard);
  const torch::Tensor decoded = decoder_->forward(decoder_->mixed(weights).to(outputs.scalar_type()));
  const torch::Tensor divergence = models::divergence_from_uniform(outputs).mean({1, 2}).sum();
  const auto cell = static_cast<double>(kPixel * tokeniser_->cell() * tokeniser_->cell());
  return {each_loss(decoded, images).sum() + divergence * (weight / cell), {{divergence.detach(), samples}}};
}

// Initialises the codes with random vectors of the first step; each gets count 1.
void Dvae::after_step(const models::TrainingStep&) {
  if (!seen_.defined()) return;
  const torch::NoGradGuard no_grad;
  torch::Tensor vectors = tokeniser_->code_vectors();
  auto buffers = averages_->named_buffers();
  torch::Tensor counts = buffers["counts"], sums = buffers["sums"];
  if (counts.sum().item<double>() == 0) {
    RandomStream stream(seed_, "codebook");
    std::vector<int64_t> rows;
    for (int64_t code = 0; code < vectors.size(0); ++code)
      rows.push_back(static_cast<int64_t>(stream.below(static_cast<uint64_t>(seen_.size(0)))));
    vectors.copy_(seen_.index_select(0, torch::tensor(rows, torch::kInt64).to(seen_.device())));
    counts.fill_(1);
    sums.copy_(vectors);
  } else {
    vectors.copy_(
        models::move_codebook(counts, sums, seen_, models::nearest_codes(seen_, vectors), config_.decay));
  }
  seen_ = torch::Tensor();
}

torch::Tensor Dvae::each_loss(const torch::Tensor& decoded, const torch::Tensor& images) const {
  const torch::Tensor pixels = images.permute({0, 2, 3, 1});
  const torch::Tensor each =
      config_.loss == DvaeLoss::mse
          ? (decoded.to(images.scalar_type()) - pixels).square()
          : models::logit_laplace(pixels, decoded.narrow(3, 0, kPixel), decoded.narrow(3, kPixel, kPixel));
  return each.mean({1, 2, 3});
}

torch::Tensor Dvae::pixels_of(const torch::Tensor& decoded) const {
  const torch::Tensor first = decoded.narrow(3, 0, kPixel);
  const torch::Tensor pixels = config_.loss == DvaeLoss::mse ? first.to(torch::kFloat32).clamp(0, 1)
                                                             : models::logit_laplace_pixels(first);
  return pixels.permute({0, 3, 1, 2});
}

torch::Tensor Dvae::decode(const torch::Tensor& tokens) {
  if (!nearest_) return decoder_->forward(decoder_->chosen(tokens));
  const torch::Tensor vectors = tokeniser_->code_vectors();
  std::vector<int64_t> shape = tokens.sizes().vec();
  shape.push_back(vectors.size(1));
  return decoder_->forward(vectors.index_select(0, tokens.flatten()).view(shape));
}

std::vector<ExportedPart> Dvae::exported(int64_t side) {
  const int64_t cells = side / tokeniser_->cell(), codes = tokeniser_->codes();
  const onnx::FunctionInput tokens{
      "tokens", {2, cells, cells}, [codes](const std::vector<int64_t>& shape, uint64_t draw) {
        return torch::randint(codes, shape, at::detail::createCPUGenerator(draw + 1), torch::kInt64);
      }};
  return {
      exported_part("encoder", {image_input(kPixel, side, side)}, {"tokens"},
                    [this](const auto& in) { return std::vector<torch::Tensor>{tokeniser_->tokens(in[0])}; }),
      exported_part("decoder", {tokens}, {"images"},
                    [this](const auto& in) { return std::vector<torch::Tensor>{pictures(in[0])}; })};
}

// Evaluates images through their tokens, with one code per cell.
Findings Dvae::evaluate(const EvaluateOptions& options) {
  SampleRows rows(2);  // loss, mean squared error
  std::unique_ptr<SampleRows> tokens;
  std::vector<report::Block> shown;
  Findings out = evaluate_rows(options, validation(), rows, [&](data::Batch& loaded) {
    const StreamInputs batch = to_device(loaded, options);
    const torch::Tensor& images = batch.at("image");
    const AutocastScope autocast(options.device, options.precision);
    const torch::Tensor index = tokeniser_->tokens(images), decoded = decode(index);
    const torch::Tensor pixels = pixels_of(decoded);
    const torch::Tensor error =
        (pixels.to(torch::kFloat64) - images.to(torch::kFloat64)).square().mean({1, 2, 3});
    if (!tokens) tokens = std::make_unique<SampleRows>(index[0].numel());
    tokens->add(loaded, index.flatten(1).to(torch::kFloat32));
    if (loaded.first == 0 && options.wants("pictures")) shown.emplace_back(reconstructions(images, pixels));
    return torch::stack({each_loss(decoded, images).to(torch::kFloat64), error}, 1);
  });
  if (!tokens) tokens = std::make_unique<SampleRows>(1);
  tokens->collect(options);
  out.blocks = std::move(shown);
  const torch::Tensor each = rows.rows().to(torch::kFloat64).mean(0);
  const torch::Tensor index = tokens->rows().to(torch::kInt64);
  const int64_t used = std::get<0>(torch::_unique(index)).size(0);
  out.metrics = {{main_metric(), each[0].item<double>()},
                 {{"psnr"}, -10 * std::log10(std::max(each[1].item<double>(), 1e-12))},
                 {{"codes_used"}, static_cast<double>(used)},
                 {{"perplexity"}, models::code_perplexity(index, tokeniser_->codes()).item<double>()}};
  return out;
}

report::PicturesBlock Dvae::reconstructions(const torch::Tensor& images, const torch::Tensor& pixels) const {
  report::PicturesBlock block{.heading = "Reconstructions",
                              .note = "Validation images, and their reconstructions from tokens.",
                              .together = 2};
  for (int64_t i = 0; i < std::min(kDrawnImages, images.size(0)); ++i) {
    block.pictures.push_back({picture_of(images[i], preprocess_), "image", ""});
    block.pictures.push_back({picture_of(pixels[i], preprocess_), "decoded", ""});
  }
  return block;
}

}  // namespace

double dvae_annealed(double begin, double end, int64_t step, int64_t steps) {
  if (step >= steps) return end;
  const double share = static_cast<double>(step) / static_cast<double>(steps);
  return end + (begin - end) * (1 + std::cos(std::numbers::pi * share)) / 2;
}

TaskKind dvae_kind() {
  return task_kind<Dvae, DvaeConfig>("dvae", "a discrete autoencoder: images as tokens of a codebook",
                                     {.reads_classes = false, .captions = data::CaptionUse::none});
}

}  // namespace tessera::tasks
