#include "tasks/pretrain/igpt.h"

#include <algorithm>

#include "core/error.h"
#include "core/random.h"
#include "models/backbones/igpt.h"
#include "models/base/capability.h"
#include "models/base/family.h"
#include "nn/init.h"
#include "nn/linear.h"
#include "tasks/base/report_blocks.h"
#include "tasks/base/sample_rows.h"
#include "tasks/base/task_kind.h"
#include "tasks/base/validation_pass.h"

namespace tessera::tasks {
namespace {

constexpr int64_t kCompleted = 4;  // images in the report

class NextPixel final : public Task {
 public:
  explicit NextPixel(const TaskSetup& setup)
      : config_(read_task<IgptConfig>(setup.settings)),
        preprocess_(setup.preprocess),
        augment_(setup.augment),
        train_(setup.train),
        validation_(setup.validation),
        spec_(setup.model),
        backbone_(setup.build_backbone(setup.model)),
        reader_(&models::require<models::ReadsColours>(*backbone_, spec_.family, "task igpt")),
        encoder_(&models::require<models::TokenEncoder>(*backbone_, spec_.family, "task igpt")) {
    check_settings(setup);
    const int64_t colours = reader_->palette().size(0);
    lm_head_ = setup.build([&] {
      return std::make_shared<nn::LinearImpl>(encoder_->token_width(), colours, /*with_bias=*/false);
    });
    if (!setup.draws()) return;
    nn::initialise(
        *lm_head_, setup.seed,
        [](const std::string&, const torch::Tensor&, const nn::Filler& fill) { fill.normal(0.02); });
    // A model that the setup makes gets its weights, trained with a palette, from a file.
    const bool begins = setup.train && setup.batch_size > 0 && !setup.continued && !setup.make_backbone;
    if (!config_.palette.empty())
      reader_->set_palette(read_palette(config_.palette, colours));
    else if (begins)
      reader_->set_palette(kmeans_palette(palette_pixels(setup, *reader_), colours, setup.seed));
  }

  std::vector<Part> parts() const override { return {{"", backbone_}, {"lm_head.", lm_head_}}; }
  std::vector<BackbonePart> backbones() const override { return {{"", backbone_, spec_}}; }
  int64_t macs(int64_t side) const override {
    return backbone_->macs(side, side) + rows_ * columns_ * lm_head_->macs();
  }
  std::vector<StreamSpec> streams() const override {
    return {training_images(train_, preprocess_, augment_)};
  }
  StreamSpec validation() const override { return validation_images(validation_, preprocess_); }
  // For bert, adds the field "mask", i64 [pixels]: 1 = masked.
  void prepare(std::span<data::Batch> batches, const StepKey& key) const override {
    add_masks(batches[0], [&](int64_t sample) {
      return RandomStream(key.seed, "mask", static_cast<uint64_t>(key.step),
                          static_cast<uint64_t>(batches[0].first + sample));
    });
  }
  // Predicted pixels.
  double weight(const Inputs& inputs) const override {
    return masks() ? inputs.on_host("mask").sum().item<double>()
                   : static_cast<double>(inputs.size() * pixels());
  }
  bool weight_counts_samples() const override { return false; }
  Loss loss(const Inputs& inputs, const models::Context& context, Collective&) override {
    return {losses(inputs.main(), context).sum(), {}};
  }
  bool repeats_its_calls() const override { return true; }
  std::vector<std::unique_ptr<Evaluator>> evaluators() override {
    return one_evaluator(*this, [this](const EvaluateOptions& options) { return evaluate(options); });
  }
  MetricInfo main_metric() const override { return {"loss", Unit::number, false}; }

 private:
  bool masks() const { return config_.objective == IgptObjective::bert; }
  int64_t pixels() const { return rows_ * columns_; }
  int64_t start() const { return reader_->palette().size(0); }
  void check_settings(const TaskSetup& setup);
  void add_masks(data::Batch& batch, const std::function<RandomStream(int64_t sample)>& stream_of) const;
  // The losses of the predicted pixels, 0 elsewhere, [batch, pixels].
  torch::Tensor losses(const StreamInputs& inputs, const models::Context& context);
  Findings evaluate(const EvaluateOptions& options);
  torch::Tensor middle_features(const torch::Tensor& images);
  torch::Tensor completed(const torch::Tensor& colours, int64_t known, uint64_t seed);
  report::PicturesBlock completions(const StreamInputs& batch, uint64_t seed);

  IgptConfig config_;
  data::Preprocess preprocess_;
  data::AugmentConfig augment_;
  std::shared_ptr<const data::Source> train_, validation_;
  models::ModelSpec spec_;
  std::shared_ptr<models::Backbone> backbone_;
  models::ReadsColours* reader_;
  models::TokenEncoder* encoder_;
  std::shared_ptr<nn::LinearImpl> lm_head_;
  int64_t rows_ = 0, columns_ = 0;
};

void NextPixel::check_settings(const TaskSetup& setup) {
  const models::Extent image = models::extent_of(*spec_.settings.find("image_size"), "image_size");
  const int64_t cell = spec_.settings.find("patch_size")->as_int();
  rows_ = image.height / cell, columns_ = image.width / cell;
  for (const int64_t side : setup.sides)
    if (side != image.height || side != image.width)
      fail_usage("train.sizes holds ", side, ": task igpt takes images of model.image_size = ", image.height);
  for (size_t c = 0; c < preprocess_.mean.size(); ++c)
    if (preprocess_.mean.size() != 3 || preprocess_.mean[c] != 0.5 || preprocess_.std[c] != 0.5)
      fail_usage(
          "task igpt reads pixels from -1 to 1: preprocess.mean and preprocess.std must be [0.5, 0.5, 0.5]");
  if (const bool causal = spec_.settings.find("causal")->as_bool(); causal == masks())
    fail_usage("task.objective = \"", name_of(config_.objective),
               "\" goes with model.causal = ", causal ? "false" : "true");
}

void NextPixel::add_masks(data::Batch& batch,
                          const std::function<RandomStream(int64_t sample)>& stream_of) const {
  if (!masks()) return;
  const auto values = batch.add({"mask", DType::i64, {pixels()}}).values<int64_t>();
  for (int64_t i = 0; i < batch.size; ++i) {
    RandomStream random = stream_of(i);
    for (int64_t pixel = 0; pixel < pixels(); ++pixel)
      values[static_cast<size_t>(i * pixels() + pixel)] = random.uniform() < config_.mask_ratio ? 1 : 0;
  }
}

torch::Tensor NextPixel::losses(const StreamInputs& inputs, const models::Context& context) {
  const torch::Tensor colours = reader_->colours_of(inputs.at("image"));
  const torch::Tensor* mask = inputs.find("mask");
  const torch::Tensor ids =
      mask ? colours.masked_fill(mask->to(torch::kBool), start()) : igpt_shifted(colours, start());
  const models::Encoded encoded = encoder_->encode(reader_->sequence(ids, rows_, columns_), context);
  const torch::Tensor each = igpt_losses(lm_head_->forward(encoded.tokens), colours);
  return mask ? each * *mask : each;
}

// A block in the middle has the best features (Chen et al. 2020, section 4.1).
torch::Tensor NextPixel::middle_features(const torch::Tensor& images) {
  return backbone_->features(images, {backbone_->block_count() / 2}).front().mean({2, 3});
}

Findings NextPixel::evaluate(const EvaluateOptions& options) {
  SampleRows sums(2);  // loss, predicted pixels
  FeatureHealth health(encoder_->token_width());
  std::vector<report::Block> shown;
  Findings out = evaluate_rows(options, validation(), sums, [&](data::Batch& loaded) {
    add_masks(loaded, [&](int64_t sample) {
      return RandomStream(0, "validation mask", static_cast<uint64_t>(loaded.first + sample));
    });
    const StreamInputs batch = to_device(loaded, options);
    const AutocastScope autocast(options.device, options.precision);
    const torch::Tensor each = losses(batch, {}).sum(1).to(torch::kFloat64);
    if (health.wants(loaded)) health.add(loaded, middle_features(batch.at("image")));
    if (loaded.first == 0 && !masks() && options.wants("completions"))
      shown.emplace_back(completions(batch, options.seed));
    const torch::Tensor counts =
        masks() ? batch.at("mask").sum(1).to(each.options()) : torch::full_like(each, pixels());
    return torch::stack({each, counts}, 1);
  });
  out.blocks = std::move(shown);
  const torch::Tensor all = sums.rows().to(torch::kFloat64).sum(0);
  out.metrics = {mean_metric(main_metric(), all[0].item<double>(), all[1].item<double>())};
  health.finish(options, validation_.get(), out);
  return out;
}

// Draws all colours except the first `known` of each image, one after another.
torch::Tensor NextPixel::completed(const torch::Tensor& colours, int64_t known, uint64_t seed) {
  auto& causal = models::require<models::CausalStep>(*backbone_, spec_.family, "task igpt");
  const int64_t count = colours.size(0);
  torch::Tensor ids = colours.clone();
  models::Cache cache = causal.start(count);
  torch::Tensor z = causal.step(reader_->embed_ids(torch::full_like(ids.select(1, 0), start())), cache);
  for (int64_t t = 0; t < pixels(); ++t) {
    if (t >= known) {
      const torch::Tensor shares = lm_head_->forward(z)
                                       .squeeze(1)
                                       .to(torch::kFloat64)
                                       .softmax(1)
                                       .cumsum(1)
                                       .to(torch::kCPU)
                                       .contiguous();
      const auto share = shares.accessor<double, 2>();
      for (int64_t i = 0; i < count; ++i) {
        RandomStream random(seed + static_cast<uint64_t>(i), "completion", static_cast<uint64_t>(t));
        const double drawn = random.uniform() * share[i][start() - 1];
        int64_t colour = 0;
        while (colour + 1 < start() && share[i][colour] <= drawn) ++colour;
        ids[i][t] = colour;
      }
    }
    if (t + 1 < pixels()) z = causal.step(reader_->embed_ids(ids.select(1, t)), cache);
  }
  return ids;
}

report::PicturesBlock NextPixel::completions(const StreamInputs& batch, uint64_t seed) {
  report::PicturesBlock block{
      .heading = "Completions",
      .note =
          "The upper half of a validation image in the palette's colours, and the rest drawn pixel by pixel.",
      .together = 2};
  const int64_t count = std::min(kCompleted, batch.size), known = rows_ / 2 * columns_;
  const torch::Tensor colours = reader_->colours_of(batch.at("image").slice(0, 0, count));
  const torch::Tensor drawn = completed(colours, known, seed);
  const auto picture = [&](const torch::Tensor& ids, int64_t shown) {
    const torch::Tensor rows = reader_->palette().index_select(0, ids).to(torch::kFloat32).clone();
    rows.slice(0, shown).zero_();
    return picture_of(rows.view({rows_, columns_, 3}).permute({2, 0, 1}), preprocess_);
  };
  for (int64_t i = 0; i < count; ++i) {
    block.pictures.push_back({picture(colours[i], known), "given", ""});
    block.pictures.push_back({picture(drawn[i], pixels()), "completed", ""});
  }
  return block;
}

}  // namespace

torch::Tensor igpt_shifted(const torch::Tensor& colours, int64_t start) {
  return torch::cat({torch::full_like(colours.slice(1, 0, 1), start), colours.slice(1, 0, -1)}, 1);
}

torch::Tensor igpt_losses(const torch::Tensor& scores, const torch::Tensor& colours) {
  const torch::Tensor wide = scores.scalar_type() == torch::kFloat64 ? scores : scores.to(torch::kFloat32);
  return -wide.log_softmax(2).gather(2, colours.unsqueeze(2)).squeeze(2);
}

TaskKind igpt_kind() {
  return task_kind<NextPixel, IgptConfig>(
      "igpt", "colours of pixels (iGPT): each from those before it, or masked ones from the others",
      {.path_keys = {"palette"}, .reads_classes = false, .captions = data::CaptionUse::none});
}

}  // namespace tessera::tasks
