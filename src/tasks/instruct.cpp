#include "tasks/instruct.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/clock.h"
#include "core/error.h"
#include "core/text.h"
#include "data/conversations.h"
#include "io/file.h"
#include "models/capability.h"
#include "tasks/sample_rows.h"
#include "tasks/validation_pass.h"
#include "text/conversation.h"

namespace tessera::tasks {
namespace {

using models::kIgnoredLabel;

// "ids" and "labels", i32 [length]: the conversation with the image token repeated for each of its features, cut or
// padded behind. "type", i32 []: the kind of answer.
class TurnsTransform final : public data::Transform {
 public:
  TurnsTransform(Tokeniser tokeniser, const ChatTemplate& chat, int64_t length, int64_t image_token,
                 int64_t per_image)
      : tokeniser_(std::move(tokeniser)),
        chat_(chat),
        image_token_(image_token),
        per_image_(per_image),
        fields_{{"ids", DType::i32, {length}}, {"labels", DType::i32, {length}}, {"type", DType::i32, {}}} {}
  const std::vector<data::Field>& fields() const override { return fields_; }

  void apply(const data::RawSample& sample, RandomStream&, std::span<const data::Slot> out) const override {
    std::vector<Turn> turns;
    for (const std::string& words : sample.annotation.captions)
      turns.push_back({turns.size() % 2 == 0, words});
    if (!turns.empty() && turns[0].text.find(kImageWord) == std::string::npos)
      turns[0].text = std::string(kImageWord) + "\n" + turns[0].text;
    const TrainingText text = training_text(tokeniser_, chat_, turns);
    const auto images = std::count(text.ids.begin(), text.ids.end(), kImageId);
    check(images == 1, sample.name, ": its conversation holds '<image>' ", images, " times, must be once");
    const int64_t length = fields_[0].shape[0];
    auto *ids = out[0].as<int32_t>(), *labels = out[1].as<int32_t>();
    int64_t at = 0;
    for (size_t i = 0; i < text.ids.size(); ++i) {
      const bool image = text.ids[i] == kImageId;
      for (int64_t copy = 0; copy < (image ? per_image_ : 1) && at < length; ++copy, ++at) {
        ids[at] = static_cast<int32_t>(image ? image_token_ : text.ids[i]);
        labels[at] = static_cast<int32_t>(image ? kIgnoredLabel : text.labels[i]);
      }
    }
    check(std::count(ids, ids + at, static_cast<int32_t>(image_token_)) == per_image_, sample.name,
          ": task.length = ", length, " has no place for the ", per_image_, " tokens of its image");
    std::fill(ids + at, ids + length, 0);
    std::fill(labels + at, labels + length, static_cast<int32_t>(kIgnoredLabel));
    *out[2].as<int32_t>() =
        sample.annotation.classes.empty() ? 0 : static_cast<int32_t>(sample.annotation.classes[0]);
  }

 private:
  Tokeniser tokeniser_;
  ChatTemplate chat_;
  int64_t image_token_, per_image_;
  std::vector<data::Field> fields_;
};

// The projector and the language model: what the task adds to its tower.
class Reader final : public torch::nn::Module {
 public:
  Reader(const InstructConfig& config, int64_t image_width)
      : projector_(register_module(
            "multi_modal_projector",
            models::Projector(image_width, config.language.complete().dim, config.images.projector_layers))),
        language_(
            register_module("language_model", std::make_shared<models::LanguageModel>(config.language))) {
    if (config.lora_rank > 0)
      models::add_lora(
          *language_, {.rank = config.lora_rank, .alpha = config.lora_alpha, .targets = config.lora_targets});
  }
  void initialise(uint64_t seed) {
    language_->initialise(seed);
    nn::initialise(*projector_, seed,
                   [](const std::string&, const torch::Tensor& parameter, const nn::Filler& fill) {
                     if (parameter.dim() == 2) fill.fan_in_uniform(parameter.size(1));
                   });
  }
  torch::Tensor project(const torch::Tensor& tokens) const { return projector_->forward(tokens); }
  models::LanguageModel& language() { return *language_; }
  const models::Projector& projector() const { return projector_; }
  const std::shared_ptr<models::LanguageModel>& shared_language() const { return language_; }

 private:
  models::Projector projector_;
  std::shared_ptr<models::LanguageModel> language_;
};

class Instruct final : public Task, public Answers {
 public:
  explicit Instruct(const TaskSetup& setup)
      : config_(read_config<InstructConfig>(setup.settings, "task")),
        preprocess_(setup.preprocess),
        augment_(setup.augment),
        spec_(setup.model),
        tokeniser_(open_tokeniser(config_, setup)),
        chat_(find_template(config_.chat)),
        backbone_(setup.build_backbone(setup.model)) {
    auto& tower = models::require<models::TokenEncoder>(*backbone_, spec_.family, "task instruct");
    if (tokeniser_) config_.language.vocabulary = tokeniser_->size() + 1;
    image_token_ = config_.language.vocabulary - 1;  // behind the tokeniser's own
    if (config_.length > config_.language.context)
      fail_usage("task.length = ", config_.length,
                 ", the language model reads task.language.context = ", config_.language.context);
    if (-config_.images.select_block > backbone_->block_count())
      fail_usage("task.images.select_block = ", config_.images.select_block, ", the tower has ",
                 backbone_->block_count(), " blocks");
    reader_ = setup.build([&] {
      auto reader = std::make_shared<Reader>(config_, tower.token_width());
      if (setup.draws()) reader->initialise(setup.seed);
      return reader;
    });
    per_image_ = features_of_an_image(setup.preprocess.size);
    train_ = about(config_.conversations, setup.train, "conversations");
    validation_ = about(config_.val_conversations.empty() ? config_.conversations : config_.val_conversations,
                        setup.validation, "val_conversations");
  }

  std::vector<Part> parts() const override { return {{"", backbone_}, {"", reader_}}; }
  std::vector<BackbonePart> backbones() const override { return {{"", backbone_, spec_}}; }
  int64_t macs(int64_t side) const override {
    return backbone_->macs(side, side) + reader_->language().macs(config_.length);
  }
  std::vector<StreamSpec> streams() const override {
    return {{.name = "train",
             .source = train_,
             .transform = [this](int64_t side) { return transform(side, true); },
             .labelled = false}};
  }
  StreamSpec validation() const override {
    return {.name = "validation", .source = validation_, .transform = [this](int64_t side) {
              return transform(side, false);
            }};
  }

  std::vector<MetricInfo> step_metrics() const override { return {{"accuracy", Unit::share}}; }
  bool weight_counts_samples() const override { return false; }
  double weight(const Inputs& inputs) const override {
    const torch::Tensor labels = inputs.at("labels");
    const auto learned = (labels.slice(1, 1) != kIgnoredLabel).sum().item<int64_t>();
    return static_cast<double>(std::max<int64_t>(1, learned));  // a piece may hold cut conversations alone
  }
  Loss loss(const Inputs& inputs, const models::Context& context, Collective&) override {
    const torch::Tensor labels = inputs.at("labels").to(torch::kInt64);
    const torch::Tensor scores = logits(inputs.at("image"), inputs.at("ids"), context);
    const torch::Tensor wide = scores.scalar_type() == torch::kFloat64 ? scores : scores.to(torch::kFloat32);
    const torch::Tensor right = wide.detach().slice(1, 0, -1).argmax(-1).eq(labels.slice(1, 1)).sum();
    return {models::next_token_loss_sum(wide, labels), {{right.to(torch::kFloat32), weight(inputs)}}};
  }

  std::vector<std::unique_ptr<Evaluator>> evaluators() override {
    return one_evaluator([this](const EvaluateOptions& options) { return evaluate(options); });
  }
  AnsweringModel answering_model() const override {
    return {config_.images,     backbone_,    reader_->projector(), reader_->shared_language(),
            tokeniser_.value(), image_token_, config_.chat};
  }
  MetricInfo main_metric() const override { return {"exact", Unit::share}; }
  Value metadata() const override {
    return tokeniser_ ? models::table({{"tokenizer", tokeniser_->definition()}}) : Value();
  }

 private:
  // None for a plan on a machine that lacks the file.
  static std::optional<Tokeniser> open_tokeniser(const InstructConfig& config, const TaskSetup& setup) {
    if (const Value* stored = setup.metadata.find("tokenizer"); stored && stored->is_string())
      return Tokeniser::from_definition(stored->as_string(), setup.file + ": tokenizer");
    if (config.tokenizer.empty())
      fail_usage("task instruct needs task.tokenizer, a tokenizer.json or another form");
    if (setup.meta && !file_exists(config.tokenizer)) return std::nullopt;
    return Tokeniser::load(config.tokenizer);
  }

  static std::shared_ptr<const data::Source> about(const std::string& path,
                                                   const std::shared_ptr<const data::Source>& images,
                                                   const char* key) {
    if (!images) return nullptr;
    if (images->size() > 0 && dynamic_cast<const data::Conversations*>(images.get())) return images;
    if (path.empty())
      fail_usage("task instruct needs task.", key, ", LLaVA's .json or .jsonl about ", images->describe());
    return std::make_shared<data::Conversations>(path, images);
  }

  // Tokens of the tower that stand for an image of this side.
  int64_t features_of_an_image(int64_t side) const {
    const int64_t patch = spec_.settings.find("patch_size") ? spec_.settings.find("patch_size")->as_int() : 1;
    return (side / patch) * (side / patch) + (config_.images.class_token ? 1 : 0);
  }

  std::shared_ptr<const data::Transform> transform(int64_t side, bool training) const {
    data::Preprocess sized = preprocess_;
    sized.size = side;
    return data::join_transforms(
        {training ? data::make_train_transform(sized, augment_) : data::make_eval_transform(sized),
         std::make_shared<TurnsTransform>(tokeniser_.value(), chat_, config_.length, image_token_,
                                          features_of_an_image(side))});
  }

  torch::Tensor logits(const torch::Tensor& images, const torch::Tensor& given,
                       const models::Context& context) {
    auto& tower = dynamic_cast<models::TokenEncoder&>(*backbone_);
    models::Taps taps;
    const std::string name = text("blocks.", backbone_->block_count() + config_.images.select_block);
    taps.wanted = [&](const std::string& tapped) { return tapped == name; };
    models::Context tapped = context;
    tapped.taps = &taps;
    const models::Tokens tokens = tower.tokenise(images, tapped);
    tower.encode(tokens, tapped);
    const torch::Tensor all = taps.kept.at(name);
    const torch::Tensor features =
        reader_->project(config_.images.class_token ? all : tokens.patches_of(all));
    const torch::Tensor ids = given.to(torch::kInt64);
    models::LanguageModel& language = reader_->language();
    return language.forward(
        {.embedded = models::splice(language.embed(ids), ids == image_token_, features.flatten(0, 1))});
  }

  Findings evaluate(const EvaluateOptions& options);

  InstructConfig config_;
  data::Preprocess preprocess_;
  data::AugmentConfig augment_;
  models::ModelSpec spec_;
  std::optional<Tokeniser> tokeniser_;
  const ChatTemplate& chat_;
  std::shared_ptr<models::Backbone> backbone_;
  std::shared_ptr<Reader> reader_;
  std::shared_ptr<const data::Source> train_, validation_;
  int64_t image_token_ = 0, per_image_ = 0;
};

// An answer is exact if each of its tokens is the likeliest behind those before it: the greedy answer is the very text.
Findings Instruct::evaluate(const EvaluateOptions& options) {
  const torch::NoGradGuard no_grad;
  set_training(parts(), false);
  const double began = steady_seconds();
  const auto loader = options.open(validation());
  SampleRows rows(4);  // loss, tokens, exact, type
  each_batch(
      options, *loader,
      [&](data::Batch& loaded, int64_t before) {
        const StreamInputs batch = to_device(loaded, "validation", options.device, options.precision);
        const torch::Tensor labels = batch.at("labels").to(torch::kInt64).slice(1, 1);
        torch::Tensor scores;
        {
          const AutocastScope autocast(options.device, options.precision);
          scores = logits(batch.at("image"), batch.at("ids"), {}).slice(1, 0, -1);
        }
        const torch::Tensor learned = labels != kIgnoredLabel;
        const torch::Tensor losses =
            at::cross_entropy_loss(scores.to(torch::kFloat64).flatten(0, 1), labels.flatten(), {},
                                   at::Reduction::None, kIgnoredLabel)
                .view_as(labels);
        const torch::Tensor wrong = (scores.argmax(-1).ne(labels) & learned).any(1);
        rows.add(loaded, before,
                 torch::stack({losses.sum(1), learned.sum(1).to(torch::kFloat64),
                               (~wrong).to(torch::kFloat64), batch.at("type").to(torch::kFloat64)},
                              1));
      },
      "answers");
  rows.collect(options);
  Findings out{.samples = rows.size()};
  out.broken = loader->bad_images();
  check(out.samples > 0, "there is no conversation to evaluate on");
  const torch::Tensor all = rows.rows().to(torch::kFloat64);
  const double loss = (all.select(1, 0).sum() / all.select(1, 1).sum().clamp_min(1)).item<double>();
  out.metrics = {{main_metric(), all.select(1, 2).mean().item<double>()},
                 {{"loss", Unit::number, false}, loss},
                 {{"perplexity", Unit::number, false}, std::exp(loss)}};
  const auto& types = dynamic_cast<const data::Conversations&>(*validation_).types();
  for (size_t i = 0; i < types.size() && types.size() > 1; ++i) {
    const torch::Tensor own = all.select(1, 3) == static_cast<double>(i);
    const std::string name = types[i].empty() ? "other" : types[i];
    if (own.any().item<bool>())
      out.metrics.push_back(
          {{"exact_" + name, Unit::share}, all.select(1, 2).masked_select(own).mean().item<double>()});
  }
  out.seconds = steady_seconds() - began;
  return out;
}

}  // namespace

TaskKind instruct_kind() {
  return {
      .name = "instruct",
      .summary = "answers to questions about images, by a language model",
      .resolve =
          [](const Value& settings) { return write_config(read_config<InstructConfig>(settings, "task")); },
      .keys = [] { return describe_config(InstructConfig(), "task"); },
      .fit_model = [](Value& model, const Value&, const data::Source*) { model.set("classes", 0); },
      .make = [](const TaskSetup& setup) -> std::unique_ptr<Task> {
        return std::make_unique<Instruct>(setup);
      },
      .path_keys = {"conversations", "val_conversations", "tokenizer"}};
}

}  // namespace tessera::tasks
