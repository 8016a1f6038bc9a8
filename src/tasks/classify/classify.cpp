#include "tasks/classify/classify.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "core/value.h"
#include "data/base/class_names.h"
#include "data/transforms/mixup.h"
#include "ops/gpu.h"
#include "tasks/base/report_blocks.h"
#include "tasks/base/score_accumulator.h"
#include "tasks/base/task_kind.h"
#include "tasks/base/validation_pass.h"
#include "tasks/classify/class_evaluation.h"

namespace tessera::tasks {
namespace {

// --- settings

void check_class_weights(const Value& weights) {
  const char* rule =
      "task.class_weights must be \"none\", \"balanced\" or a list of one positive number a class";
  if (weights.is_string() && (weights.as_string() == "none" || weights.as_string() == "balanced")) return;
  if (!weights.is_array() || weights.as_array().empty()) fail_usage(rule, ", is ", toml_text(weights));
  for (const Value& weight : weights.as_array())
    if (!weight.is_number() || !(weight.as_double() > 0)) fail_usage(rule, ", one is ", toml_text(weight));
}

std::vector<std::string> names_in(const Value& metadata) {
  std::vector<std::string> names;
  if (const Value* list = metadata.find("class_names")) {
    if (!list->is_array()) fail("tessera.class_names is ", list->type_name(), ", must be an array");
    for (const Value& name : list->as_array()) {
      if (!name.is_string()) fail("tessera.class_names holds ", name.type_name(), ", must hold strings");
      names.push_back(name.as_string());
    }
  }
  return names;
}

// ImageNet's names. Files of other programs lack names and get these if the number of classes matches.
bool told_by_count(const std::vector<std::string>& names) {
  const data::ImageNetClasses* known = data::imagenet_classes(std::ssize(names));
  return known && names == known->names;
}

// --- the task

class Classify final : public Task, public ClassEvaluation {
 public:
  explicit Classify(const TaskSetup& setup)
      : config_(read_task<ClassifyConfig>(setup.settings)),
        preprocess_(setup.preprocess),
        augment_(setup.augment),
        train_(setup.train),
        validation_(setup.validation),
        spec_(setup.model),
        model_(std::make_shared<models::Classifier>(setup.build_backbone(setup.model),
                                                    models::class_head_options(setup.model), setup.seed)),
        classes_(model_->classes()) {
    describe_classes(setup);
    check_against_data(setup.continued, setup.balanced);
    if (train_) weigh_classes(data::require_labels(*train_, "task classify"));
    if (!config_.distil.unlabelled.empty()) open_unlabelled();
    if (!config_.distil.teacher.empty() && train_ && setup.opener) open_teacher(setup);
  }

  std::vector<Part> parts() const override { return {{"", model_->backbone}}; }
  std::vector<BackbonePart> backbones() const override { return {{"", model_->backbone, spec_}}; }
  bool takes_outputs_of(const Value& metadata) const override {
    return data::same_classes(names_in(metadata), names_);
  }
  std::vector<std::string> output_names() const override { return model_->head().tensor_names(); }
  std::string outputs() const override;
  int64_t macs(int64_t side) const override { return model_->macs(side, side); }

  std::vector<StreamSpec> streams() const override;
  StreamSpec validation() const override;
  void prepare(std::span<data::Batch> batches, const StepKey& key) const override {
    if (!config_.mixup.enabled()) return;
    RandomStream random(key.seed, "mixup", static_cast<uint64_t>(key.step));
    data::mix_batch(config_.mixup, classes_, random, batches[0]);
  }

  std::vector<MetricInfo> step_metrics() const override { return {{"accuracy", Unit::share}}; }
  double weight(const Inputs& inputs) const override {
    if (!weighs_labels(inputs)) return Task::weight(inputs);
    return weights_.index_select(0, inputs.on_host("label").to(torch::kCPU)).sum().item<double>();
  }
  bool weight_counts_samples() const override { return !weights_.defined() || multi_label_; }
  Loss loss(const Inputs& inputs, const models::Context& context, Collective& others) override;
  bool repeats_its_calls() const override { return !teacher_; }

  std::vector<std::unique_ptr<Evaluator>> evaluators() override {
    return one_evaluator(*this, [this](const EvaluateOptions& options) { return evaluate(options); });
  }
  MetricInfo main_metric() const override { return {multi_label_ ? "map" : "top1", Unit::share}; }
  Value metadata() const override {
    Value out;
    out.set("class_names", Value::Array(names_.begin(), names_.end()));
    out.set("multi_label", multi_label_);
    if (temperature_ != 1) out.set("temperature", temperature_);
    return out;
  }
  std::string metadata_conflict(const Value& stored) const override;
  std::vector<Prediction> predict(const torch::Tensor& images, int64_t most) override;
  std::shared_ptr<models::Classifier> classifier() const override { return model_; }
  std::vector<std::pair<std::string, std::string>> fingerprints() const override {
    if (!teacher_) return {};
    return {{"teacher", teacher_->checksum()}};
  }

  Findings evaluate(const EvaluateOptions& options);
  void set_views(const TestViews& views) override;
  const ScoredSamples& last_scores() const override { return scored_; }
  const std::vector<std::string>& scored_classes() const override {
    return mapping_.model_class.empty() ? names_ : set_names_;
  }
  const std::string& class_mapping() const override { return mapping_.how; }

 private:
  void describe_classes(const TaskSetup& setup);
  void check_validation(const data::ClassLabels& labels, const std::string& file);
  void check_against_data(bool continued, bool balanced) const;
  void weigh_classes(const data::ClassLabels& labels);
  void open_unlabelled();
  void open_teacher(const TaskSetup& setup);

  // For labels, class weights apply here; for mixed targets inside the loss, and samples are counted.
  bool weighs_labels(const Inputs& inputs) const {
    return weights_.defined() && !multi_label_ && !inputs.find("targets") && !uses_bce();
  }
  bool uses_bce() const { return config_.loss == ClassifyLoss::bce || multi_label_; }
  Loss distilled_loss(const Inputs& inputs, const models::Context& context);
  torch::Tensor loss_sum(const torch::Tensor& scores, const Inputs& inputs) const;
  Term accuracy(const torch::Tensor& scores, const Inputs& inputs) const;
  torch::Tensor smoothed(const torch::Tensor& targets) const;
  torch::Tensor scores_of_set(const torch::Tensor& images) const;

  ClassifyConfig config_;
  data::Preprocess preprocess_;
  data::AugmentConfig augment_;
  std::shared_ptr<const data::Source> train_, validation_, unlabelled_;
  models::ModelSpec spec_;
  std::shared_ptr<models::Classifier> model_;
  std::optional<ClassTeacher> teacher_;
  int64_t classes_;
  std::vector<std::string> names_;
  bool multi_label_ = false;
  double temperature_ = 1;                              // divisor of logits before probabilities
  std::vector<std::string> set_names_;                  // the validation set's names, if unlike names_
  data::ClassMapping mapping_{{}, "the same classes"};  // from set_names_; empty if the same
  TestViews views_;
  ScoredSamples scored_;   // last evaluation
  torch::Tensor weights_;  // [classes] float64, undefined if all are 1
};

// --- setup

// Takes the classes from the data, or else from the weights.
void Classify::describe_classes(const TaskSetup& setup) {
  const data::Source* source = train_ ? train_.get() : nullptr;
  if (const data::ClassLabels* labels = source ? source->class_labels() : nullptr) {
    names_ = labels->class_names();
    multi_label_ = labels->multi_label();
    return;
  }
  names_ = names_in(setup.metadata);
  const Value* several = setup.metadata.find("multi_label");
  multi_label_ = several && several->is_bool() && several->as_bool();
  if (const Value* temperature = setup.metadata.find("temperature")) {
    if (!temperature->is_number() || !(temperature->as_double() > 0))
      fail(setup.file, ": tessera.temperature is ", toml_text(*temperature), ", must be a positive number");
    temperature_ = temperature->as_double();
  }
  if (validation_) check_validation(data::require_labels(*validation_, "task classify"), setup.file);
}

// With other class names, the model would be compared with the wrong classes.
void Classify::check_validation(const data::ClassLabels& labels, const std::string& file) {
  const std::vector<std::string>& theirs = labels.class_names();
  if (data::same_classes(names_, theirs) && !names_.empty()) return;
  if (names_.empty()) multi_label_ = labels.multi_label();  // files of other programs do not record this
  if (!names_.empty() && std::ssize(names_) != classes_)
    fail(file, ": its metadata name ", names_.size(), " classes, the model has ", classes_);
  if (multi_label_ && classes_ != std::ssize(theirs))
    fail(file, ": the model has ", classes_, " classes, the data has ", theirs.size(),
         " of several an image");
  mapping_ = data::map_classes(names_, classes_, theirs, text(file, ": the data"));
  if (mapping_.how == "in their order") {  // data with synonyms are accepted
    mapping_.model_class.clear();
    names_ = theirs;
    return;
  }
  set_names_ = theirs;
}

void Classify::check_against_data(bool continued, bool balanced) const {
  if (multi_label_ && config_.loss == ClassifyLoss::cross_entropy)
    fail_usage("loss cross_entropy needs one class an image, the data has several: use bce");
  if (config_.target_threshold >= 0 && multi_label_ && !continued)
    fail_usage("task.target_threshold = ", shortest(config_.target_threshold),
               " is for one class an image, the data has several");
  if (balanced && config_.class_weights != Value("none"))
    fail_usage("train.balanced_sampling and task.class_weights both even out the classes: give one");
  if (!config_.distil.teacher.empty() && multi_label_)
    fail_usage("task.distil.teacher needs one class an image, the data has several");
}

void Classify::weigh_classes(const data::ClassLabels& labels) {
  const Value& asked = config_.class_weights;
  std::vector<double> weights;
  const size_t classes = labels.class_names().size();
  if (asked.is_array()) {
    for (const Value& weight : asked.as_array()) weights.push_back(weight.as_double());
    if (weights.size() != classes)
      fail_usage("task.class_weights has ", weights.size(), " numbers, the data has ", classes, " classes");
  } else if (asked.as_string() == "balanced") {
    if (multi_label_) fail_usage("task.class_weights = \"balanced\" needs one class an image");
    // Inversely proportional to the class share; a class without training images has no weight.
    const std::vector<int64_t> counts = data::class_counts(*train_);
    const int64_t present = std::ssize(counts) - std::ranges::count(counts, 0);
    for (const int64_t count : counts)
      weights.push_back(
          count == 0 ? 0.0 : static_cast<double>(train_->size()) / static_cast<double>(present * count));
  }
  if (!weights.empty()) weights_ = torch::tensor(weights, torch::kFloat64);
}

void Classify::open_unlabelled() {
  unlabelled_ = data::open_source({.path = config_.distil.unlabelled, .val_share = 0}, data::Split::train);
  if (unlabelled_->size() < config_.distil.unlabelled_batch)
    fail_usage("task.distil.unlabelled_batch = ", config_.distil.unlabelled_batch,
               " is more than the set holds: ", unlabelled_->describe());
}

// Converts the student's images to the teacher's normalisation.
void Classify::open_teacher(const TaskSetup& setup) {
  if (const Value* drop = spec_.settings.find("drop_path");
      config_.distil.similarities > 0 && drop && drop->is_number() && drop->as_double() > 0)
    fail_usage("task.distil.similarities compares all images of a batch: model.drop_path = ",
               shortest(drop->as_double()), ", must be 0");
  const OpenedWeights opened = setup.opener->open(config_.distil.teacher, preprocess_.size);
  if (!opened.task->classifier())
    fail_usage("'", opened.file, "' has no classes: it was trained for task ", opened.name);
  if (const auto theirs = names_in(opened.metadata);
      !theirs.empty() && !told_by_count(theirs) && theirs != names_)
    fail_usage("task.distil.teacher '", opened.file, "' was trained on other classes than the data has");
  teacher_.emplace(opened, setup, classes_);
}

// Returns "head for 10 classes (a, b, c, d and 6 more)".
std::string Classify::outputs() const {
  return text("head for ", names_.size(), " classes (", some_of(names_), ")");
}

std::vector<StreamSpec> Classify::streams() const {
  const auto images = [preprocess = preprocess_, augment = augment_](int64_t side) {
    data::Preprocess sized = preprocess;
    sized.size = side;
    return data::make_train_transform(sized, augment);
  };
  const auto labelled = [images, classes = classes_, several = multi_label_](int64_t side) {
    return data::join_transforms({images(side), data::make_label_transform(classes, several)});
  };
  std::vector<StreamSpec> streams = {
      {.name = "train", .source = train_, .transform = labelled, .pairs = config_.mixup.enabled()}};
  if (unlabelled_)
    streams.push_back({.name = "unlabelled",
                       .source = unlabelled_,
                       .transform = images,
                       .batch_size = config_.distil.unlabelled_batch,
                       .labelled = false});
  return streams;
}

StreamSpec Classify::validation() const {
  const int64_t classes = mapping_.model_class.empty() ? classes_ : std::ssize(mapping_.model_class);
  const auto transform = [preprocess = preprocess_, classes, several = multi_label_,
                          crops = views_.crops](int64_t side) {
    data::Preprocess sized = preprocess;
    sized.size = side;
    if (crops > 1)  // the whole area that the test crop is cut from
      sized.size = std::llround(static_cast<double>(side) / preprocess.crop), sized.crop = 1;
    return data::join_transforms(
        {data::make_eval_transform(sized), data::make_label_transform(classes, several)});
  };
  return {.name = "validation", .source = validation_, .transform = transform};
}

// --- the loss

// Smooths mixed targets after mixing; both are linear, so the order does not matter.
torch::Tensor Classify::smoothed(const torch::Tensor& targets) const {
  const double s = config_.label_smoothing;
  return s == 0 ? targets : targets * (1 - s) + s / static_cast<double>(classes_);
}

// Summed over the units of weight().
torch::Tensor Classify::loss_sum(const torch::Tensor& raw, const Inputs& inputs) const {
  const torch::Tensor scores = raw.scalar_type() == torch::kFloat64 ? raw : raw.to(torch::kFloat32);
  torch::Tensor weights;
  if (weights_.defined()) weights = ops::kept_on(scores.device(), weights_).to(scores.scalar_type());
  const torch::Tensor* soft = inputs.find("targets");
  if (uses_bce()) {
    SigmoidOptions options;
    options.label_smoothing = config_.label_smoothing;  // only for labels; mixed targets are smoothed below
    if (soft && !multi_label_ && config_.target_threshold >= 0)
      options.target_threshold = config_.target_threshold;
    options.weight = weights;
    // Multi-label targets are not smoothed, since that would soften negatives that are certain.
    const torch::Tensor targets = !soft ? inputs.at("label") : multi_label_ ? *soft : smoothed(*soft);
    return sigmoid_cross_entropy(scores, targets, options) * static_cast<double>(inputs.size());
  }
  if (soft) return soft_cross_entropy_each(scores, smoothed(*soft), weights).sum();
  return cross_entropy(scores, inputs.at("label"),
                       {.label_smoothing = config_.label_smoothing, .class_weights = weights, .sum = true});
}

Loss Classify::loss(const Inputs& inputs, const models::Context& context, Collective&) {
  if (teacher_) return distilled_loss(inputs, context);
  const torch::Tensor scores = model_->forward(inputs.at("image"), context);
  return {loss_sum(scores, inputs), {accuracy(scores.detach(), inputs)}};
}

// (1 - alpha) loss of the labelled images + alpha distillation on all. Uses the model's head for the teacher
// (DeiT), if any.
Loss Classify::distilled_loss(const Inputs& inputs, const models::Context& context) {
  const torch::Tensor& labelled = inputs.at("image");
  const bool compares = config_.distil.similarities > 0;
  std::vector<nn::Taps> taps(1, query_taps());
  nn::Taps shown_taps = query_taps();
  models::Context tapped = context;
  if (compares) tapped.taps = taps.data();
  const std::vector<torch::Tensor> heads = model_->forward_heads(labelled, tapped);
  const StreamInputs* unlabelled = inputs.stream("unlabelled");
  torch::Tensor images = labelled, judged = heads.back();
  double all = static_cast<double>(inputs.main().whole);  // images of the step, of all processes
  if (unlabelled) all += static_cast<double>(unlabelled->whole);
  if (unlabelled && unlabelled->size > 0) {  // none in a small piece
    models::Context others = context;
    others.first_sample = inputs.main().whole + unlabelled->first;
    if (compares) others.taps = &taps.emplace_back(query_taps());
    images = torch::cat({images, unlabelled->at("image")});
    judged = torch::cat({judged, model_->forward_heads(unlabelled->at("image"), others).back()});
  }
  const torch::Tensor shown = teacher_->scores(images, compares ? &shown_taps : nullptr);
  check(judged.sizes() == shown.sizes(), "the teacher gives ", shown.size(-1), " scores an image, the model ",
        judged.size(-1));
  // The teacher's mean is over all images, but this piece's weight counts labelled images only.
  const double share = static_cast<double>(inputs.main().whole) / all * static_cast<double>(images.size(0)) /
                       static_cast<double>(inputs.size());
  const torch::Tensor distilled =
      distillation(judged, shown.to(judged.scalar_type()), config_.distil.kind, config_.distil.tau) *
      (share * weight(inputs));
  const double alpha = config_.distil.alpha;
  Loss out = {loss_sum(heads.front(), inputs) * (1 - alpha) + distilled * alpha,
              {accuracy(heads.front().detach(), inputs)}};
  if (compares)
    out.sum = out.sum +
              tapped_similarities(taps, shown_taps) * (config_.distil.similarities * share * weight(inputs));
  return out;
}

// Share of images with the target's best class as prediction; multi-label: share of right decisions.
Term Classify::accuracy(const torch::Tensor& scores, const Inputs& inputs) const {
  const torch::Tensor* targets = inputs.find("targets");
  if (multi_label_)
    return {(scores > 0).eq(*targets > 0.5).to(torch::kFloat32).sum(), static_cast<double>(scores.numel())};
  const torch::Tensor labels = targets ? targets->argmax(1) : inputs.at("label");
  return {scores.argmax(1).eq(labels).to(torch::kFloat32).sum(), static_cast<double>(inputs.size())};
}

// --- evaluation

void Classify::set_views(const TestViews& views) {
  check_views(views, preprocess_, multi_label_);
  views_ = views;
}

// Returns [batch, classes of the set].
torch::Tensor Classify::scores_of_set(const torch::Tensor& images) const {
  const torch::Tensor all = scores_of_views(*model_, images, views_, preprocess_.size);
  check(all.dim() == 2 && all.size(0) == images.size(0) && all.size(1) == classes_, "the model gives ",
        all.size(-1), " scores an image, its head has ", classes_);
  torch::Tensor scores = all.to(torch::kCPU, torch::kFloat32);
  if (temperature_ != 1) scores = scores / temperature_;
  if (!mapping_.model_class.empty())
    scores = scores.index_select(1, torch::tensor(mapping_.model_class, torch::kInt64));
  return scores.contiguous();
}

Findings Classify::evaluate(const EvaluateOptions& options) {
  const auto& names = scored_classes();
  ScoreAccumulator scores(mapping_.model_class.empty() ? classes_ : std::ssize(names), multi_label_,
                          validation_->size(), options.wants("scores"));
  Findings out = evaluate_each(options, validation(), [&](data::Batch& loaded) {
    const StreamInputs batch = to_device(loaded, options);
    torch::Tensor given;
    {
      const AutocastScope autocast(options.device, options.precision);
      given = scores_of_set(batch.at("image"));
    }
    scores.add(loaded, given);
  });
  scored_ = {};
  scores.finish(options, scored_);
  if (const std::string& why = model_->graphs().refusal(); !why.empty())
    out.notes.push_back("class scores have no graphs: " + why);
  out.samples = scored_.samples, out.metrics = scored_.metrics;
  out.blocks = classify_blocks(scored_, *validation_, names, options);
  return out;
}

// Returns a message with a class that only one of the two sets has.
std::string Classify::metadata_conflict(const Value& stored) const {
  const std::vector<std::string> then = names_in(stored);
  if (then == names_) return "";
  const auto only_in = [](const std::vector<std::string>& a, const std::vector<std::string>& b) {
    const auto found = std::find_if(
        a.begin(), a.end(), [&](const auto& name) { return std::find(b.begin(), b.end(), name) == b.end(); });
    return found == a.end() ? std::string() : *found;
  };
  const std::string gone = only_in(then, names_), fresh = only_in(names_, then);
  return text(train_ ? train_->describe() : "", ": the data has ", names_.size(), " classes, the run had ",
              then.size(), gone.empty() ? "" : text(": class '", gone, "' is gone"),
              fresh.empty() ? "" : text(": class '", fresh, "' is new"),
              gone.empty() && fresh.empty() ? ", in another order" : "");
}

std::vector<Prediction> Classify::predict(const torch::Tensor& images, int64_t most) {
  if (classes_ == 0) fail("the weights have no head for classes: they must have been trained to classify");
  const torch::Tensor scores = model_->forward(images).to(torch::kFloat32).cpu() / temperature_;
  const torch::Tensor probabilities = multi_label_ ? scores.sigmoid() : scores.softmax(1);
  return most_likely(probabilities, names_, most);
}

// --- registry entry

void fit_model(Value& model_settings, const Value&, const data::Source* train) {
  if (train)
    model_settings.set("classes", std::ssize(data::require_labels(*train, "task classify").class_names()));
}

}  // namespace

void ClassifyConfig::check() const {
  check_class_weights(class_weights);
  if (target_threshold >= 0 && (loss != ClassifyLoss::bce || label_smoothing > 0))
    fail_usage("task.target_threshold goes with task.loss = \"bce\" and without task.label_smoothing");
  if (distil.unlabelled.empty() != (distil.unlabelled_batch == 0))
    fail_usage(
        "task.distil.unlabelled and task.distil.unlabelled_batch belong together: give both or neither");
  if (distil.teacher.empty() && distil.similarities > 0)
    fail_usage("task.distil.similarities needs task.distil.teacher");
  if (distil.teacher.empty() && !distil.unlabelled.empty())
    fail_usage("task.distil.unlabelled needs task.distil.teacher: images without a label have no other loss");
}

TaskKind classify_kind() {
  return task_kind<Classify, ClassifyConfig>("classify", "one class, or several, for each image",
                                             {.fit_model = fit_model,
                                              .path_keys = {"distil.teacher", "distil.unlabelled"},
                                              .tables = {"classes", "samples"},
                                              .captions = data::CaptionUse::none});
}

}  // namespace tessera::tasks
