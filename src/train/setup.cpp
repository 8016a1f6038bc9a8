#include "train/setup.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "core/error.h"
#include "core/memory.h"
#include "core/text.h"
#include "core/threads.h"
#include "core/toml.h"
#include "io/file.h"
#include "models/illama.h"
#include "tasks/classify.h"
#include "train/device.h"
#include "train/load.h"
#include "train/memory.h"
#include "train/open_model.h"
#include "train/select.h"

namespace tessera::train {
namespace {

constexpr int64_t kFirstPictures = 64;  // that set the steps of quantised activations
// Blocks that are freed and asked for again in each step leave holes: so much more memory do activations take
// after some steps than they fill (1.2 to 2.2 in the runs that were measured).
constexpr double kHoles = 1.8;

// --- data

void open_data(Setup& setup) {
  const Recipe& recipe = setup.recipe;
  if (recipe.data.path.empty()) fail_usage("data.path is empty: say where the pictures are (--data)");
  setup.train_source = data::open_source(recipe.data, data::Split::train);
  setup.validation_source = data::open_source(recipe.data, data::Split::validation);
  const data::Source &train = *setup.train_source, &validation = *setup.validation_source;
  data::require_same_classes(train, validation);
  if (train.size() < recipe.train.batch_size)
    fail_usage("train.batch_size = ", recipe.train.batch_size,
               " is more than the training set holds: ", train.describe());
  if (recipe.distil.unlabelled.empty()) return;
  data::SourceConfig unlabelled;
  unlabelled.path = recipe.distil.unlabelled;
  unlabelled.val_share = 0;
  setup.unlabelled_source = data::open_source(unlabelled, data::Split::train);
  if (setup.unlabelled_source->size() < recipe.distil.unlabelled_batch)
    fail_usage("distil.unlabelled_batch = ", recipe.distil.unlabelled_batch,
               " is more than the set holds: ", setup.unlabelled_source->describe());
}

std::vector<double> class_weights(const Setup& setup) {
  const Value& asked = setup.recipe.train.class_weights;
  const data::Source& source = *setup.train_source;
  const size_t classes = source.class_names().size();
  std::vector<double> weights;
  if (asked.is_array()) {
    for (const Value& weight : asked.as_array()) weights.push_back(weight.as_double());
    if (weights.size() != classes)
      fail_usage("train.class_weights has ", weights.size(), " numbers, the data has ", classes, " classes");
  } else if (asked.as_string() == "balanced") {
    if (source.multi_label()) fail_usage("train.class_weights = \"balanced\" needs one class a picture");
    for (const int64_t count : data::class_counts(source))  // inversely to a class's share
      weights.push_back(static_cast<double>(source.size()) /
                        static_cast<double>(static_cast<int64_t>(classes) * std::max<int64_t>(count, 1)));
  }
  return weights;
}

// --- model

// What stands in the way of the first weights; "" if nothing does.
std::string missing_weights(const Recipe& recipe) {
  for (const auto& [key, file] : {std::pair("model.pretrained", recipe.model.pretrained),
                                  std::pair("model.select_from", recipe.model.select_from)})
    if (!file.empty() && !file_exists(file))
      return text(key, " = '", file, "' does not exist: ",
                  recipe.model.select_from.empty()
                      ? "say with --pretrained FILE where the weights are that the run starts from"
                      : "it names the larger model's weights");
  return "";
}

// Without data the model has the classes that the recipe, or the size that it names, says.
void describe_model(Setup& setup) {
  Recipe& recipe = setup.recipe;
  if (const data::Source* source = setup.train_source.get()) {
    recipe.model.settings.set("classes", static_cast<int64_t>(source->class_names().size()));
    setup.info.class_names = source->class_names();
    setup.info.multi_label = source->multi_label();
  }
  setup.info.model = models::resolve_model(recipe.model.name, recipe.model.settings);
  recipe.model.settings = setup.info.model.settings;
  setup.info.preprocess = recipe.preprocess;
  setup.info.quantization = recipe.quantization;
  setup.info.recipe = write_toml(computed_part(recipe));
  setup.info.ours = true;
}

// A head alone learns nothing from a backbone whose weights were drawn at random.
void check_something_learns(const Setup& setup) {
  bool frozen = false;
  for (const auto& parameter : setup.model->named_parameters()) {
    const bool learns = parameter.value().requires_grad();
    if (learns && !parameter.key().starts_with("head")) return;
    frozen = frozen || !learns;
  }
  if (frozen)
    fail_usage("train.freeze leaves the head alone to learn, and the frozen backbone has random weights: ",
               "give it trained ones (--pretrained FILE)");
}

void build_model(Setup& setup, bool continued) {
  const Recipe& recipe = setup.recipe;
  const bool pretrained = !recipe.model.pretrained.empty();
  // The weights of a run that is continued come from its checkpoint.
  const auto build = continued || pretrained ? models::build_undrawn : models::build_model;
  setup.model = build(setup.info.model, setup.seed());
  if (pretrained && continued) {  // loading makes the head anew, behind all else; sums go in that order
    const Value* classes = setup.info.model.settings.find("classes");
    setup.model->reset_head(classes && classes->is_int() ? classes->as_int() : 0);
  }
  if (pretrained && !continued) {
    const LoadReport report = load_pretrained(*setup.model, setup.info.model, setup.info.class_names,
                                              WeightFile(recipe.model.pretrained));
    setup.notes.insert(setup.notes.end(), report.lines.begin(), report.lines.end());
  }
  if (!recipe.model.select_from.empty() && !continued) {
    const LoadReport report =
        select_pretrained(*setup.model, setup.info.model, WeightFile(recipe.model.select_from));
    setup.notes.insert(setup.notes.end(), report.lines.begin(), report.lines.end());
  }
  if (recipe.quantization.enabled())
    setup.notes.push_back(text("quantised: ", quantise_blocks(*setup.model, recipe.quantization),
                               " layers, weights of ", recipe.quantization.weights, " bits, activations of ",
                               recipe.quantization.activations));
  setup.model->set_checkpointing(recipe.train.checkpoint_activations);
  setup.model->to(setup.device, parameter_type(setup.precision));
  if (const int64_t frozen = freeze_parameters(*setup.model, recipe.train.freeze); frozen > 0)
    setup.notes.push_back(
        text("frozen: ", frozen, " of ", setup.model->parameters().size(), " parameter tensors"));
  if (!continued && !pretrained && recipe.model.select_from.empty()) check_something_learns(setup);
  setup.model_state = named_state(*setup.model);
  const bool adaptive = recipe.train.clip_mode == "agc";
  for (const auto& parameter : setup.model->named_parameters()) {
    if (!parameter.value().requires_grad()) continue;
    setup.trained.push_back(parameter.value());
    const bool left = adaptive && parameter.key().starts_with("head");
    (left ? setup.unclipped : setup.clipped).push_back(parameter.value());
  }
}

torch::Tensor channels(const std::vector<double>& values, torch::TensorOptions options) {
  return torch::tensor(values, options).reshape({1, -1, 1, 1});
}

// What does not fit is said before the run is begun.
void check_teacher(const Setup& setup, const OpenedModel& teacher) {
  const torch::NoGradGuard no_grad;
  std::vector<int64_t> sizes = setup.recipe.train.sizes;
  if (sizes.empty()) sizes = {setup.recipe.preprocess.size};
  for (const int64_t size : sizes) {
    torch::Tensor scores;
    try {
      scores = teacher.model->forward(torch::zeros({1, 3, size, size}));
    } catch (const Error& error) {
      fail_usage("distil.teacher '", teacher.file, "' cannot take pictures of ", size, ": ", error.what());
    }
    if (scores.size(-1) != setup.plan.classes)
      fail_usage("distil.teacher '", teacher.file, "' tells ", scores.size(-1),
                 " classes apart, the data has ", setup.plan.classes);
  }
}

// The teacher sees the student's pictures, normalised as it was trained.
std::shared_ptr<const tasks::Teacher> open_teacher(Setup& setup) {
  const DistilConfig& distil = setup.recipe.distil;
  if (distil.teacher.empty()) return nullptr;
  if (setup.info.multi_label) fail_usage("distil.teacher needs one class a picture, the data has several");
  const data::Preprocess& own = setup.recipe.preprocess;
  const OpenedModel opened = open_model(distil.teacher, {.size = own.size});
  if (!opened.info.class_names.empty() && opened.info.class_names != setup.info.class_names)
    fail_usage("distil.teacher '", opened.file, "' was trained on other classes than the data has");
  check_teacher(setup, opened);
  setup.fingerprints.emplace_back("teacher", checksum_of(MappedFile(opened.file).bytes()));
  auto teacher = std::make_shared<tasks::Teacher>();
  teacher->model = opened.model;
  teacher->model->to(setup.device, parameter_type(setup.precision));
  teacher->kind = distil.kind == "hard"   ? tasks::Distillation::hard
                  : distil.kind == "soft" ? tasks::Distillation::soft
                                          : tasks::Distillation::batchmean;
  teacher->alpha = distil.alpha;
  teacher->tau = distil.tau;
  const data::Preprocess& theirs = opened.info.preprocess;
  if (theirs.mean != own.mean || theirs.std != own.std) {
    const auto options = torch::TensorOptions(setup.device).dtype(parameter_type(setup.precision));
    const torch::Tensor deviation = channels(theirs.std, options);
    teacher->scale = channels(own.std, options) / deviation;
    teacher->shift = (channels(own.mean, options) - channels(theirs.mean, options)) / deviation;
  }
  return teacher;
}

// Runs that were begun before this was refused go on.
std::vector<double> soft_mask_of(const Setup& setup, bool continued) {
  const SoftMaskConfig& soft = setup.recipe.soft_mask;
  if (soft.share == 0) return {};
  const auto* masked = dynamic_cast<const models::SoftMasked*>(setup.model.get());
  if (!masked || (!masked->is_masked() && !continued))
    fail_usage("soft_mask.share = ", shortest(soft.share), ": ", setup.info.model.family,
               masked ? " with model.mask = \"none\"" : "", " has no causal mask");
  const int64_t spe = setup.plan.steps_per_epoch, epochs = (setup.plan.steps + spe - 1) / spe;
  if (soft.cutoff_epoch > epochs)
    fail_usage("soft_mask.cutoff_epoch = ", soft.cutoff_epoch, " is beyond the run's ", epochs, " epochs");
  return models::rates({.rate = soft.share,
                        .epochs = epochs,
                        .steps_per_epoch = spe,
                        .cutoff_epoch = soft.cutoff_epoch,
                        .mode = soft.mode,
                        .shape = soft.shape});
}

// The loss, but for the teacher.
tasks::ClassifyConfig loss_of(const Setup& setup, bool continued) {
  const TrainConfig& train = setup.recipe.train;
  tasks::ClassifyConfig classify;
  classify.loss = train.loss;
  classify.label_smoothing = train.label_smoothing;
  if (train.label_smoothing > 0 && setup.info.multi_label)
    fail_usage("train.label_smoothing = ", shortest(train.label_smoothing),
               " is for one class a picture, the data has several");
  if (train.target_threshold >= 0 && setup.info.multi_label && !continued)
    fail_usage("train.target_threshold = ", shortest(train.target_threshold),
               " is for one class a picture, the data has several");
  if (train.target_threshold >= 0) classify.target_threshold = train.target_threshold;
  classify.class_weights = class_weights(setup);
  return classify;
}

void build_training(Setup& setup, bool continued) {
  const TrainConfig& train = setup.recipe.train;
  tasks::ClassifyConfig classify = loss_of(setup, continued);
  classify.teacher = open_teacher(setup);
  setup.task = tasks::make_classify(classify, setup.plan.classes, setup.info.multi_label);
  const OptimiserSettings& common = setup.recipe.optimiser.common;
  setup.optimiser = make_optimiser(
      setup.recipe.optimiser, make_parameter_groups(*setup.model, {.weight_decay = common.weight_decay,
                                                                   .layer_decay = common.layer_decay,
                                                                   .no_decay = setup.model->no_weight_decay(),
                                                                   .rules = common.groups}));
  if (train.ema_decay > 0)
    setup.ema = std::make_unique<Ema>(EmaConfig{.decay = train.ema_decay, .warmup = train.ema_warmup},
                                      setup.model_state);
  setup.soft_mask = soft_mask_of(setup, continued);
  if (train.clip_grad > 0) setup.clip = {.mode = train.clip_mode, .value = train.clip_grad};
}

// The first pictures set the steps of quantised activations: the same ones in every process.
void set_activation_steps(Setup& setup) {
  data::LoaderConfig config = setup.train_loader_config();
  config.batch_size = std::min(config.batch_size, kFirstPictures);
  config.repeats = 1, config.pairs = false;
  data::Loader loader(*setup.train_source,
                      data::make_train_transform(setup.recipe.preprocess, setup.recipe.augment), config);
  const auto batch = loader.next();
  const torch::NoGradGuard no_grad;
  const tasks::AutocastScope autocast(setup.device, setup.precision);
  setup.model->eval();
  setup.model->forward(tasks::to_device(*batch, setup.device, setup.precision).images);
}

// --- the plan

void plan_steps(Setup& setup) {
  const TrainConfig& train = setup.recipe.train;
  RunPlan& plan = setup.plan;
  plan.batch_size = train.batch_size;
  plan.classes = setup.info.model.settings.find("classes")->as_int();
  if (setup.train_source) {
    plan.samples = setup.train_source->size();
    plan.validation_samples = setup.validation_source->size();
    plan.train_data = setup.train_source->describe();
    plan.validation_data = setup.validation_source->describe();
  }
  plan.steps_per_epoch = plan.samples / train.batch_size;
  plan.steps = train.steps > 0 ? train.steps : train.epochs * plan.steps_per_epoch;
  plan.images = plan.steps * train.batch_size;
  plan.threads = num_threads();
  plan.device = setup.device.str();
}

void plan_model(RunPlan& plan, const models::Backbone& model, const models::ModelSpec& spec,
                const Recipe& recipe) {
  plan.model = spec.name;
  plan.parameters = models::count_parameters(model);
  plan.macs = model.macs(recipe.preprocess.size, recipe.preprocess.size);
  const auto& patterns = recipe.train.freeze;
  for (const auto& parameter : model.named_parameters()) {
    if (std::none_of(patterns.begin(), patterns.end(),
                     [&](const auto& pattern) { return matches(pattern, parameter.key()); }))
      plan.trainable_parameters += parameter.value().numel();
  }
  // Weights, their average, and two moments of what is trained; then as many checkpoints as are ever there at
  // once: those kept, the best, the one being written; and the best and final weights.
  const uint64_t size = recipe.train.precision == "fp64" ? 8 : 4;
  const auto all = static_cast<uint64_t>(plan.parameters),
             trained = static_cast<uint64_t>(plan.trainable_parameters);
  const bool averaged = recipe.train.ema_decay > 0;
  plan.checkpoint_bytes = size * (all * (averaged ? 2 : 1) + 2 * trained) + (uint64_t{1} << 18);
  plan.disk_bytes = (static_cast<uint64_t>(recipe.train.keep_last) + 2) * plan.checkpoint_bytes +
                    2 * (size * all + (1 << 18));
  plan.free_bytes = free_disk_bytes(recipe.train.output);
}

// What would stop the run at its first batch or evaluation stops it before anything is written.
void check_loading(const Setup& setup) {
  const Recipe& recipe = setup.recipe;
  data::make_train_transform(recipe.preprocess, recipe.augment);
  data::make_eval_transform(recipe.preprocess);
  const auto check = [&](const data::Source& source, data::LoaderConfig config) {
    config.world_size = setup.plan.processes;
    data::check_loader(source, config);
  };
  check(*setup.train_source, setup.train_loader_config());
  check(*setup.validation_source, setup.validation_loader_config());
  if (setup.unlabelled_source) check(*setup.unlabelled_source, setup.unlabelled_loader_config());
  const int64_t epochs = std::max<int64_t>(1, setup.plan.steps / setup.plan.steps_per_epoch);
  if (std::ssize(recipe.train.sizes) > epochs)
    fail_usage("train.sizes has ", recipe.train.sizes.size(), " sizes, more than the run has epochs, ",
               epochs);
}

// All that can be known without memory for the model. `missing_data`: where it is given, data that cannot be
// opened are no error: it says what is wrong with them, and they count nothing in the plan.
Setup sketch(const Recipe& recipe, int64_t processes, std::string* missing_data = nullptr) {
  Setup setup;
  setup.recipe = recipe;
  setup.plan.processes = processes;
  use_threads(recipe.train.threads);
  setup.device = choose_device(recipe.train.device);
  setup.precision = tasks::parse_precision(recipe.train.precision);
  try {
    open_data(setup);
  } catch (const Error& error) {
    if (!missing_data || error.kind == ErrorKind::usage) throw;
    *missing_data = error.what();
    setup.train_source.reset(), setup.validation_source.reset(), setup.unlabelled_source.reset();
  }
  describe_model(setup);
  plan_steps(setup);
  plan_model(setup.plan, *sketch_of(setup.info), setup.info.model, setup.recipe);
  if (!setup.train_source) return setup;  // what follows depends on the pictures
  check_loading(setup);
  setup.schedule =
      make_schedule(setup.recipe.schedule, {.lr = setup.recipe.optimiser.lr_for(recipe.train.batch_size),
                                            .steps = setup.plan.steps,
                                            .steps_per_epoch = setup.plan.steps_per_epoch});
  return setup;
}

// What a run must find as it was to be continued.
std::vector<std::pair<std::string, std::string>> fingerprints_of(const Setup& setup) {
  const auto hex = [](uint64_t value) {
    std::ostringstream out;
    out << std::hex << value;
    return out.str();
  };
  std::vector<std::pair<std::string, std::string>> out = {
      {"train_data", hex(setup.train_source->fingerprint())},
      {"validation_data", hex(setup.validation_source->fingerprint())}};
  if (setup.unlabelled_source)
    out.emplace_back("unlabelled_data", hex(setup.unlabelled_source->fingerprint()));
  return out;
}

// The most memory that the run takes in one process: what this one holds after a pass over two pictures
// (program, LibTorch, weights, gradients, the kernels' room), and what a run has besides.
uint64_t memory_of(const Setup& setup) {
  const TrainConfig& train = setup.recipe.train;
  int64_t side = setup.recipe.preprocess.size;
  for (const int64_t size : train.sizes) side = std::max(side, size);
  {
    const torch::NoGradGuard no_grad;
    for (const torch::Tensor& parameter : setup.model->parameters()) parameter.zero_();  // take their place
  }
  const int64_t seen = setup.recipe.preprocess.size;
  const ActivationBytes evaluation = measure_evaluation(*setup.model, seen, setup.precision);
  const ActivationBytes training = measure_training(*setup.model, side, setup.precision);
  const uint64_t now = resident_bytes();
  // Evaluation's tensors are of other sizes than training's and seldom fit where those were.
  const int64_t pictures = (train.batch_size + train.accumulate - 1) / train.accumulate,
                evaluated = setup.validation_loader_config().batch_size;
  const auto activations = static_cast<uint64_t>(
      kHoles * static_cast<double>(training.per_picture * std::max<int64_t>(0, pictures - 2)) +
      static_cast<double>(evaluation.per_picture * evaluated));
  // A checkpoint holds the average and the moments, which are not there yet, and the weights, which are.
  const uint64_t weights = static_cast<uint64_t>(setup.plan.parameters) * (train.precision == "fp64" ? 8 : 4);
  const uint64_t state = setup.plan.checkpoint_bytes - weights;
  // Of both loaders: what is ready ahead, in use, and on its way to the model.
  const auto batches = [](const data::LoaderConfig& config, int64_t of) {
    return static_cast<uint64_t>((std::max(config.queue, config.threads) + 2) * config.batch_size * 3 * of *
                                 of) *
           sizeof(float);
  };
  return now + state + activations + batches(setup.train_loader_config(), side) +
         batches(setup.validation_loader_config(), seen);
}

// A size that the model cannot take is said now, not when the run comes to it.
void check_sizes(const Setup& setup) {
  const torch::NoGradGuard no_grad;
  setup.model->eval();
  for (const int64_t size : setup.recipe.train.sizes) try {
      setup.model->forward(torch::zeros({1, 3, size, size}, setup.model->parameters()[0].options()));
    } catch (const Error& error) {
      fail_usage("train.sizes holds ", size, ": ", error.what());
    }
}

}  // namespace

Setup make_setup(const Recipe& recipe, bool continued, int64_t processes) {
  if (const std::string missing = missing_weights(recipe); !continued && !missing.empty()) fail(missing);
  Setup setup = sketch(recipe, processes);
  setup.fingerprints = fingerprints_of(setup);
  build_model(setup, continued);
  if (recipe.quantization.enabled() && !continued) set_activation_steps(setup);
  check_sizes(setup);
  build_training(setup, continued);
  return setup;
}

PlannedRun plan_training(const Recipe& recipe) {
  PlannedRun planned;
  Setup setup = sketch(recipe, 1, &planned.missing_data);
  planned.missing_weights = missing_weights(recipe);
  if (setup.train_source) loss_of(setup, /*continued=*/false);  // says what does not fit
  build_model(setup, /*continued=*/true);
  setup.model->to(torch::kCPU);
  check_sizes(setup);
  setup.plan.memory_bytes = memory_of(setup);
  planned.recipe = setup.recipe;
  planned.plan = setup.plan;
  return planned;
}

int64_t freeze_parameters(torch::nn::Module& model, const std::vector<std::string>& patterns) {
  std::vector<std::string> names;
  for (const auto& parameter : model.named_parameters()) names.push_back(parameter.key());
  for (const std::string& pattern : patterns) {
    if (std::none_of(names.begin(), names.end(), [&](const auto& name) { return matches(pattern, name); }))
      fail_usage("train.freeze: no parameter matches '", pattern, "'", did_you_mean(pattern, names),
                 " (`tessera inspect` lists the names)");
    for (auto& parameter : model.named_parameters())
      if (matches(pattern, parameter.key())) parameter.value().set_requires_grad(false);
  }
  const auto parameters = model.parameters();
  const int64_t frozen =
      std::count_if(parameters.begin(), parameters.end(), [](const auto& p) { return !p.requires_grad(); });
  if (frozen == static_cast<int64_t>(parameters.size()))
    fail_usage("train.freeze leaves nothing to train: it matches all ", frozen, " parameters");
  return frozen;
}

int64_t Setup::input_size(int64_t epoch) const {
  const auto& sizes = recipe.train.sizes;
  if (sizes.empty()) return recipe.preprocess.size;
  const int64_t epochs = std::max<int64_t>(1, plan.steps / plan.steps_per_epoch);
  const auto count = static_cast<int64_t>(sizes.size());
  return sizes[static_cast<size_t>(std::min(count - 1, epoch * count / epochs))];
}

data::LoaderConfig Setup::train_loader_config() const {
  const TrainConfig& train = recipe.train;
  return {.batch_size = train.batch_size,
          .threads = train.loader_threads,
          .balanced = train.balanced_sampling,
          .repeats = train.repeats,
          .pairs = recipe.mixup.enabled(),
          .on_bad_image = train.on_bad_image == "fail" ? data::OnBadImage::fail : data::OnBadImage::replace,
          .max_bad = train.max_bad,
          .seed = static_cast<uint64_t>(train.seed)};
}

data::LoaderConfig Setup::validation_loader_config() const {
  data::LoaderConfig config = train_loader_config();
  if (recipe.train.eval_batch_size > 0) config.batch_size = recipe.train.eval_batch_size;
  config.shuffle = config.drop_last = config.balanced = config.pairs = false;
  config.repeats = 1;
  return config;
}

data::LoaderConfig Setup::unlabelled_loader_config() const {
  data::LoaderConfig config = train_loader_config();
  config.batch_size = recipe.distil.unlabelled_batch;
  config.balanced = config.pairs = false;
  config.repeats = 1;
  return config;
}

}  // namespace tessera::train
