#include "tasks/language/bert.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/random.h"
#include "core/text.h"
#include "data/base/class_names.h"
#include "data/base/source_kinds.h"
#include "tasks/base/report_blocks.h"
#include "tasks/base/sample_rows.h"
#include "tasks/base/score_accumulator.h"
#include "tasks/base/task_kind.h"
#include "tasks/base/text_input.h"
#include "tasks/base/validation_pass.h"
#include "tasks/language/language_part.h"
#include "tasks/language/packed_texts.h"
#include "text/conversation.h"
#include "weights/language_files.h"

namespace tessera::tasks {

BertText bert_text(std::vector<int32_t> first, std::vector<int32_t> second, bool pair, int64_t length,
                   const BertTokens& tokens) {
  const auto room = static_cast<size_t>(length - (pair ? 3 : 2));
  while (first.size() + second.size() > room) (first.size() >= second.size() ? first : second).pop_back();
  BertText out;
  const auto add = [&](const std::vector<int32_t>& ids, int32_t segment) {
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    out.ids.push_back(tokens.end);
    out.segments.resize(out.ids.size(), segment);
  };
  out.ids.push_back(tokens.begin);
  add(first, 0);
  if (pair) add(second, 1);
  return out;
}

namespace {

// Returns how many of `count` tokens are masked.
int64_t masked_tokens(double ratio, int64_t count) {
  return std::clamp<int64_t>(std::llround(ratio * static_cast<double>(count)), 1, count);
}

}  // namespace

void mask_window(double ratio, const BertTokens& tokens, int64_t vocabulary, RandomStream& random,
                 std::span<int32_t> ids, std::span<int32_t> targets) {
  std::fill(targets.begin(), targets.end(), static_cast<int32_t>(kNotLearned));
  std::vector<size_t> words;
  for (size_t i = 1; i < ids.size() && ids[i] >= 0; ++i)
    if (ids[i] != tokens.end) words.push_back(i);
  if (words.empty()) return;
  const auto count = std::ssize(words);
  const int64_t masked = masked_tokens(ratio, count);
  const std::vector<int64_t> order = random.permutation(count);
  for (int64_t i = 0; i < masked; ++i) {
    const size_t place = words[static_cast<size_t>(order[static_cast<size_t>(i)])];
    targets[place] = ids[place];
    ids[place] = masked_token(ids[place], tokens.mask, vocabulary, random);
  }
}

namespace {

constexpr const char *kIds = "ids", *kSegments = "segments", *kMaskTargets = "targets";

// Adds [CLS] before a window of make_window_transform(); padding is kNotLearned.
class MaskableWindow final : public data::Transform {
 public:
  MaskableWindow(int64_t length, int32_t begin) : begin_(begin), fields_{{kIds, DType::i32, {length}}} {}
  const std::vector<data::Field>& fields() const override { return fields_; }

  void apply(const data::RawSample& sample, RandomStream&, std::span<const data::Slot> out) const override {
    const std::vector<int64_t>& ids = sample.annotation.classes;
    const int64_t places = fields_[0].shape[0];
    check(std::ssize(ids) + 1 <= places, sample.name, ": a window of ", ids.size(),
          " tokens, must have at most ", places - 1);
    auto* values = out[0].as<int32_t>();
    std::fill(values, values + places, static_cast<int32_t>(kNotLearned));
    values[0] = begin_;
    for (size_t i = 0; i < ids.size(); ++i) values[i + 1] = static_cast<int32_t>(ids[i]);
  }

 private:
  int32_t begin_;
  std::vector<data::Field> fields_;
};

class TextOfClass final : public data::Transform {
 public:
  // Without a tokeniser, in a plan, samples are only described.
  TextOfClass(std::optional<Tokeniser> tokeniser, int64_t length, const BertTokens& tokens)
      : tokeniser_(std::move(tokeniser)),
        tokens_(tokens),
        fields_{{kIds, DType::i32, {length}}, {kSegments, DType::i32, {length}}} {}
  const std::vector<data::Field>& fields() const override { return fields_; }

  void apply(const data::RawSample& sample, RandomStream&, std::span<const data::Slot> out) const override {
    const std::vector<std::string>& texts = sample.annotation.captions;
    check(!texts.empty(), sample.name, ": has no text");
    const auto encoded = [&](size_t i) {
      return i < texts.size() ? tokeniser_.value().encode(texts[i], /*special=*/false)
                              : std::vector<int32_t>();
    };
    const int64_t places = fields_[0].shape[0];
    const BertText all = bert_text(encoded(0), encoded(1), texts.size() > 1, places, tokens_);
    auto *ids = out[0].as<int32_t>(), *segments = out[1].as<int32_t>();
    std::fill(ids, ids + places, static_cast<int32_t>(kNotLearned));
    std::fill(segments, segments + places, 0);
    std::copy(all.ids.begin(), all.ids.end(), ids);
    std::copy(all.segments.begin(), all.segments.end(), segments);
  }

 private:
  std::optional<Tokeniser> tokeniser_;
  BertTokens tokens_;
  std::vector<data::Field> fields_;
};

std::vector<std::string> class_names_in(const Value& metadata) {
  std::vector<std::string> names;
  const Value* list = metadata.find("class_names");
  if (!list || !list->is_array()) return names;
  for (const Value& name : list->as_array())
    if (name.is_string()) names.push_back(name.as_string());
  return names;
}

BertTaskConfig bert_settings(const TaskSetup& setup) {
  if (setup.model.family != models::kNoBackbone)
    fail_usage("task bert reads no images: model.name = \"", setup.model.name, "\", must be \"",
               models::kNoBackbone, "\"");
  return read_task<BertTaskConfig>(setup.settings);
}

class BertTask final : public Task, public TextClasses {
 public:
  explicit BertTask(const TaskSetup& setup)
      : config_(bert_settings(setup)), spec_(setup.model), backbone_(setup.build_backbone(setup.model)) {
    open_tokeniser(setup);
    if (config_.length > config_.encoder.context)
      fail_usage("task.length = ", config_.length,
                 ", the model reads task.encoder.context = ", config_.encoder.context);
    if (classifies()) describe_classes(setup);
    model_ = setup.build([&] {
      auto model = std::make_shared<models::Bert>(
          config_.encoder, models::BertHeads{.tokens = !classifies(),
                                             .classes = std::max<int64_t>(std::ssize(names_), classifies())});
      if (setup.draws()) model->initialise(setup.seed);
      return model;
    });
    if (setup.draws() && !config_.weights.empty() && setup.opener)
      train::begin_bert(*model_, WeightFile(setup.opener->file_of(config_.weights)), "task.encoder");
    train_ = source_of(setup.train), validation_ = source_of(setup.validation);
  }

  std::vector<Part> parts() const override { return {{"", model_}}; }
  std::vector<BackbonePart> backbones() const override { return {{"", backbone_, spec_}}; }
  std::string outputs() const override {
    return classifies() ? text("classifier of ", names_.size(), " classes of texts")
                        : "head for masked tokens";
  }
  std::vector<std::string> output_names() const override {
    if (!classifies()) return {};
    return {"classifier.weight", "classifier.bias"};
  }
  bool takes_outputs_of(const Value& metadata) const override { return class_names_in(metadata) == names_; }
  int64_t macs(int64_t) const override { return model_->macs(config_.length); }

  std::vector<StreamSpec> streams() const override {
    return {{.name = "train", .source = train_, .transform = transform(), .labelled = classifies()}};
  }
  StreamSpec validation() const override {
    return {.name = "validation", .source = validation_, .transform = transform()};
  }
  void prepare(std::span<data::Batch> batches, const StepKey& key) const override {
    if (classifies()) return;
    add_masks(batches[0], [&](int64_t sample) {
      return RandomStream(key.seed, "masked tokens", static_cast<uint64_t>(key.step),
                          static_cast<uint64_t>(batches[0].first + sample));
    });
  }

  std::vector<MetricInfo> step_metrics() const override { return {{"accuracy", Unit::share}}; }
  bool weight_counts_samples() const override { return classifies(); }
  double weight(const Inputs& inputs) const override {
    if (classifies()) return Task::weight(inputs);
    return static_cast<double>((inputs.on_host(kMaskTargets) >= 0).sum().item<int64_t>());
  }
  Loss loss(const Inputs& inputs, const models::Context&, Collective&) override {
    const Scored scored = score(inputs.main(), /*counts=*/false);
    const torch::Tensor right = (scored.scores.detach().argmax(1) == scored.labels).sum();
    const Term accuracy = classifies() ? Term{right.to(torch::kFloat32), static_cast<double>(inputs.size())}
                                       : right_tokens(right, scored.labels);
    return {models::bert_class_loss(scored.scores, scored.labels), {accuracy}};
  }
  bool repeats_its_calls() const override { return true; }

  std::vector<Prediction> predict_texts(std::span<const GivenText> texts, int64_t most) override;

  std::vector<std::unique_ptr<Evaluator>> evaluators() override {
    return one_evaluator(*this, [this](const EvaluateOptions& options) {
      return classifies() ? evaluate_classes(options) : evaluate_masks(options);
    });
  }
  MetricInfo main_metric() const override {
    if (classifies()) return {"top1", Unit::share};
    return {"perplexity", Unit::number, false};
  }
  Value metadata() const override {
    Value out;
    if (tokeniser_) out.set("tokenizer", tokeniser_->definition());
    if (classifies()) out.set("class_names", Value::Array(names_.begin(), names_.end()));
    return out;
  }
  std::string metadata_conflict(const Value& stored) const override {
    return class_names_in(stored) == names_ ? "" : "the run began with other classes";
  }

 private:
  // Scores [places, vocabulary or classes] of the places or texts with a label, in float32 or float64.
  struct Scored {
    torch::Tensor scores, labels;
  };
  bool classifies() const { return config_.goal == BertGoal::classes; }

  void open_tokeniser(const TaskSetup& setup) {
    tokeniser_ = open_task_tokeniser(config_.tokenizer, config_.encoder.vocabulary, setup, "task bert");
    if (!tokeniser_) return;
    tokeniser_ = tokeniser_->with_tokens({"[CLS]", "[SEP]", "[MASK]", "[PAD]"});
    const auto id = [&](const char* token) { return tokeniser_->find(token).value(); };
    tokens_ = {.begin = id("[CLS]"), .end = id("[SEP]"), .mask = id("[MASK]"), .pad = id("[PAD]")};
    int64_t& rows = config_.encoder.vocabulary;
    if (rows > 1 && rows < tokeniser_->size())
      fail_usage("task.encoder.vocabulary = ", rows, ", the tokeniser has ", tokeniser_->size(), " tokens");
    if (rows <= 1) rows = tokeniser_->size();
  }

  void describe_classes(const TaskSetup& setup) {
    names_ = setup.train ? data::require_labels(*setup.train, "task.goal = \"classes\"").class_names()
                         : class_names_in(setup.metadata);
    const Value* classes = setup.metadata.find("classes");
    if (!setup.validation && names_.empty() && classes && classes->is_int())
      names_ = data::numbered_classes(classes->as_int());
    if (!setup.validation) return;
    const auto& theirs = data::require_labels(*setup.validation, "task.goal = \"classes\"").class_names();
    if (names_.empty()) names_ = theirs;
    if (!setup.train && theirs != names_ && std::ranges::is_permutation(theirs, names_))
      for (const std::string& name : theirs)
        order_.push_back(std::ranges::find(names_, name) - names_.begin());
    else if (theirs != names_)
      fail_usage(setup.validation->describe(), ": its classes are ", some_of(theirs), ", the model has ",
                 some_of(names_));
  }

  std::shared_ptr<const data::Source> source_of(const std::shared_ptr<const data::Source>& texts) const {
    if (!texts || !tokeniser_) return nullptr;
    if (texts->size() > 0 && texts->read(0).annotation.captions.empty())
      fail_usage("task bert needs texts, such as data.path = \"text:FOLDER\"; ", texts->describe(),
                 " has none");
    if (classifies()) return texts;
    return std::make_shared<PackedTexts>(texts, *tokeniser_, tokens_.end, config_.length - 2);
  }

  std::function<std::shared_ptr<const data::Transform>(int64_t)> transform() const {
    return [this](int64_t) -> std::shared_ptr<const data::Transform> {
      if (!classifies()) return std::make_shared<MaskableWindow>(config_.length, tokens_.begin);
      return data::join_transforms({std::make_shared<TextOfClass>(tokeniser_, config_.length, tokens_),
                                    data::make_label_transform(std::ssize(names_), false)});
    };
  }

  void add_masks(data::Batch& batch, const std::function<RandomStream(int64_t sample)>& stream_of) const {
    const auto length = static_cast<size_t>(config_.length);
    const std::span<int32_t> ids = batch.values<int32_t>(kIds);
    const auto targets = batch.add({kMaskTargets, DType::i32, {config_.length}}).values<int32_t>();
    for (int64_t i = 0; i < batch.size; ++i) {
      RandomStream random = stream_of(i);
      const size_t first = static_cast<size_t>(i) * length;
      mask_window(config_.mask_ratio, tokens_, tokeniser_->size(), random, ids.subspan(first, length),
                  targets.subspan(first, length));
    }
  }

  // Returns the vectors of ids [samples, tokens]; ids below 0 are padding. `segments` may be undefined.
  torch::Tensor hidden(const torch::Tensor& ids, const torch::Tensor& segments) {
    const torch::Tensor given = ids.to(torch::kInt64), seen = given >= 0;
    models::BertInput read{.ids = given.masked_fill(~seen, static_cast<int64_t>(tokens_.pad)), .mask = seen};
    if (segments.defined()) read.segments = segments.to(torch::kInt64);
    return model_->hidden(read);
  }

  // Returns the places of tokens with a label. Without counting them there are as many as windows can have, so that the host waits for no
  // number; those too many have no label.
  torch::Tensor masked_places(const torch::Tensor& labels, int64_t windows, bool counts) const {
    const torch::Tensor masked = labels >= 0;
    if (counts) return masked.nonzero().squeeze(1);
    return masked.to(torch::kUInt8)
        .argsort(/*stable=*/true, 0, /*descending=*/true)
        .narrow(0, 0, windows * masked_tokens(config_.mask_ratio, config_.length - 1));
  }

  Scored score(const StreamInputs& inputs, bool counts = true) {
    const torch::Tensor hidden =
        this->hidden(inputs.at(kIds), classifies() ? inputs.at(kSegments) : torch::Tensor());
    Scored out;
    if (classifies()) {
      out = {model_->class_scores(hidden), inputs.at("label")};
    } else {
      const torch::Tensor labels = inputs.at(kMaskTargets).to(torch::kInt64).flatten();
      const torch::Tensor places = masked_places(labels, inputs.size, counts);
      out = {model_->token_scores(hidden.flatten(0, 1).index_select(0, places)),
             labels.index_select(0, places)};
    }
    if (out.scores.scalar_type() != torch::kFloat64) out.scores = out.scores.to(torch::kFloat32);
    return out;
  }

  Findings evaluate_masks(const EvaluateOptions& options);
  Findings evaluate_classes(const EvaluateOptions& options);

  BertTaskConfig config_;
  models::ModelSpec spec_;
  std::optional<Tokeniser> tokeniser_;
  BertTokens tokens_;
  std::vector<std::string> names_;
  std::vector<int64_t>
      order_;  // the model's class of each class of the validation set; empty if they are the same
  std::shared_ptr<models::Backbone> backbone_;
  std::shared_ptr<models::Bert> model_;
  std::shared_ptr<const data::Source> train_, validation_;
};

std::vector<Prediction> BertTask::predict_texts(std::span<const GivenText> texts, int64_t most) {
  if (!classifies()) fail_usage("the weights have no head for classes: task.goal must be \"classes\"");
  const auto encoded = [&](const std::string& text) { return tokeniser_.value().encode(text, false); };
  std::vector<BertText> read;
  int64_t longest = 0;
  for (const auto& [first, pair] : texts) {
    read.push_back(bert_text(encoded(first), encoded(pair), !pair.empty(), config_.length, tokens_));
    longest = std::max(longest, std::ssize(read.back().ids));
  }
  const torch::Tensor ids = torch::full({std::ssize(texts), longest}, kNotLearned, torch::kInt32),
                      segments = torch::zeros_like(ids);
  for (size_t i = 0; i < read.size(); ++i) {
    std::ranges::copy(read[i].ids, ids[static_cast<int64_t>(i)].data_ptr<int32_t>());
    std::ranges::copy(read[i].segments, segments[static_cast<int64_t>(i)].data_ptr<int32_t>());
  }
  const torch::Device device = model_->parameters().front().device();
  const torch::Tensor scores = model_->class_scores(hidden(ids.to(device), segments.to(device)));
  return most_likely(scores.to(torch::kFloat32).softmax(1).cpu(), names_, most);
}

// Masks of validation windows depend only on their index, so losses of two steps are comparable.
Findings BertTask::evaluate_masks(const EvaluateOptions& options) {
  SampleRows rows(3);  // loss, masked tokens, right ones
  Findings out = evaluate_rows(
      options, validation(), rows,
      [&](data::Batch& loaded) {
        add_masks(loaded, [&](int64_t sample) {
          return RandomStream(0, "validation tokens", static_cast<uint64_t>(loaded.first + sample));
        });
        const StreamInputs batch = to_device(loaded, options);
        Scored scored;
        {
          const AutocastScope autocast(options.device, options.precision);
          scored = score(batch);
        }
        const torch::Tensor masked = batch.at(kMaskTargets) >= 0;
        const torch::Tensor losses =
            at::cross_entropy_loss(scored.scores.to(torch::kFloat64), scored.labels, {}, at::Reduction::None);
        const torch::Tensor right = (scored.scores.argmax(1) == scored.labels).to(torch::kFloat64);
        const auto by_sample = [&](const torch::Tensor& values) {
          return torch::zeros(masked.sizes(), values.options()).masked_scatter(masked, values).sum(1);
        };
        return torch::stack({by_sample(losses), masked.sum(1).to(torch::kFloat64), by_sample(right)}, 1);
      },
      {"text", "windows"});
  const torch::Tensor sums = rows.rows().to(torch::kFloat64).sum(0);
  const double total = sums[0].item<double>(), tokens = sums[1].item<double>();
  out.metrics = {{main_metric(), std::exp(total / tokens), tokens > 0},
                 mean_metric({"loss", Unit::number, false}, total, tokens),
                 mean_metric({"accuracy", Unit::share}, sums[2].item<double>(), tokens)};
  return out;
}

Findings BertTask::evaluate_classes(const EvaluateOptions& options) {
  ScoreAccumulator scores(std::ssize(names_), false, validation_->size());
  Findings out = evaluate_each(options, validation(),
                               [&](data::Batch& loaded) {
                                 const StreamInputs batch = to_device(loaded, options);
                                 const AutocastScope autocast(options.device, options.precision);
                                 torch::Tensor values = score(batch).scores.to(torch::kCPU, torch::kFloat32);
                                 if (!order_.empty()) values = values.index_select(1, torch::tensor(order_));
                                 scores.add(loaded, values.contiguous());
                               },
                               {"text", "texts"});
  ScoredSamples scored;
  scores.finish(options, scored);
  out.samples = scored.samples, out.metrics = scored.metrics;
  return out;
}

}  // namespace

TaskKind bert_kind() {
  return task_kind<BertTask, BertTaskConfig>("bert", "masked tokens, or classes, of texts (BERT)",
                                             {.path_keys = {"tokenizer", "weights"}});
}

}  // namespace tessera::tasks
