#include "tasks/pairs/coca.h"

#include <algorithm>

#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "models/pairs/coca.h"
#include "models/pairs/two_tower.h"
#include "tasks/base/exported.h"
#include "tasks/base/losses.h"
#include "tasks/base/paired.h"
#include "tasks/base/task_kind.h"
#include "tasks/base/text_limit.h"
#include "tasks/base/validation_pass.h"
#include "tasks/base/zero_shot.h"
#include "tasks/pairs/caption_model.h"
#include "tasks/pairs/pair_loss.h"

namespace tessera::tasks {
namespace {

class CocaTask final : public Task,
                       public PairedEmbedding,
                       public CaptionEvaluation,
                       public Captioner,
                       public TextLimit {
 public:
  explicit CocaTask(const TaskSetup& setup)
      : config_(read_task<CocaTaskConfig>(setup.settings)),
        input_(config_.tokenizer, setup.metadata, setup.train.get()),
        preprocess_(setup.preprocess),
        augment_(setup.augment),
        train_(setup.train),
        validation_(setup.validation),
        spec_(setup.model),
        backbone_(setup.build_backbone(setup.model)) {
    for (const auto& [width, heads, name] : {std::tuple(config_.text_dim, config_.text_heads, "text_dim"),
                                             {config_.text_dim, config_.decoder_heads, "text_dim"},
                                             {config_.embed_dim, config_.pooler_heads, "embed_dim"}})
      if (width % heads != 0)
        fail_usage("task.", name, " = ", width, ", must be a multiple of the heads, ", heads);
    if (!setup.meta && config_.vocab_size > 0) input_.expect_rows(config_.vocab_size, setup.file);
    if (setup.train || setup.validation) input_.check_rows();
    if (setup.batch_size == 1)
      fail_usage("task coca compares the pairs of a batch: train.batch_size is 1, must be at least 2");
    set_templates(config_.templates);
    set_eval_captions(config_.eval_captions);
    if (config_.longest > config_.context_length)
      fail_usage("task.longest = ", config_.longest,
                 ", must be at most task.context_length = ", config_.context_length);
    require_captions({train_.get(), validation_.get()}, "task coca");
    extent_ =
        image_token_extent(*backbone_, spec_, setup.sides.empty() ? preprocess_.size : setup.sides.front());
    coca_ = setup.build([&] {
      models::CocaConfig model;
      model.text.vocab_size = config_.vocab_size > 0 ? config_.vocab_size : input_.size();
      model.text.context_length = config_.context_length;
      model.text.dim = config_.text_dim, model.text.depth = config_.text_depth,
      model.text.heads = config_.text_heads;
      model.text.hidden = config_.text_hidden, model.text.mlp = config_.text_mlp;
      model.text.pad_token = input_.pad();
      model.image_width = extent_.width, model.embed_dim = config_.embed_dim;
      model.queries = config_.queries, model.pooler_heads = config_.pooler_heads;
      model.decoder_depth = config_.decoder_depth, model.decoder_heads = config_.decoder_heads;
      model.first_scale = 1 / config_.temperature;
      auto coca = std::make_shared<models::Coca>(model);
      if (setup.draws()) coca->initialise(setup.seed);
      return coca;
    });
  }

  std::vector<Part> parts() const override { return {{"", backbone_}, {"", coca_}}; }
  std::vector<BackbonePart> backbones() const override { return {{"", backbone_, spec_}}; }
  int64_t macs(int64_t side) const override {
    return backbone_->macs(side, side) + coca_->macs(image_token_extent(*backbone_, spec_, side).count);
  }
  std::string outputs() const override { return "pooler, text tower and decoder"; }
  std::vector<LongText> long_texts(const data::RawSample& sample) const override {
    return long_captions(sample, input_, config_.context_length);
  }
  Value metadata() const override { return input_.metadata(); }
  bool takes_outputs_of(const Value& stored) const override { return input_.is_that_of(stored); }

  std::vector<StreamSpec> streams() const override {
    return {training_pairs(train_, preprocess_, augment_, input_, config_.context_length,
                           config_.train_captions)};
  }
  StreamSpec validation() const override { return validation_images(validation_, preprocess_); }

  std::vector<MetricInfo> step_metrics() const override {
    return {{"accuracy", Unit::share}, {"caption_loss", Unit::number, false}};
  }
  bool whole_batch() const override { return true; }
  Loss loss(const Inputs& inputs, const models::Context& context, Collective& others) override;
  // A plan tries a batch of one sample, but training with one sample per step learns nothing.
  void after_step(const models::TrainingStep&) override {
    if (whole_ < 2)
      fail_usage("task coca compares the pairs of a batch: train.batch_size is ", whole_,
                 ", must be at least 2");
    coca_->bound_scale();
  }

  std::vector<std::unique_ptr<Evaluator>> evaluators() override {
    return one_evaluator(*this, [this](const EvaluateOptions& options) { return evaluate(options); });
  }
  MetricInfo main_metric() const override { return {"cider"}; }

  torch::Tensor embed_images(const torch::Tensor& images) override {
    return models::normalised_rows(coca_->image(read(images)).embed);
  }
  torch::Tensor embed_texts(const std::vector<std::string>& texts, CutTexts* cut) override;
  double similarity_scale() const override { return coca_->scale().item<double>(); }
  std::vector<ExportedPart> exported(int64_t side) override {
    const auto unit = [](const models::Coca::Side& of) {
      return std::vector<torch::Tensor>{models::normalised_rows(of.embed)};
    };
    const int64_t channels = models::input_channels(spec_.settings);
    return {exported_part("image", {image_input(channels, side, side)}, {"vector"},
                          [=, this](const auto& in) { return unit(coca_->image(read(in[0]))); }),
            exported_part("text",
                          {token_input(config_.context_length, input_.size(), input_.start(), input_.end())},
                          {"vector"}, [=, this](const auto& in) { return unit(coca_->text(in[0])); })};
  }
  std::vector<std::string> caption(const torch::Tensor& images, const CaptionRequest& request) override {
    if (!request.prompt.empty()) fail_usage("a CoCa takes no prompt for its captions (--prompt)");
    return captions_of(coca_->image(read(images)).tokens, request);
  }

  std::vector<WordAttention> attention(const torch::Tensor& image, const std::string& caption) override {
    const std::vector<int32_t> ids = input_.fit(caption, config_.context_length, "the caption");
    const torch::Tensor tokens = read(image);
    const torch::Tensor all =
        coca_->attention(tokens, torch::tensor(ids, torch::kInt64).unsqueeze(0).to(tokens.device()));
    // A class token may precede the patches.
    return word_attention(
        all.slice(1, tokens.size(1) - image_tokens(*backbone_, image, ImageTokens::patches).size(1)), ids,
        input_);
  }

 private:
  torch::Tensor read(const torch::Tensor& images, const models::Context& context = {}) {
    return image_tokens(*backbone_, images, ImageTokens::all, context);
  }
  std::vector<std::string> captions_of(const torch::Tensor& tokens, const CaptionRequest& request) {
    return write_captions(
        tokens.size(0), request, input_, config_.context_length,
        [&](const torch::Tensor& ids, const torch::Tensor& image) {
          const torch::Device device = tokens.device();
          return coca_->decode(tokens.index_select(0, image.to(device)), coca_->text(ids.to(device)).tokens)
              .select(1, -1);
        });
  }
  Findings evaluate(const EvaluateOptions& options);

  CocaTaskConfig config_;
  TextInput input_;
  data::Preprocess preprocess_;
  data::AugmentConfig augment_;
  std::shared_ptr<const data::Source> train_, validation_;
  models::ModelSpec spec_;
  std::shared_ptr<models::Backbone> backbone_;
  TokenExtent extent_;
  std::shared_ptr<models::Coca> coca_;
  int64_t whole_ = 2;  // samples of the current step, over all processes
};

Loss CocaTask::loss(const Inputs& inputs, const models::Context& context, Collective& others) {
  const int64_t first = inputs.main().first, whole = inputs.main().whole, count = inputs.size();
  whole_ = whole;
  const torch::Tensor ids = inputs.at("tokens").to(torch::kInt64);
  const models::Coca::Side image = coca_->image(read(inputs.at("image"), context)),
                           text = coca_->text(ids, context);
  const torch::Tensor images = models::normalised_rows(image.embed),
                      texts = models::normalised_rows(text.embed);
  const torch::Tensor own = torch::arange(count, torch::TensorOptions(torch::kInt64).device(images.device()));
  const PairOptions options{.chunk = config_.chunk, .others = &others};
  const PairLoss by_image = softmax_pairs(images, texts, coca_->scale(), own, options),
                 by_text = softmax_pairs(texts, images, coca_->scale(), own, options);
  const torch::Tensor logits = coca_->decode(image.tokens, text.tokens.slice(1, 0, ids.size(1) - 1), context);
  const torch::Tensor next = ids.slice(1, 1);
  const torch::Tensor captions =
      cross_entropy(logits.flatten(0, 1), next.flatten(), {.ignore_index = input_.pad(), .sum = true});
  // The loss is a mean over the tokens of all processes, while a step sums over its samples.
  const torch::Tensor lengths = next.ne(input_.pad()).sum(1, /*keepdim=*/true).to(images.scalar_type());
  const torch::Tensor tokens = others.gather(lengths, first, whole).sum();
  const torch::Tensor caption_sum = captions.to(images.scalar_type()) * (static_cast<double>(whole) / tokens);
  return {config_.contrast_weight * (by_image.sum + by_text.sum) / 2 + config_.caption_weight * caption_sum,
          {{by_image.right, static_cast<double>(count)}, {caption_sum.detach(), static_cast<double>(count)}}};
}

torch::Tensor CocaTask::embed_texts(const std::vector<std::string>& texts, CutTexts* cut) {
  return embed_in_batches(
      input_, texts, config_.context_length, config_.embed_dim, cut, [&](const torch::Tensor& ids) {
        return models::normalised_rows(coca_->text(ids.to(coca_->logit_scale.device())).embed);
      });
}

Findings CocaTask::evaluate(const EvaluateOptions& options) {
  SampleRows rows(config_.embed_dim);
  WrittenCaptions written(input_, config_.context_length);
  const CaptionRequest request{.search = beams_,
                               .longest = config_.longest > 0 ? config_.longest : config_.context_length};
  Findings out = evaluate_rows(options, validation(), rows, [&](data::Batch& loaded) {
    const StreamInputs batch = to_device(loaded, options);
    const AutocastScope autocast(options.device, options.precision);
    const models::Coca::Side image = coca_->image(read(batch.at("image")));
    written.add(loaded, captions_of(image.tokens, request));
    return models::normalised_rows(image.embed);
  });
  written.collect(options);
  add_caption_scores(out, *validation_, written.indices(), written.captions(), eval_captions_, options);
  CutTexts cut;
  add_retrieval(out, *validation_, rows, eval_captions_, *this, options,
                [&](const std::vector<std::string>& texts) {
                  const AutocastScope autocast(options.device, options.precision);
                  return embed_texts(texts, &cut);
                });
  if (cut.count > 0)
    out.metrics.push_back({{"texts_cut", Unit::number, false}, static_cast<double>(cut.count)});
  return out;
}

}  // namespace

TaskKind coca_kind() {
  return task_kind<CocaTask, CocaTaskConfig>("coca",
                                             "images and captions in one space, and captions written: CoCa",
                                             {.command = "caption",
                                              .path_keys = {"tokenizer"},
                                              .tables = {"classes", "samples"},
                                              .names_classes = true,
                                              .captions = data::CaptionUse::over_boxes});
}

}  // namespace tessera::tasks
