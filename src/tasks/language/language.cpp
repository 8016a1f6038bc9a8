#include "tasks/language/language.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "models/base/family.h"
#include "tasks/base/sample_rows.h"
#include "tasks/base/task_kind.h"
#include "tasks/base/validation_pass.h"
#include "tasks/language/language_part.h"
#include "tasks/language/packed_texts.h"
#include "tasks/language/spans.h"

namespace tessera::tasks {
namespace {

// The field is called "language_model" so that tensor names match those of task instruct, which can start
// from such weights.
class LanguagePart final : public torch::nn::Module {
 public:
  explicit LanguagePart(const models::LanguageConfig& config)
      : model_(register_module("language_model", std::make_shared<models::LanguageModel>(config))) {}
  const std::shared_ptr<models::LanguageModel>& model() const { return model_; }

 private:
  std::shared_ptr<models::LanguageModel> model_;
};

LanguageTaskConfig settings_of(const TaskSetup& setup) {
  if (setup.model.family != models::kNoBackbone)
    fail_usage("task language reads no images: model.name = \"", setup.model.name, "\", must be \"",
               models::kNoBackbone, "\"");
  return read_task<LanguageTaskConfig>(setup.settings);
}

class Language final : public Task, public Answers, public LanguageBeginner {
 public:
  explicit Language(const TaskSetup& setup)
      : config_(settings_of(setup)),
        spec_(setup.model),
        tokeniser_(
            open_task_tokeniser(config_.tokenizer, config_.language.vocabulary, setup, "task language")),
        backbone_(setup.build_backbone(setup.model)) {
    if (tokeniser_) config_.language.vocabulary = tokeniser_->size();
    if (config_.length > config_.language.context)
      fail_usage("task.length = ", config_.length,
                 ", the language model reads task.language.context = ", config_.language.context);
    part_ = setup.build([&] {
      auto part = std::make_shared<LanguagePart>(config_.language);
      if (setup.draws()) part->model()->initialise(setup.seed);
      return part;
    });
    train_ = packed(setup.train);
    validation_ = packed(setup.validation);
  }

  std::vector<Part> parts() const override { return {{"", part_}}; }
  std::vector<BackbonePart> backbones() const override { return {{"", backbone_, spec_}}; }
  std::string outputs() const override { return "language model"; }
  int64_t macs(int64_t) const override { return part_->model()->macs(config_.length); }
  std::vector<StreamSpec> streams() const override {
    return {{.name = "train",
             .source = train_,
             .transform = [this](int64_t) { return make_window_transform(config_.length); },
             .labelled = false}};
  }
  StreamSpec validation() const override {
    return {.name = "validation", .source = validation_, .transform = [this](int64_t) {
              return make_window_transform(config_.length);
            }};
  }

  std::vector<MetricInfo> step_metrics() const override { return {{"accuracy", Unit::share}}; }
  bool weight_counts_samples() const override { return false; }
  double weight(const Inputs& inputs) const override {
    return static_cast<double>((inputs.on_host("ids").slice(1, 1) >= 0).sum().item<int64_t>());
  }
  Loss loss(const Inputs& inputs, const models::Context&, Collective&) override {
    const Scored scored = score(inputs.at("ids"));
    return token_loss(scored.logits, scored.labels, part_->model()->config().vocabulary);
  }
  bool repeats_its_calls() const override { return true; }

  std::vector<std::unique_ptr<Evaluator>> evaluators() override {
    return one_evaluator(*this, [this](const EvaluateOptions& options) { return evaluate(options); });
  }
  MetricInfo main_metric() const override { return {"perplexity", Unit::number, false}; }
  AnsweringModel answering_model() const override {
    return {.language = part_->model(), .tokeniser = tokeniser_.value()};
  }
  std::string language_weights() const override { return config_.language_weights; }
  void begin_language(const models::LanguageModel& stored, const Tokeniser& tokeniser) override {
    copy_language_weights(stored, tokeniser, *part_->model(), tokeniser_.value(), config_.language_weights);
  }
  Value metadata() const override {
    return tokeniser_ ? models::table({{"tokenizer", tokeniser_->definition()}}) : Value();
  }

 private:
  struct Scored {
    torch::Tensor logits, labels;  // [batch, length, vocabulary] in float32 or float64; int64 [batch, length]
  };

  // Scores each token of a window except the first, given its predecessors.
  Scored score(const torch::Tensor& given) {
    const torch::Tensor ids = given.to(torch::kInt64);
    models::LanguageModel& model = *part_->model();
    torch::Tensor logits = model.logits_share(model.hidden({.ids = ids.slice(1, 0, -1).clamp_min(0)}));
    if (logits.scalar_type() != torch::kFloat64) logits = logits.to(torch::kFloat32);
    return {logits, ids.slice(1, 1).contiguous()};
  }

  std::shared_ptr<const PackedTexts> packed(const std::shared_ptr<const data::Source>& texts) const {
    if (!tokeniser_) return nullptr;
    return packed_texts(texts, *tokeniser_, separator_of(*tokeniser_, config_.tokenizer), config_.length);
  }

  Findings evaluate(const EvaluateOptions& options);

  LanguageTaskConfig config_;
  models::ModelSpec spec_;
  std::optional<Tokeniser> tokeniser_;
  std::shared_ptr<models::Backbone> backbone_;
  std::shared_ptr<LanguagePart> part_;
  std::shared_ptr<const PackedTexts> train_, validation_;
};

Findings Language::evaluate(const EvaluateOptions& options) {
  SampleRows rows(3);  // loss, tokens, right ones
  Findings out = evaluate_rows(options, validation(), rows,
                               [&](data::Batch& loaded) {
                                 const StreamInputs batch = to_device(loaded, options);
                                 Scored scored;
                                 {
                                   const AutocastScope autocast(options.device, options.precision);
                                   scored = score(batch.at("ids"));
                                 }
                                 return token_sums(scored.logits, scored.labels);
                               },
                               {"text", "windows"});
  out.metrics = token_metrics(main_metric(), rows);
  // Tokenisers cover different amounts of text per token; bits per byte are comparable.
  double total = 0;
  for (const float loss : rows.column(0)) total += static_cast<double>(loss);
  const double bits = total / std::log(2.0) / static_cast<double>(validation_->bytes());
  out.metrics.insert(out.metrics.begin() + 2, {{"bits_per_byte", Unit::number, false}, bits});
  return out;
}

}  // namespace

TaskKind language_kind() {
  TaskKind kind = task_kind<Language, LanguageTaskConfig>(
      "language", "language modelling: each token of a text from those before it, or missing spans",
      {.command = "chat", .path_keys = {"tokenizer", "language_weights"}});
  kind.make = [](const TaskSetup& setup) -> std::unique_ptr<Task> {
    const LanguageTaskConfig config = settings_of(setup);
    if (config.form == TextForm::seq2seq) return make_span_task(setup, config);
    return std::make_unique<Language>(setup);
  };
  return kind;
}

}  // namespace tessera::tasks
