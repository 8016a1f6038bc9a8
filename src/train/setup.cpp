#include "train/setup.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/random.h"
#include "core/text.h"
#include "core/threads.h"
#include "core/toml.h"
#include "io/file.h"
#include "tasks/classify.h"
#include "train/device.h"
#include "train/load.h"

namespace tessera::train {
namespace {

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

void describe_model(Setup& setup) {
  const data::Source& source = *setup.train_source;
  Recipe& recipe = setup.recipe;
  recipe.model.settings.set("classes", static_cast<int64_t>(source.class_names().size()));
  setup.info.model = models::resolve_model(recipe.model.name, recipe.model.settings);
  recipe.model.settings = setup.info.model.settings;
  setup.info.class_names = source.class_names();
  setup.info.preprocess = recipe.preprocess;
  setup.info.multi_label = source.multi_label();
  setup.info.recipe = write_toml(computed_part(recipe));
  setup.info.ours = true;
}

void build_model(Setup& setup, bool continued) {
  const Recipe& recipe = setup.recipe;
  const bool pretrained = !recipe.model.pretrained.empty();
  // The weights of a run that is continued come from its checkpoint.
  const auto build = continued || pretrained ? models::build_undrawn : models::build_model;
  setup.model = build(setup.info.model, setup.seed());
  if (pretrained && !continued) {
    const LoadReport report = load_pretrained(*setup.model, setup.info.model, setup.info.class_names,
                                              WeightFile(recipe.model.pretrained));
    setup.notes.insert(setup.notes.end(), report.lines.begin(), report.lines.end());
  }
  setup.model->to(setup.device, parameter_type(setup.precision));
  if (const int64_t frozen = freeze_parameters(*setup.model, recipe.train.freeze); frozen > 0)
    setup.notes.push_back(
        text("frozen: ", frozen, " of ", setup.model->parameters().size(), " parameter tensors"));
  setup.model_state = named_state(*setup.model);
  for (const torch::Tensor& parameter : setup.model->parameters())
    if (parameter.requires_grad()) setup.trained.push_back(parameter);
}

void build_training(Setup& setup) {
  const TrainConfig& train = setup.recipe.train;
  tasks::ClassifyConfig classify;
  classify.loss = train.loss;
  classify.label_smoothing = train.label_smoothing;
  classify.class_weights = class_weights(setup);
  setup.task = tasks::make_classify(classify, setup.plan.classes, setup.info.multi_label);
  const OptimiserSettings& common = setup.recipe.optimiser.common;
  setup.optimiser =
      make_optimiser(setup.recipe.optimiser,
                     make_parameter_groups(*setup.model, {.weight_decay = common.weight_decay,
                                                          .layer_decay = common.layer_decay,
                                                          .no_decay = setup.model->no_weight_decay()}));
  if (train.ema_decay > 0)
    setup.ema = std::make_unique<Ema>(EmaConfig{.decay = train.ema_decay, .warmup = train.ema_warmup},
                                      setup.model_state);
  setup.schedule = make_schedule(
      setup.recipe.schedule,
      {.lr = common.lr, .steps = setup.plan.steps, .steps_per_epoch = setup.plan.steps_per_epoch});
  if (train.clip_grad > 0) setup.clip = {.mode = train.clip_mode, .value = train.clip_grad};
}

// --- the plan

void plan_steps(Setup& setup) {
  const TrainConfig& train = setup.recipe.train;
  RunPlan& plan = setup.plan;
  plan.batch_size = train.batch_size;
  plan.samples = setup.train_source->size();
  plan.validation_samples = setup.validation_source->size();
  plan.train_data = setup.train_source->describe();
  plan.validation_data = setup.validation_source->describe();
  plan.classes = static_cast<int64_t>(setup.train_source->class_names().size());
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
    const auto matches = [&](const std::string& p) {
      return fnmatch(p.c_str(), parameter.key().c_str(), 0) == 0;
    };
    if (std::none_of(patterns.begin(), patterns.end(), matches))
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
  plan.free_bytes = recipe.train.output.empty() ? 0 : free_disk_bytes(recipe.train.output);
}

// Targets of several classes, each picture's mixed with its mirror's.
std::vector<float> mixed(const std::vector<float>& targets, const std::vector<double>& lambda) {
  const size_t batch = lambda.size(), classes = targets.size() / batch;
  std::vector<float> out(targets.size());
  for (size_t i = 0; i < batch; ++i)
    for (size_t c = 0; c < classes; ++c)
      out[i * classes + c] = static_cast<float>(lambda[i] * targets[i * classes + c] +
                                                (1 - lambda[i]) * targets[(batch - 1 - i) * classes + c]);
  return out;
}

// All that can be known without memory for the model.
Setup sketch(const Recipe& recipe) {
  Setup setup;
  setup.recipe = recipe;
  use_threads(recipe.train.threads);
  setup.device = choose_device(recipe.train.device);
  setup.precision = tasks::parse_precision(recipe.train.precision);
  open_data(setup);
  describe_model(setup);
  plan_steps(setup);
  plan_model(setup.plan, *models::sketch_model(setup.info.model), setup.info.model, setup.recipe);
  return setup;
}

}  // namespace

Setup make_setup(const Recipe& recipe, bool continued) {
  Setup setup = sketch(recipe);
  build_model(setup, continued);
  build_training(setup);
  return setup;
}

RunPlan plan_training(const Recipe& recipe) { return sketch(recipe).plan; }

int64_t freeze_parameters(torch::nn::Module& model, const std::vector<std::string>& patterns) {
  std::vector<std::string> names;
  for (const auto& parameter : model.named_parameters()) names.push_back(parameter.key());
  for (const std::string& pattern : patterns) {
    const auto matches = [&](const std::string& name) {
      return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
    };
    if (std::none_of(names.begin(), names.end(), matches))
      fail_usage("train.freeze: no parameter matches '", pattern, "'", did_you_mean(pattern, names),
                 " (`tessera inspect` lists the names)");
    for (auto& parameter : model.named_parameters())
      if (matches(parameter.key())) parameter.value().set_requires_grad(false);
  }
  const auto parameters = model.parameters();
  const int64_t frozen =
      std::count_if(parameters.begin(), parameters.end(), [](const auto& p) { return !p.requires_grad(); });
  if (frozen == static_cast<int64_t>(parameters.size()))
    fail_usage("train.freeze leaves nothing to train: it matches all ", frozen, " parameters");
  return frozen;
}

void Setup::mix(data::Batch& batch, int64_t step) const {
  const data::MixupConfig& config = recipe.mixup;
  if (!config.enabled()) return;
  RandomStream random(seed(), "mixup", static_cast<uint64_t>(step));
  const auto draws = data::draw_mix(config, batch.size, batch.height, batch.width, random);
  const auto lambda = data::mix_pictures(config.mode, draws, batch.images.data(), batch.size, batch.channels,
                                         batch.height, batch.width);
  batch.targets = batch.targets.empty()
                      ? data::mix_targets(batch.labels, plan.classes, /*smoothing=*/0, lambda)
                      : mixed(batch.targets, lambda);
}

data::LoaderConfig Setup::train_loader_config() const {
  const TrainConfig& train = recipe.train;
  return {.batch_size = train.batch_size,
          .threads = train.loader_threads,
          .balanced = train.balanced_sampling,
          .on_bad_image = train.on_bad_image == "fail" ? data::OnBadImage::fail : data::OnBadImage::replace,
          .max_bad = train.max_bad,
          .seed = static_cast<uint64_t>(train.seed)};
}

data::LoaderConfig Setup::validation_loader_config() const {
  data::LoaderConfig config = train_loader_config();
  if (recipe.train.eval_batch_size > 0) config.batch_size = recipe.train.eval_batch_size;
  config.shuffle = config.drop_last = config.balanced = false;
  return config;
}

}  // namespace tessera::train
