#include "tasks/pairs/simvlm.h"

#include <algorithm>

#include "core/error.h"
#include "core/progress.h"
#include "core/random.h"
#include "core/text.h"
#include "models/pairs/simvlm.h"
#include "tasks/base/paired.h"
#include "tasks/base/task_kind.h"
#include "tasks/base/text_limit.h"
#include "tasks/base/validation_pass.h"
#include "tasks/pairs/caption_model.h"

namespace tessera::tasks {
namespace {

constexpr const char *kPrefix = "prefix",
                     *kValid = "valid";  // i64 []: number of tokens read in both directions, and in total

class SimVlmTask final : public Task, public CaptionEvaluation, public Captioner, public TextLimit {
 public:
  explicit SimVlmTask(const TaskSetup& setup)
      : config_(read_task<SimVlmTaskConfig>(setup.settings)),
        input_(config_.tokenizer, setup.metadata, setup.train.get()),
        preprocess_(setup.preprocess),
        augment_(setup.augment),
        train_(setup.train),
        validation_(setup.validation),
        spec_(setup.model),
        backbone_(setup.build_backbone(setup.model)) {
    if (config_.text_dim % config_.text_heads != 0)
      fail_usage("task.text_dim = ", config_.text_dim,
                 ", must be a multiple of task.text_heads = ", config_.text_heads);
    set_eval_captions(config_.eval_captions);
    if (config_.longest > config_.context_length)
      fail_usage("task.longest = ", config_.longest,
                 ", must be at most task.context_length = ", config_.context_length);
    require_captions({train_.get(), validation_.get()}, "task simvlm");
    if (setup.sides.size() > 1)
      fail_usage("task simvlm has a learned position for each image token: train.sizes holds several sides");
    const TokenExtent extent =
        image_token_extent(*backbone_, spec_, setup.sides.empty() ? preprocess_.size : setup.sides.front());
    text_ = setup.build([&] {
      auto model =
          std::make_shared<models::SimVlm>(models::SimVlmConfig{.vocab_size = input_.size(),
                                                                .context_length = config_.context_length,
                                                                .dim = config_.text_dim,
                                                                .heads = config_.text_heads,
                                                                .depth = config_.text_depth,
                                                                .decoder_depth = config_.decoder_depth,
                                                                .hidden = config_.text_hidden,
                                                                .image_width = extent.width,
                                                                .image_tokens = extent.count});
      if (setup.draws()) model->initialise(setup.seed);
      return model;
    });
  }

  std::vector<Part> parts() const override { return {{"", backbone_}, {"simvlm.", text_}}; }
  std::vector<BackbonePart> backbones() const override { return {{"", backbone_, spec_}}; }
  int64_t macs(int64_t side) const override { return backbone_->macs(side, side) + text_->macs(); }
  std::string outputs() const override { return "text model"; }
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
  void prepare(std::span<data::Batch> batches, const StepKey& key) const override;

  double weight(const Inputs& inputs) const override {
    return (inputs.on_host(kValid) - inputs.on_host(kPrefix)).sum().item<double>();
  }
  bool weight_counts_samples() const override { return false; }
  Loss loss(const Inputs& inputs, const models::Context& context, Collective&) override {
    const torch::Tensor ids = inputs.at("tokens").to(torch::kInt64);
    const torch::Tensor &prefix = inputs.at(kPrefix), &valid = inputs.at(kValid);
    const torch::Tensor logits =
        text_->forward(read(inputs.at("image"), context), ids, prefix, valid, context);
    return {models::prefix_loss(logits, ids, prefix, valid).sum, {}};
  }

  std::vector<std::unique_ptr<Evaluator>> evaluators() override {
    return one_evaluator(*this, [this](const EvaluateOptions& options) { return evaluate(options); });
  }
  MetricInfo main_metric() const override { return {"cider"}; }

  std::vector<std::string> caption(const torch::Tensor& images, const CaptionRequest& request) override {
    return captions_of(read(images), request);
  }

  std::vector<WordAttention> attention(const torch::Tensor& image, const std::string& caption) override {
    const std::vector<int32_t> ids = input_.fit(caption, config_.context_length, "the caption");
    const torch::Tensor tokens = read(image);
    const auto number = [&](int64_t value) {
      return torch::full({1}, value, torch::TensorOptions(torch::kInt64).device(tokens.device()));
    };
    const torch::Tensor row = torch::tensor(ids, torch::kInt64).unsqueeze(0).to(tokens.device());
    return word_attention(text_->attention(tokens, row, number(1), number(std::ssize(ids))), ids, input_);
  }

 private:
  torch::Tensor read(const torch::Tensor& images, const models::Context& context = {}) {
    return image_tokens(*backbone_, images, ImageTokens::patches, context);
  }
  std::vector<std::string> captions_of(const torch::Tensor& tokens, const CaptionRequest& request);
  Findings evaluate(const EvaluateOptions& options);

  SimVlmTaskConfig config_;
  TextInput input_;
  data::Preprocess preprocess_;
  data::AugmentConfig augment_;
  std::shared_ptr<const data::Source> train_, validation_;
  models::ModelSpec spec_;
  std::shared_ptr<models::Backbone> backbone_;
  std::shared_ptr<models::SimVlm> text_;
};

// At least the start token is bidirectional, and at least the last token is predicted.
void SimVlmTask::prepare(std::span<data::Batch> batches, const StepKey& key) const {
  data::Batch& batch = batches[0];
  const auto length = static_cast<size_t>(config_.context_length);
  const std::span<const int32_t> tokens = batch.values<int32_t>("tokens");
  std::vector<int64_t> valid;
  for (int64_t i = 0; i < batch.size; ++i) {
    const auto row = tokens.subspan(static_cast<size_t>(i) * length, length);
    const auto end = std::find(row.begin(), row.end(), input_.end());
    valid.push_back(std::min<int64_t>(std::distance(row.begin(), end) + 1, std::ssize(row)));
  }
  std::copy(valid.begin(), valid.end(),
            batch.add({.name = kValid, .dtype = DType::i64, .shape = {}}).values<int64_t>().begin());
  const std::span<int64_t> prefix =
      batch.add({.name = kPrefix, .dtype = DType::i64, .shape = {}}).values<int64_t>();
  for (int64_t i = 0; i < batch.size; ++i) {
    const auto place = static_cast<size_t>(i);
    RandomStream random(key.seed, "prefix", static_cast<uint64_t>(key.step),
                        static_cast<uint64_t>(batch.first + i));
    const auto choices = static_cast<uint64_t>(std::max<int64_t>(1, valid[place] - 1));
    prefix[place] = config_.prefix == PrefixKind::none ? 1 : 1 + static_cast<int64_t>(random.below(choices));
  }
}

std::vector<std::string> SimVlmTask::captions_of(const torch::Tensor& tokens, const CaptionRequest& request) {
  const torch::Device device = tokens.device();
  std::vector<int64_t> opening;  // tokens of the prompt
  if (!request.prompt.empty()) {
    int64_t cut = 0;
    const auto ids = input_.fit(request.prompt, config_.context_length, "the prompt", &cut);
    if (cut > 0)
      fail_usage("the prompt is ", cut, " tokens longer than the ", config_.context_length - 2,
                 " that the model reads");
    for (size_t i = 1; i < ids.size() && ids[i] != input_.end(); ++i) opening.push_back(ids[i]);
  }
  const auto start = static_cast<int64_t>(opening.size()) + 1;
  if (start >= config_.context_length)
    fail_usage("the prompt has ", opening.size(), " tokens, the model reads ", config_.context_length - 2);
  const torch::Tensor first = torch::tensor(opening, torch::kInt64).view({1, -1});
  std::vector<std::string> captions = write_captions(
      tokens.size(0), request, input_, config_.context_length - start + 1,
      [&](const torch::Tensor& ids, const torch::Tensor& image) {
        // The prompt follows the start.
        const torch::Tensor row =
            torch::cat({ids.slice(1, 0, 1), first.expand({ids.size(0), -1}), ids.slice(1, 1)}, 1).to(device);
        const auto all = [&](int64_t number) {
          return torch::full({row.size(0)}, number, torch::TensorOptions(torch::kInt64).device(device));
        };
        return text_->forward(tokens.index_select(0, image.to(device)), row, all(start), all(row.size(1)))
            .select(1, -1);
      });
  if (!request.prompt.empty())
    for (std::string& caption : captions) caption = request.prompt + " " + caption;
  return captions;
}

Findings SimVlmTask::evaluate(const EvaluateOptions& options) {
  WrittenCaptions written(input_, config_.context_length);
  const CaptionRequest request{.search = beams_,
                               .longest = config_.longest > 0 ? config_.longest : config_.context_length};
  Findings out = evaluate_each(options, validation(), [&](data::Batch& loaded) {
    const StreamInputs batch = to_device(loaded, options);
    const AutocastScope autocast(options.device, options.precision);
    written.add(loaded, captions_of(read(batch.at("image")), request));
  });
  written.collect(options);
  out.samples = std::ssize(written.indices());
  require_samples(out.samples);
  add_caption_scores(out, *validation_, written.indices(), written.captions(), eval_captions_, options);
  return out;
}

}  // namespace

TaskKind simvlm_kind() {
  return task_kind<SimVlmTask, SimVlmTaskConfig>(
      "simvlm", "captions written from images and their own beginnings: SimVLM",
      {.command = "caption",
       .path_keys = {"tokenizer"},
       .tables = {"samples"},
       .captions = data::CaptionUse::over_boxes});
}

}  // namespace tessera::tasks
