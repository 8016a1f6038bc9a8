#include "tasks/language/answering.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "data/sources/conversations.h"
#include "data/sources/interleaved.h"
#include "eval/captioning.h"
#include "models/base/capability.h"
#include "models/language/llava.h"
#include "nn/host_values.h"
#include "tasks/base/validation_pass.h"
#include "tasks/language/choice_source.h"
#include "tasks/language/conversation_input.h"
#include "text/conversation.h"

namespace tessera::tasks {
namespace {

using models::kIgnoredLabel;

class Answering final : public Task, public Answers, public LanguageBeginner, public TextLimit {
 public:
  Answering(const TaskSetup& setup, const AnsweringConfig& config, const std::string& who,
            const std::function<std::shared_ptr<ImageReader>(
                const AnsweringConfig&, const std::shared_ptr<models::Backbone>&)>& make_reader)
      : config_(config),
        preprocess_(setup.preprocess),
        augment_(setup.augment),
        spec_(setup.model),
        tokeniser_(open_task_tokeniser(config_.tokenizer, config_.language.vocabulary, setup, who)),
        chat_(find_template(config_.chat)),
        backbone_(setup.build_backbone(setup.model)) {
    if (tokeniser_) config_.language.vocabulary = tokeniser_->size() + 1;
    image_token_ = config_.language.vocabulary - 1;  // after the tokeniser's ids
    if (config_.length > config_.language.context)
      fail_usage("task.length = ", config_.length,
                 ", the language model reads task.language.context = ", config_.language.context);
    if (config_.eval_shots.empty()) fail_usage("task.eval_shots is empty: [0] measures without examples");
    if (config_.lora_rank > 0 && config_.lora_targets.empty())
      fail_usage("task.lora_targets is empty: LoRA of task.lora_rank = ", config_.lora_rank,
                 " adapts no layer");
    reader_ = setup.build([&] {
      auto reader = make_reader(config_, backbone_);
      if (setup.draws()) reader->initialise(setup.seed);
      return reader;
    });
    train_documents_ = documents_in(who, setup.train);
    validation_documents_ = documents_in(who, setup.validation);
    int64_t largest = preprocess_.size;
    for (const int64_t side : setup.sides) largest = std::max(largest, side);
    if (!train_documents_ && !validation_documents_) check_length(largest);
    if (train_documents_ && config_.question_order == QuestionOrder::drawn)
      fail_usage("task.question_order = drawn: documents have no questions, must be given");
    train_ = about(who, config_.conversations, setup.train, "conversations");
    validation_ =
        about(who, config_.val_conversations.empty() ? config_.conversations : config_.val_conversations,
              setup.validation, "val_conversations");
    if (tokeniser_ && (train_ || validation_)) check_template(*tokeniser_, chat_);
  }

  std::vector<Part> parts() const override { return {{"", backbone_}, {"", reader_}}; }
  std::vector<BackbonePart> backbones() const override { return {{"", backbone_, spec_}}; }
  int64_t macs(int64_t side) const override {
    return backbone_->macs(side, side) + reader_->language()->macs(config_.length);
  }
  std::vector<StreamSpec> streams() const override {
    if (train_documents_) return {document_stream(train_documents_, "train", true)};
    return {{.name = "train",
             .source = train_,
             .transform = [this](int64_t side) { return transform(side, true, config_.shots); },
             .labelled = false}};
  }
  StreamSpec validation() const override {
    if (validation_documents_) return document_stream(validation_documents_, "validation", false);
    return validation_with(config_.eval_shots.front());
  }

  std::vector<MetricInfo> step_metrics() const override { return {{"accuracy", Unit::share}}; }
  bool weight_counts_samples() const override { return false; }
  double weight(const Inputs& inputs) const override {
    const int64_t learned = nn::count_true(inputs.on_host("labels").slice(1, 1) != kIgnoredLabel);
    return static_cast<double>(std::max<int64_t>(1, learned));  // a piece may have no label
  }
  Loss loss(const Inputs& inputs, const models::Context& context, Collective&) override {
    const auto [ids, labels] = read_part(inputs.main());
    const torch::Tensor scores = logits(inputs.at("image"), ids, context);
    const torch::Tensor wide = scores.scalar_type() == torch::kFloat64 ? scores : scores.to(torch::kFloat32);
    const torch::Tensor right = wide.detach().slice(1, 0, -1).argmax(-1).eq(labels.slice(1, 1)).sum();
    return {models::next_token_loss_sum(wide, labels), {{right.to(torch::kFloat32), weight(inputs)}}};
  }

  std::vector<std::unique_ptr<Evaluator>> evaluators() override {
    return one_evaluator(*this, [this](const EvaluateOptions& options) { return evaluate(options); });
  }
  AnsweringModel answering_model() const override {
    const auto reader = reader_;
    const int64_t token = image_token_;
    return {.language = reader->language(),
            .tokeniser = tokeniser_.value(),
            .chat = config_.chat,
            .images = models::ImageReading{
                .image_token = token,
                .among_words = reader->among_words(),
                .features = [=](const torch::Tensor& images) { return reader->features(images, {}); },
                .begin = [=](const torch::Tensor& prompt, const torch::Tensor& features,
                             int64_t beams) { return reader->begin(prompt, features, token, beams); }}};
  }
  std::vector<LongText> long_texts(const data::RawSample& sample) const override {
    if (train_documents_) return {};  // windows of documents are read
    return long_conversation(sample, conversation_input(preprocess_.size, /*training=*/true, /*shots=*/0));
  }
  std::string language_weights() const override { return config_.language_weights; }
  void begin_language(const models::LanguageModel& stored, const Tokeniser& tokeniser) override {
    copy_language_weights(stored, tokeniser, *reader_->language(), tokeniser_.value(),
                          config_.language_weights);
  }
  bool refuses_other_shapes() const override { return true; }
  MetricInfo main_metric() const override {
    if (validation_documents_) return {"perplexity", Unit::number, false};
    return {"exact", Unit::share};
  }
  Value metadata() const override {
    return tokeniser_ ? models::table({{"tokenizer", tokeniser_->definition()}}) : Value();
  }

 private:
  // Reports problems early that would otherwise stop the training later.
  static std::shared_ptr<const data::Conversations> checked(std::shared_ptr<const data::Conversations> all) {
    for (int64_t i = 0; i < all->size(); ++i)
      if (all->image_words(i) > 1) fail(all->problems_of(i).back(), " (`tessera data check` lists all)");
    return all;
  }

  static std::shared_ptr<const data::Conversations> about(const std::string& who, const std::string& path,
                                                          const std::shared_ptr<const data::Source>& images,
                                                          const char* key) {
    if (!images || data::document_images(*images)) return nullptr;
    if (auto given = std::dynamic_pointer_cast<const data::Conversations>(images)) return checked(given);
    if (path.empty() && data::image_questions(*images)) return std::make_shared<data::Conversations>(images);
    if (path.empty())
      fail_usage(who, " needs task.", key, ", LLaVA's .json or .jsonl about ", images->describe());
    return checked(std::make_shared<data::Conversations>(path, images));
  }

  std::shared_ptr<const data::Interleaved> documents_in(
      const std::string& who, const std::shared_ptr<const data::Source>& images) const {
    auto documents = std::dynamic_pointer_cast<const data::Interleaved>(images);
    if (documents && config_.document_images == 0)
      fail_usage(who, " reads conversations about one image each, not ", documents->describe(),
                 ": task flamingo learns such");
    return documents;
  }

  StreamSpec document_stream(const std::shared_ptr<const data::Interleaved>& documents, const char* name,
                             bool training) const {
    return {
        .name = name,
        .source = documents,
        .transform =
            [this, documents, training](int64_t side) {
              data::Preprocess sized = preprocess_;
              sized.size = side;
              const Tokeniser tokeniser = this->tokeniser();
              const auto chunk = tokeniser.find("<|endofchunk|>");  // OpenFlamingo's token
              return make_document_transform(
                  {.tokeniser = tokeniser,
                   .length = config_.length,
                   .images = config_.document_images,
                   .image_token = image_token_,
                   .end_of_chunk = chunk ? *chunk : separator_of(tokeniser, config_.tokenizer),
                   .training = training,
                   .documents = documents},
                  training ? data::make_train_transform(sized, augment_) : data::make_eval_transform(sized));
            },
        .labelled = false};
  }

  StreamSpec validation_with(int64_t shots) const {
    return {.name = "validation", .source = validation_, .transform = [this, shots](int64_t side) {
              return transform(side, false, shots);
            }};
  }

  // Checks that images of this side, including those of examples, leave room for text tokens.
  void check_length(int64_t side) const {
    constexpr int64_t kWords = 2;  // at least one token of the question and one of the answer
    const int64_t shots =
        std::max(config_.shots, *std::max_element(config_.eval_shots.begin(), config_.eval_shots.end()));
    const int64_t taken = (shots + 1) * reader_->per_image(side);
    if (config_.length < taken + kWords)
      fail_usage("task.length = ", config_.length, ", must be at least ", taken + kWords,
                 ": images alone take ", taken, " tokens",
                 shots > 0 ? text(" with ", counted(shots, "example")) : "");
  }

  // A plan may lack the tokeniser: then bytes determine the shapes of fields, and nothing is read.
  Tokeniser tokeniser() const {
    return tokeniser_ ? *tokeniser_ : open_task_tokeniser("bytes", 0, {}, "").value();
  }

  std::shared_ptr<const data::Transform> transform(int64_t side, bool training, int64_t shots) const {
    data::Preprocess sized = preprocess_;
    sized.size = side;
    return make_conversation_transform(
        conversation_input(side, training, shots),
        training ? data::make_train_transform(sized, augment_) : data::make_eval_transform(sized));
  }

  ConversationInput conversation_input(int64_t side, bool training, int64_t shots) const {
    return {.tokeniser = tokeniser(),
            .chat = chat_,
            .length = config_.length,
            .image_token = image_token_,
            .per_image = reader_->per_image(side),
            .shots = shots,
            .examples = training ? train_ : validation_,
            .learns_examples = training,
            .training = training,
            .order = config_.question_order};
  }

  // Drops positions after the last one in the batch with a label or an image, since no earlier position
  // depends on them.
  struct ReadPart {
    TextIds ids;
    torch::Tensor labels;  // int64 [batch, places]
  };
  ReadPart read_part(const StreamInputs& batch) const {
    const torch::Tensor &ids = batch.on_host("ids"), &labels = batch.on_host("labels");
    const torch::Tensor read = ids.eq(image_token_).logical_or(labels.ne(kIgnoredLabel)).any(0);
    const int64_t behind = *read.flip(0).to(torch::kInt32).argmax(0).const_data_ptr<int64_t>();
    const int64_t places = std::max<int64_t>(2, ids.size(1) - behind);
    const auto part = [&](const torch::Tensor& of) { return of.slice(1, 0, places).to(torch::kInt64); };
    return {{part(batch.at("ids")), part(ids)}, part(batch.at("labels"))};
  }

  // Returns the images of a sample and of its examples, one after another.
  torch::Tensor logits(const torch::Tensor& images, const TextIds& ids, const models::Context& context) {
    return reader_->logits(images.dim() == 5 ? images.flatten(0, 1) : images, ids, image_token_, context);
  }

  Findings evaluate(const EvaluateOptions& options);
  Findings measure(const EvaluateOptions& options, int64_t shots, bool blank);
  Findings measure_documents(const EvaluateOptions& options, bool blank);
  // Share of multiple-choice questions with the right choice ranked first.
  double right_choices(const EvaluateOptions& options, int64_t shots, bool blank);
  // An evaluation batch: images (blank if requested), the next token of each position, and its scores.
  struct Scored {
    torch::Tensor images, labels, scores;
  };
  Scored score(const StreamInputs& batch, const EvaluateOptions& options, bool blank);
  // Returns -log p of each row's answer, [batch].
  torch::Tensor losses_of(const torch::Tensor& scores, const torch::Tensor& labels) const;
  // Generates answers token by token, at the position of each row's answer.
  std::vector<std::string> answers_to(const torch::Tensor& images, const StreamInputs& batch);

  AnsweringConfig config_;
  data::Preprocess preprocess_;
  data::AugmentConfig augment_;
  models::ModelSpec spec_;
  std::optional<Tokeniser> tokeniser_;
  const ChatTemplate& chat_;
  std::shared_ptr<models::Backbone> backbone_;
  std::shared_ptr<ImageReader> reader_;
  std::shared_ptr<const data::Conversations> train_, validation_;  // null for documents
  std::shared_ptr<const data::Interleaved> train_documents_, validation_documents_;
  int64_t image_token_ = 0;
};

Answering::Scored Answering::score(const StreamInputs& batch, const EvaluateOptions& options, bool blank) {
  const AutocastScope autocast(options.device, options.precision);
  Scored out;
  out.images = blank ? torch::zeros_like(batch.at("image")) : batch.at("image");
  const auto [ids, labels] = read_part(batch);
  out.labels = labels.slice(1, 1);
  out.scores = logits(out.images, ids, {}).slice(1, 0, -1);
  return out;
}

torch::Tensor Answering::losses_of(const torch::Tensor& scores, const torch::Tensor& labels) const {
  return at::cross_entropy_loss(scores.to(torch::kFloat64).flatten(0, 1), labels.flatten(), {},
                                at::Reduction::None, kIgnoredLabel)
      .view_as(labels)
      .sum(1);
}

std::vector<std::string> Answering::answers_to(const torch::Tensor& images, const StreamInputs& batch) {
  constexpr int64_t kMostTokens = 16;  // answers of VQA are words
  const torch::Tensor ids = batch.on_host("ids").to(torch::kInt64),
                      labels = batch.on_host("labels").to(torch::kInt64);
  const torch::Tensor learned = labels.ne(kIgnoredLabel);
  const torch::Tensor begins = learned.to(torch::kInt32).argmax(1).clamp_min(1);
  // Generation stops at the end token of each row's own answer.
  const torch::Tensor last = labels.size(1) - 1 - learned.flip(1).to(torch::kInt32).argmax(1);
  const torch::Tensor ends = labels.gather(1, last.unsqueeze(1)).squeeze(1);
  const torch::Tensor places = torch::arange(ids.size(1), ids.options().dtype(torch::kInt64)).unsqueeze(0);
  torch::Tensor read = ids.masked_fill(places >= begins.unsqueeze(1), 0);
  const int64_t count = ids.size(0);
  std::vector<std::vector<int32_t>> said(static_cast<size_t>(count));
  std::vector<bool> done(static_cast<size_t>(count));
  for (int64_t step = 0; step < kMostTokens; ++step) {
    const torch::Tensor at = begins + step;
    const auto longest = at.max().item<int64_t>();
    if (longest >= ids.size(1)) break;
    const torch::Tensor now = read.slice(1, 0, longest);
    const torch::Tensor scores = logits(images, {now.to(images.device()), now}, {});
    // The image token is not a word.
    const torch::Tensor before = (at - 1).view({-1, 1, 1}).expand({-1, 1, scores.size(2)});
    const torch::Tensor next = scores.gather(1, before.to(scores.device()))
                                   .squeeze(1)
                                   .slice(1, 0, image_token_)
                                   .argmax(1)
                                   .to(torch::kCPU);
    read = read.scatter(1, at.unsqueeze(1), next.unsqueeze(1));
    bool all = true;
    for (int64_t i = 0; i < count; ++i) {
      const auto row = static_cast<size_t>(i);
      const auto token = next[i].item<int64_t>();
      done[row] = done[row] || token == ends[i].item<int64_t>();
      if (!done[row]) said[row].push_back(static_cast<int32_t>(token));
      all = all && done[row];
    }
    if (all) break;
  }
  std::vector<std::string> answers;
  for (const auto& tokens : said) answers.emplace_back(trim(tokeniser_->decode(tokens)));
  return answers;
}

double Answering::right_choices(const EvaluateOptions& options, int64_t shots, bool blank) {
  const auto choices = std::make_shared<ChoiceSource>(validation_);
  StreamSpec stream = validation_with(shots);
  stream.source = choices;
  SampleRows rows(1);
  evaluate_each(options, stream,
                [&](data::Batch& loaded) {
                  const StreamInputs batch = to_device(loaded, options);
                  const Scored scored = score(batch, options, blank);
                  const torch::Tensor losses = losses_of(scored.scores, scored.labels);
                  // A truncated choice is never selected.
                  constexpr double kNever = std::numeric_limits<double>::infinity();
                  rows.add(loaded, losses.masked_fill(batch.at("cut").gt(0), kNever).unsqueeze(1));
                },
                {"choice", "choices"});
  rows.collect(options);
  const std::vector<float> losses = rows.column(0);
  std::map<int64_t, std::pair<float, int64_t>> best;  // per question: the lowest loss and its choice
  for (size_t i = 0; i < losses.size(); ++i) {
    const auto [question, choice] = choices->asked(rows.indices()[i]);
    const auto [found, is_new] = best.try_emplace(question, losses[i], choice);
    if (!is_new && losses[i] < found->second.first) found->second = {losses[i], choice};
  }
  int64_t right = 0;
  for (const auto& [question, choice] : best)
    right += std::isfinite(choice.first) && choice.second == validation_->right_choice(question);
  return static_cast<double>(right) / static_cast<double>(std::max<size_t>(1, best.size()));
}

// An answer is exact if each token is the likeliest after its predecessors, and none was truncated.
Findings Answering::measure(const EvaluateOptions& options, int64_t shots, bool blank) {
  SampleRows rows(6);  // loss, tokens, exact or -1, type, VQA accuracy or -1, cut
  Findings out = evaluate_rows(
      options, validation_with(shots), rows,
      [&](data::Batch& loaded) {
        const StreamInputs batch = to_device(loaded, options);
        const auto [images, labels, scores] = score(batch, options, blank);
        torch::Tensor accuracy = torch::full({loaded.size}, -1.0, torch::kFloat64);
        if (validation_->has_annotators()) {
          const AutocastScope autocast(options.device, options.precision);
          const auto said = answers_to(images, batch);
          for (size_t i = 0; i < said.size(); ++i)
            if (const auto& given = validation_->answers(loaded.indices[i]); given.size() > 1)
              accuracy[static_cast<int64_t>(i)] = eval::vqa_accuracy(said[i], given);
        }
        const torch::Tensor learned = labels != kIgnoredLabel;
        const torch::Tensor cut = batch.at("cut").gt(0);
        // A truncated answer counts as wrong; if all of its tokens were cut, it does not count at all.
        const torch::Tensor wrong = (scores.argmax(-1).ne(labels) & learned).any(1) | cut;
        const torch::Tensor exact = (~wrong).to(torch::kFloat64).masked_fill(~(learned.any(1) | cut), -1.0);
        return torch::stack(
            {losses_of(scores, labels), learned.sum(1).to(torch::kFloat64), exact,
             batch.at("type").to(torch::kFloat64), accuracy.to(labels.device()), cut.to(torch::kFloat64)},
            1);
      },
      {"conversation", "answers"});
  const torch::Tensor all = rows.rows().to(torch::kFloat64);
  const double loss = all.select(1, 0).sum().item<double>(), tokens = all.select(1, 1).sum().item<double>();
  const torch::Tensor counts = all.select(1, 2).ge(0);
  const auto exact = [&](const std::string& name, const torch::Tensor& some) {
    return mean_metric({name, Unit::share}, all.select(1, 2).masked_select(some).sum().item<double>(),
                       some.sum().item<double>());
  };
  out.metrics = {exact("exact", counts),
                 mean_metric({"loss", Unit::number, false}, loss, tokens),
                 {{"perplexity", Unit::number, false}, std::exp(loss / tokens), tokens > 0}};
  if (const auto without = (~counts).sum().item<int64_t>(); without > 0)
    out.notes.push_back(text(validation_->describe(), ": ", counted(without, "answer"),
                             " without a token to learn, not counted in exact"));
  const auto& types = validation_->types();
  for (size_t i = 0; i < types.size() && types.size() > 1; ++i) {
    const torch::Tensor own = all.select(1, 3).eq(static_cast<double>(i)) & counts;
    const std::string name = types[i].empty() ? "other" : types[i];
    if (own.any().item<bool>()) out.metrics.push_back(exact("exact_" + name, own));
  }
  if (const torch::Tensor scored = all.select(1, 4); scored.ge(0).any().item<bool>())
    out.metrics.push_back(
        {{"vqa_accuracy", Unit::share}, scored.masked_select(scored.ge(0)).mean().item<double>()});
  if (const double cut = all.select(1, 5).sum().item<double>(); cut > 0)
    out.metrics.push_back({{"texts_cut", Unit::number, false}, cut});
  if (validation_->has_choices())
    out.metrics.push_back({{"choice", Unit::share}, right_choices(options, shots, blank)});
  return out;
}

// Evaluates every token after an image.
Findings Answering::measure_documents(const EvaluateOptions& options, bool blank) {
  SampleRows rows(3);  // loss, tokens, right
  Findings out = evaluate_rows(
      options, validation(), rows,
      [&](data::Batch& loaded) {
        const StreamInputs batch = to_device(loaded, options);
        const auto [images, labels, scores] = score(batch, options, blank);
        const torch::Tensor right = scores.argmax(-1).eq(labels).sum(1);
        return torch::stack({losses_of(scores, labels), labels.ne(kIgnoredLabel).sum(1).to(torch::kFloat64),
                             right.to(torch::kFloat64)},
                            1);
      },
      {"document", "documents"});
  const torch::Tensor sums = rows.rows().to(torch::kFloat64).sum(0);
  const double loss = sums[0].item<double>(), tokens = sums[1].item<double>();
  out.metrics = {{{"perplexity", Unit::number, false}, std::exp(loss / tokens), tokens > 0},
                 mean_metric({"loss", Unit::number, false}, loss, tokens),
                 mean_metric({"accuracy", Unit::share}, sums[2].item<double>(), tokens)};
  return out;
}

// The first number of examples has plain metric names; other numbers and blank images add a suffix.
Findings Answering::evaluate(const EvaluateOptions& options) {
  const auto first = [&](bool blank) {
    return validation_documents_ ? measure_documents(options, blank)
                                 : measure(options, config_.eval_shots.front(), blank);
  };
  Findings out = first(false);
  const auto add = [&](Findings more, const std::string& word) {
    for (Metric& metric : more.metrics) metric.info.name += word;
    append(out, std::move(more));
  };
  for (size_t i = 1; i < config_.eval_shots.size() && !validation_documents_; ++i)
    add(measure(options, config_.eval_shots[i], false), text("_", config_.eval_shots[i], "_shot"));
  if (config_.measure_blank) add(first(true), "_blank");
  return out;
}

}  // namespace

std::unique_ptr<Task> make_answering_task(
    const TaskSetup& setup, const AnsweringConfig& config, const std::string& who,
    const std::function<std::shared_ptr<ImageReader>(
        const AnsweringConfig& config, const std::shared_ptr<models::Backbone>& tower)>& make_reader) {
  return std::make_unique<Answering>(setup, config, who, make_reader);
}

}  // namespace tessera::tasks
