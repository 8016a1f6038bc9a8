#include "tasks/language/spans.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "models/base/family.h"
#include "nn/init.h"
#include "tasks/base/sample_rows.h"
#include "tasks/base/validation_pass.h"
#include "tasks/language/language_part.h"
#include "tasks/language/packed_texts.h"
#include "text/conversation.h"

namespace tessera::tasks {
namespace {

constexpr const char *kSource = "source", *kTarget = "target";  // i32, padded with kNotLearned

// Cuts `total` into `parts` positive lengths, all ways with the same probability.
std::vector<int64_t> random_parts(int64_t total, int64_t parts, RandomStream& random) {
  std::vector<int64_t> places = random.permutation(total - 1);
  places.resize(static_cast<size_t>(parts - 1));
  std::sort(places.begin(), places.end());
  std::vector<int64_t> lengths;
  int64_t before = 0;
  for (const int64_t place : places) lengths.push_back(place + 1 - before), before = place + 1;
  lengths.push_back(total - before);
  return lengths;
}

// T5: as in transformers, by the width that each matrix reads. Transformer: Glorot's.
void first_values(models::Seq2Seq& model, const models::Seq2SeqConfig& config, uint64_t seed) {
  const auto root = [](int64_t n) { return 1 / std::sqrt(static_cast<double>(n)); };
  const int64_t head = config.head_dim > 0 ? config.head_dim : config.dim / config.heads;
  nn::initialise(
      model, seed, [&](const std::string& name, const torch::Tensor& parameter, const nn::Filler& fill) {
        if (parameter.dim() < 2) return;
        if (config.kind == models::Seq2SeqKind::transformer) {
          if (name == "embedding.weight")
            fill.normal(root(config.dim));
          else
            fill.xavier_uniform();
        } else if (name == "shared.weight") {
          fill.normal(1);
        } else if (nn::ends_with(name, ".q.weight")) {
          fill.normal(root(config.dim * head));
        } else {
          fill.normal(root(name.find("relative_attention_bias") != std::string::npos ? config.dim
                                                                                     : parameter.size(1)));
        }
      });
}

// Returns the multiply-adds of a text: each matrix by the tokens that it reads, and the scores and values of attention.
// In attention to the memory, k and v read the source; the Transformer of 2017 has q, k and v in one matrix.
int64_t seq2seq_macs(const models::Seq2Seq& model, const models::Seq2SeqConfig& config, int64_t source,
                     int64_t target) {
  int64_t total = config.vocabulary * config.dim * target;
  for (const auto& entry : model.named_parameters()) {
    const std::string& name = entry.key();
    if (entry.value().dim() < 2 || name == "shared.weight" || name == "embedding.weight" ||
        name == "lm_head.weight" || name.find("relative_attention_bias") != std::string::npos)
      continue;
    const bool of_memory = name.find("EncDecAttention.k") != std::string::npos ||
                           name.find("EncDecAttention.v") != std::string::npos;
    const bool encoder = name.find("encoder.") != std::string::npos;
    const int64_t products = entry.value().numel();
    if (nn::ends_with(name, "multihead_attn.in_proj_weight"))
      total += products / 3 * (target + 2 * source);
    else
      total += products * (encoder || of_memory ? source : target);
  }
  const int64_t width = config.heads * (config.head_dim > 0 ? config.head_dim : config.dim / config.heads);
  return total +
         2 * width *
             (config.encoder_depth * source * source + config.decoder_depth * target * (target + source));
}

class SpanTask final : public Task, public Answers {
 public:
  SpanTask(const TaskSetup& setup, const LanguageTaskConfig& config)
      : config_(config),
        spec_(setup.model),
        tokeniser_(
            open_task_tokeniser(config_.tokenizer, config_.seq2seq.vocabulary, setup, "task language")),
        backbone_(setup.build_backbone(setup.model)),
        rule_{.noise = config_.noise, .mean_span = config_.mean_span, .sentinels = {}} {
    if (!config_.language_weights.empty()) fail_usage("task.language_weights is for task.form = \"decoder\"");
    if (tokeniser_) read_sentinels();
    const SpanCounts counts = span_counts(rule_, config_.length);
    if (tokeniser_ && counts.spans > std::ssize(rule_.sentinels))
      fail_usage("task.length = ", config_.length, " tokens have ", counts.spans,
                 " spans, task.sentinels is ", config_.sentinels);
    source_ = config_.length - counts.missing + counts.spans + 1;
    target_ = counts.missing + counts.spans + 1;
    model_ = setup.build([&] {
      auto model = models::make_seq2seq(config_.seq2seq);
      if (setup.draws()) first_values(*model, config_.seq2seq, setup.seed);
      return model;
    });
    train_ = packed(setup.train), validation_ = packed(setup.validation);
  }

  std::vector<Part> parts() const override { return {{"", model_}}; }
  std::vector<BackbonePart> backbones() const override { return {{"", backbone_, spec_}}; }
  std::string outputs() const override { return "encoder and decoder"; }
  int64_t macs(int64_t) const override { return seq2seq_macs(*model_, config_.seq2seq, source_, target_); }
  std::vector<StreamSpec> streams() const override {
    return {{.name = "train", .source = train_, .transform = transform(), .labelled = false}};
  }
  StreamSpec validation() const override {
    return {.name = "validation", .source = validation_, .transform = transform()};
  }
  void prepare(std::span<data::Batch> batches, const StepKey& key) const override {
    add_spans(batches[0], [&](int64_t sample) {
      return RandomStream(key.seed, "spans", static_cast<uint64_t>(key.step),
                          static_cast<uint64_t>(batches[0].first + sample));
    });
  }

  std::vector<MetricInfo> step_metrics() const override { return {{"accuracy", Unit::share}}; }
  bool weight_counts_samples() const override { return false; }
  double weight(const Inputs& inputs) const override {
    return static_cast<double>((inputs.on_host(kTarget) >= 0).sum().item<int64_t>());
  }
  Loss loss(const Inputs& inputs, const models::Context&, Collective&) override {
    const Scored scored = score(inputs.main());
    return token_loss(scored.logits, scored.labels, scored.logits.size(-1));
  }
  bool repeats_its_calls() const override { return true; }
  std::vector<std::unique_ptr<Evaluator>> evaluators() override {
    return one_evaluator(*this, [this](const EvaluateOptions& options) { return evaluate(options); });
  }
  MetricInfo main_metric() const override { return {"perplexity", Unit::number, false}; }
  AnsweringModel answering_model() const override {
    return {.language = nullptr,
            .tokeniser = tokeniser_.value(),
            .encoder_decoder = model_,
            .vocabulary = config_.seq2seq.vocabulary,
            .start = start(),
            .end = rule_.end};
  }
  Value metadata() const override {
    return tokeniser_ ? models::table({{"tokenizer", tokeniser_->definition()}}) : Value();
  }

 private:
  struct Scored {
    torch::Tensor logits, labels;  // [batch, target, vocabulary] in float32 or float64; int64 [batch, target]
  };

  // The decoder's first token, which is also the padding.
  int64_t start() const { return std::max(0, tokeniser_->special().pad); }

  void read_sentinels() {
    std::vector<std::string> names;
    for (int64_t i = 0; i < config_.sentinels; ++i) names.push_back(text("<extra_id_", i, ">"));
    tokeniser_ = tokeniser_->with_tokens(names);
    for (const std::string& name : names) rule_.sentinels.push_back(tokeniser_->find(name).value());
    rule_.end = separator_of(*tokeniser_, config_.tokenizer);
    int64_t& rows = config_.seq2seq.vocabulary;
    if (rows > 1 && rows < tokeniser_->size())
      fail_usage("task.seq2seq.vocabulary = ", rows, ", the tokeniser has ", tokeniser_->size(),
                 " tokens with its sentinels");
    if (rows <= 1) rows = tokeniser_->size();
  }

  std::shared_ptr<const PackedTexts> packed(const std::shared_ptr<const data::Source>& texts) const {
    if (!texts || !tokeniser_) return nullptr;
    return packed_texts(texts, *tokeniser_, rule_.end, config_.length - 1);
  }
  std::function<std::shared_ptr<const data::Transform>(int64_t)> transform() const {
    return [this](int64_t) { return make_window_transform(config_.length - 1); };
  }

  void add_spans(data::Batch& batch, const std::function<RandomStream(int64_t sample)>& stream_of) const {
    const auto length = static_cast<size_t>(config_.length);
    const std::span<int32_t> ids = batch.values<int32_t>("ids");
    const std::vector<int32_t> texts(ids.begin(), ids.end());
    const auto source = batch.add({kSource, DType::i32, {source_}}).values<int32_t>();
    const auto target = batch.add({kTarget, DType::i32, {target_}}).values<int32_t>();
    std::fill(source.begin(), source.end(), static_cast<int32_t>(kNotLearned));
    std::fill(target.begin(), target.end(), static_cast<int32_t>(kNotLearned));
    for (int64_t i = 0; i < batch.size; ++i) {
      RandomStream random = stream_of(i);
      const std::span all = std::span(texts).subspan(static_cast<size_t>(i) * length, length);
      const auto end = std::find(all.begin(), all.end(), static_cast<int32_t>(kNotLearned));
      const SpanText made = span_text(rule_, all.first(static_cast<size_t>(end - all.begin())), random);
      std::copy(made.source.begin(), made.source.end(), source.begin() + i * source_);
      std::copy(made.target.begin(), made.target.end(), target.begin() + i * target_);
    }
  }

  Scored score(const StreamInputs& inputs) {
    const torch::Tensor source = inputs.at(kSource).to(torch::kInt64), seen = source >= 0,
                        target = inputs.at(kTarget).to(torch::kInt64);
    const torch::Tensor memory = model_->encode(source.masked_fill(~seen, start()), seen);
    const torch::Tensor before = torch::cat(
        {torch::full_like(target.slice(1, 0, 1), start()), target.slice(1, 0, -1).clamp_min(0)}, 1);
    torch::Tensor logits = model_->decode(before, {}, memory, seen);
    if (logits.scalar_type() != torch::kFloat64) logits = logits.to(torch::kFloat32);
    return {logits, target};
  }

  Findings evaluate(const EvaluateOptions& options);

  LanguageTaskConfig config_;
  models::ModelSpec spec_;
  std::optional<Tokeniser> tokeniser_;
  std::shared_ptr<models::Backbone> backbone_;
  SpanRule rule_;
  int64_t source_ = 0, target_ = 0;  // tokens
  std::shared_ptr<models::Seq2Seq> model_;
  std::shared_ptr<const PackedTexts> train_, validation_;
};

// Spans of validation windows depend only on their index, so losses of two steps are comparable.
Findings SpanTask::evaluate(const EvaluateOptions& options) {
  SampleRows rows(3);  // loss, tokens, right ones
  Findings out = evaluate_rows(options, validation(), rows,
                               [&](data::Batch& loaded) {
                                 add_spans(loaded, [&](int64_t sample) {
                                   return RandomStream(0, "validation spans",
                                                       static_cast<uint64_t>(loaded.first + sample));
                                 });
                                 const StreamInputs batch = to_device(loaded, options);
                                 Scored scored;
                                 {
                                   const AutocastScope autocast(options.device, options.precision);
                                   scored = score(batch);
                                 }
                                 return token_sums(scored.logits, scored.labels);
                               },
                               {"text", "windows"});
  out.metrics = token_metrics(main_metric(), rows);
  return out;
}

}  // namespace

SpanCounts span_counts(const SpanRule& rule, int64_t length) {
  check(length >= 2, "a text of ", length, " tokens, must have at least 2 for a span");
  SpanCounts out;
  out.missing = std::clamp<int64_t>(std::llround(rule.noise * static_cast<double>(length)), 1, length - 1);
  out.spans = std::clamp<int64_t>(std::llround(static_cast<double>(out.missing) / rule.mean_span), 1,
                                  std::min(out.missing, length - out.missing));
  return out;
}

SpanText span_text(const SpanRule& rule, std::span<const int32_t> text, RandomStream& random) {
  const SpanCounts counts = span_counts(rule, std::ssize(text));
  const std::vector<int64_t> missing = random_parts(counts.missing, counts.spans, random),
                             kept = random_parts(std::ssize(text) - counts.missing, counts.spans, random);
  SpanText out;
  auto at = text.begin();
  for (size_t i = 0; i < missing.size(); ++i) {
    out.source.insert(out.source.end(), at, at + kept[i]);
    at += kept[i];
    out.source.push_back(rule.sentinels.at(i));
    out.target.push_back(rule.sentinels.at(i));
    out.target.insert(out.target.end(), at, at + missing[i]);
    at += missing[i];
  }
  out.source.push_back(rule.end);
  out.target.push_back(rule.end);
  return out;
}

std::unique_ptr<Task> make_span_task(const TaskSetup& setup, const LanguageTaskConfig& config) {
  return std::make_unique<SpanTask>(setup, config);
}

}  // namespace tessera::tasks
