#include "train/setup.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>

#include "core/error.h"
#include "core/memory.h"
#include "core/text.h"
#include "core/threads.h"
#include "core/value.h"
#include "io/files/file.h"
#include "io/files/path.h"
#include "models/base/tokeniser.h"
#include "nn/own_rows.h"
#include "open/device.h"
#include "open/load.h"
#include "open/open_language.h"
#include "tasks/base/text_limit.h"
#include "tasks/language/language_part.h"
#include "train/memory.h"
#include "train/step_graphs.h"

namespace tessera::train {
namespace {

constexpr int64_t kTextsLookedAt = 512;  // number of samples checked before the first step
constexpr int64_t kFirstImages = 64;     // images that initialise step sizes of quantised activations

std::string hex(uint64_t value) {
  std::ostringstream out;
  out << std::hex << value;
  return out.str();
}

// Training is useless if only the head trains while the frozen backbone has random weights.
void check_something_learns(const tasks::Task& task, const std::vector<tasks::Part>& parts) {
  const std::vector<std::string> outputs = task.output_names();
  bool frozen = false;
  for (const auto& [name, parameter] : tasks::named_parameters(parts)) {
    const bool output = std::find(outputs.begin(), outputs.end(), name) != outputs.end();
    if (parameter.requires_grad() && !output) return;
    frozen = frozen || !parameter.requires_grad();
  }
  if (frozen)
    fail_usage("train.freeze leaves the head alone to learn, and the frozen backbone has random weights: ",
               "give it trained ones (--pretrained FILE)");
}

// Returns fingerprints that must be unchanged to continue a run.
std::vector<std::pair<std::string, std::string>> fingerprints_of(const tasks::Task& task) {
  std::vector<std::pair<std::string, std::string>> prints;
  std::vector<tasks::StreamSpec> streams = task.streams();
  streams.insert(streams.begin() + 1, task.validation());
  for (const tasks::StreamSpec& stream : streams)
    prints.emplace_back(stream.name + "_data", hex(stream.source->fingerprint()));
  for (const tasks::BackbonePart& part : task.backbones())
    if (const auto* reader = dynamic_cast<const models::ReadsTokens*>(part.model.get());
        reader && reader->input_codes() > 0)
      prints.emplace_back("input_tokeniser", reader->tokens_checksum());
  const auto others = task.fingerprints();
  prints.insert(prints.end(), others.begin(), others.end());
  return prints;
}

// Initialises the step sizes of quantised activations from the first images, the same in every process.
void set_activation_step_sizes(const Recipe& recipe, const Compute& compute, tasks::Task& task) {
  const tasks::StreamSpec stream = task.streams().at(0);
  data::LoaderConfig config = loader_config(recipe.train, stream, /*training=*/true);
  config.batch_size = std::min(config.batch_size, kFirstImages);
  config.repeats = 1, config.pairs = false;
  data::Loader loader(*stream.source, stream.transform(recipe.preprocess.size), config);
  std::vector<data::Batch> batches;
  batches.push_back(*loader.next());
  const torch::NoGradGuard no_grad;
  const tasks::AutocastScope autocast(compute.device, compute.precision);
  tasks::set_training(task.parts(), false);
  const auto images = tasks::to_device(batches[0], stream.name, compute.device, compute.precision);
  task.backbones().at(0).model->embed(images.at("image"));
}

// Reports an unsupported image size now, not when the run reaches it.
void check_sizes(const Recipe& recipe, const Compute& compute, tasks::Task& task) {
  const torch::NoGradGuard no_grad;
  const tasks::AutocastScope autocast(compute.device, compute.precision);
  models::Backbone& model = *task.backbones().at(0).model;
  model.eval();
  for (const int64_t size : recipe.train.sizes) try {
      model.embed(
          torch::zeros({1, static_cast<int64_t>(recipe.preprocess.mean.size()), size, size},
                       torch::TensorOptions(parameter_type(compute.precision)).device(compute.device)));
    } catch (const Error& error) {
      fail_usage("train.sizes holds ", size, ": ", error.what());
    }
}

}  // namespace

// --- compute and data

Compute choose_compute(const TrainConfig& train) {
  use_threads(train.threads);
  return {choose_device(train.device), tasks::parse_precision(name_of(train.precision))};
}

RunData open_data(const Recipe& recipe, bool may_be_missing) {
  if (recipe.data.path.empty()) fail_usage("data.path is empty: name the images (--data)");
  RunData data;
  try {
    const data::SourceConfig config =
        tasks::data_for(tasks::find_task(tasks::task_name(recipe.task)), recipe.data);
    data.train = data::open_source(config, data::Split::train);
    data.validation = data::open_source(config, data::Split::validation);
    data::require_same_classes(*data.train, *data.validation);
  } catch (const Error& error) {
    // Only missing data are tolerated: an error in existing data would also stop the run.
    const auto there = [](const std::string& path) {
      std::error_code ignored;
      return path.empty() || std::filesystem::exists(path, ignored);
    };
    if (error.kind == ErrorKind::usage || (there(recipe.data.path) && there(recipe.data.val_path))) throw;
    if (may_be_missing) return {nullptr, nullptr, error.what()};
    throw Error(error.kind, text(error.what(), "; ", there(recipe.data.path) ? "--val-data" : "--data",
                                 " names another"));
  }
  return data;
}

data::LoaderConfig loader_config(const TrainConfig& train, const tasks::StreamSpec& stream, bool training,
                                 const BatchShare& share) {
  data::LoaderConfig config = {.batch_size = stream.batch_size > 0 ? stream.batch_size : train.batch_size,
                               .threads = train.loader_threads,
                               .on_bad_image = train.on_bad_image == BadImagePolicy::fail
                                                   ? data::OnBadImage::fail
                                                   : data::OnBadImage::replace,
                               .max_bad = train.max_bad,
                               .seed = static_cast<uint64_t>(train.seed)};
  config.shuffle = config.drop_last = training;
  if (training) {
    config.pairs = stream.pairs;
    if (stream.labelled) config.balanced = train.balanced_sampling, config.repeats = train.repeats;
  } else if (train.eval_batch_size > 0) {
    config.batch_size = train.eval_batch_size;
  }
  config.rank = share.rank, config.world_size = share.processes;
  if (!training) config.batch_size = std::max(config.batch_size, share.processes);
  return config;
}

// --- the task

// Without data the model gets the settings of the recipe, or of the size that the recipe names.
WeightsInfo describe_run(Recipe& recipe, const RunData& data) {
  const tasks::TaskKind& kind = tasks::find_task(tasks::task_name(recipe.task));
  kind.fit_model(recipe.model.settings, tasks::task_settings(recipe.task), data.train.get());
  WeightsInfo info;
  info.model = models::resolve_model(recipe.model.name, recipe.model.settings);
  recipe.model.settings = info.model.settings;
  info.task = recipe.task;
  info.preprocess = recipe.preprocess;
  info.quantization = recipe.quantization;
  info.recipe = write_toml(computed_part(recipe));
  info.ours = true;
  return info;
}

std::string missing_weights(const Recipe& recipe) {
  for (const auto& [key, file] : {std::pair("model.pretrained", recipe.model.pretrained),
                                  std::pair("model.select_from", recipe.model.select_from)})
    if (refuse_remote_path(file); !file.empty() && !file_exists(file))
      return recipe.model.select_from.empty()
                 ? text("this recipe fine-tunes: give weights with --pretrained FILE (", key, " = '", file,
                        "' does not exist)")
                 : text(key, " = '", file, "' does not exist: it names the larger model's weights");
  return "";
}

tasks::TaskSetup task_setup(const Recipe& recipe, const RunData& data, const WeightsInfo& info,
                            const Compute& compute) {
  tasks::TaskSetup setup;
  setup.settings = tasks::task_settings(recipe.task);
  setup.model = info.model;
  setup.seed = static_cast<uint64_t>(recipe.train.seed);
  setup.train = data.train, setup.validation = data.validation;
  setup.preprocess = recipe.preprocess;
  setup.augment = recipe.augment;
  setup.sides = input_sizes(recipe);
  setup.batch_size = recipe.train.batch_size;
  setup.balanced = recipe.train.balanced_sampling;
  setup.device = compute.device;
  setup.precision = compute.precision;
  return setup;
}

namespace {

// Returns "images: size 224, crop 0.9, …, as the pretrained weights", or the differences.
std::string preprocess_note(const Recipe& recipe, const WeightFile& file) {
  const Value used = write_config(recipe.preprocess),
              theirs = write_config(preprocess_of(file, recipe.model.name));
  std::vector<std::string> others;
  for (const auto& [key, value] : theirs.as_table())
    if (key != "size" && *used.find(key) != value) others.push_back(text(key, " ", toml_text(value)));
  return text("images: ", preprocess_text(recipe.preprocess),
              others.empty() ? ", as the pretrained weights"
                             : "; the pretrained weights were made with " + join(others, ", "));
}

}  // namespace

RunTask build_task(const Recipe& recipe, const RunData& data, const WeightsInfo& info, const Compute& compute,
                   bool continued) {
  const bool pretrained = !recipe.model.pretrained.empty();
  tasks::TaskSetup setup = task_setup(recipe, data, info, compute);
  // A continued run takes its weights from its checkpoint. With pretrained weights only the backbone can skip
  // initialisation: the task's own tensors keep their initial values if the file lacks them.
  setup.init = continued ? models::Init::skip : models::Init::draw;
  if (pretrained && !continued)
    setup.make_backbone = [](const models::ModelSpec& spec) {
      return models::build_backbone(spec, 0, models::Init::skip);
    };
  setup.continued = continued;
  setup.opener = weights_opener();
  RunTask run;
  run.task = tasks::find_task(tasks::task_name(recipe.task)).make(setup);
  run.info = info;
  run.info.task_metadata = run.task->metadata();
  run.parts = run.task->parts();
  const tasks::BackbonePart backbone = run.task->backbones().at(0);
  const auto take = [&](const LoadReport& report) {
    run.notes.insert(run.notes.end(), report.lines.begin(), report.lines.end());
  };
  auto* const language = dynamic_cast<tasks::LanguageBeginner*>(run.task.get());
  if (const std::string path = language ? language->language_weights() : ""; !path.empty() && !continued)
    run.notes.push_back(begin_language(*language, path));
  if (pretrained && !continued) {
    const WeightFile file = pretrained_file(recipe.model);
    take(load_pretrained(*run.task, file));
    run.notes.push_back(preprocess_note(recipe, file));
  }
  if (!recipe.model.select_from.empty() && !continued)
    take(select_pretrained(*backbone.model, backbone.spec,
                           WeightFile(weights_file_of(recipe.model.select_from))));
  if (recipe.quantization.enabled()) {
    const QuantisedBlocks found = quantise_blocks(*backbone.model, recipe.quantization);
    run.notes.push_back(text(
        "quantised: ", found.linear, " layers, weights of ", recipe.quantization.weights,
        " bits, activations of ", recipe.quantization.activations,
        found.attention > 0 ? text("; q, k, v and probabilities of ", found.attention, " attentions") : ""));
  }
  for (const tasks::Part& part : run.parts)
    nn::set_checkpointing(*part.module, recipe.train.checkpoint_activations);
  run.device = compute.device, run.continued = continued;
  const bool divided = nn::OwnRowsScope::rows() != nullptr;
  tasks::move(run.parts, divided ? torch::kCPU : compute.device, parameter_type(compute.precision));
  if (const std::string note = freeze(recipe, run.parts); !note.empty()) run.notes.push_back(note);
  if (!continued && !pretrained && recipe.model.select_from.empty())
    check_something_learns(*run.task, run.parts);
  run.state = tasks::named_state(run.parts);
  int64_t frozen = 0, all = 0;
  for (const auto& [name, parameter] : tasks::named_parameters(run.parts)) {
    all += parameter.numel();
    if (parameter.requires_grad()) continue;
    frozen += parameter.numel();
    run.frozen.insert(name);
  }
  if (!keeps_frozen_apart(frozen, all)) run.frozen.clear();
  if (data.train) run.fingerprints = fingerprints_of(*run.task);
  return run;
}

// --- optimisation

bool holds_whole_tensors(const Recipe& recipe) {
  return reads_whole_tensors(recipe.optimiser.common.name) || recipe.train.clip_mode == ClipMode::each;
}

std::vector<std::vector<torch::Tensor>> units_of(const std::vector<tasks::Part>& parts) {
  std::vector<std::vector<torch::Tensor>> units;
  for (const tasks::Part& part : parts)
    for (auto& unit : nn::units_of(*part.module)) units.push_back(std::move(unit));
  return units;
}

parallel::Layout::Holders stage_of_each(const NamedTensors& state,
                                        const std::vector<std::vector<torch::Tensor>>& units,
                                        int64_t stages) {
  const std::vector<int> places = parallel::divide_units(units, stages);
  std::map<const c10::TensorImpl*, int> by_tensor;
  for (size_t u = 0; u < units.size(); ++u)
    for (const torch::Tensor& tensor : units[u]) by_tensor.emplace(tensor.unsafeGetTensorImpl(), places[u]);
  parallel::Layout::Holders holders;
  for (const auto& [name, tensor] : state)
    if (const auto found = by_tensor.find(tensor.unsafeGetTensorImpl()); found != by_tensor.end())
      holders.emplace(name, found->second);
  return holders;
}

namespace {

// Returns the pages of weights that were divided. Later ones would stay in the process too, in the gaps of its heap; in a
// large model fresh pages cost little next to the arithmetic.
void spare_memory(const NamedTensors& state) {
  constexpr size_t kLarge = size_t{1} << 30;
  size_t bytes = 0;
  for (const auto& one : state) bytes += one.second.nbytes();
  if (bytes >= kLarge)
    return_freed_memory();
  else
    trim_freed_memory();
}

// Returns what divides the optimisation over processes; null if nothing is divided.
std::unique_ptr<parallel::Shards> make_shards(const Recipe& recipe, const RunTask& model,
                                              const NamedTensors& parameters, const parallel::World* world) {
  const int64_t stage = recipe.parallel.zero;
  const bool pipelined = world && world->axis(parallel::AxisName::pipeline).size() > 1;
  if (!world || (stage == 0 && !pipelined) || world->holders().size() == 1) return nullptr;
  if (recipe.train.noise_scale)
    fail_usage("train.noise_scale reads the gradients of each process, which parallel.zero = ", stage,
               " divides: leave one of them out");
  if (const std::string why = model.task->why_weights_stay_whole(); stage >= 3 && !why.empty())
    fail_usage("parallel.zero = 3 divides the weights of no task '", tasks::task_name(recipe.task),
               "': ", why, "; 2 divides all but the weights");
  NamedTensors trained;
  parallel::DividedBlocks blocks;
  for (const auto& one : parameters) (one.second.requires_grad() ? trained : blocks.frozen).push_back(one);
  blocks.units = units_of(model.parts);
  const int64_t stages = world->axis(parallel::AxisName::pipeline).size();
  if (stages > 1) blocks.places = parallel::divide_units(blocks.units, stages);
  const bool whole = holds_whole_tensors(recipe);
  parallel::Layout layout(
      model.state, world->holders(), [&](const std::string&) { return whole; },
      stages > 1 ? stage_of_each(model.state, blocks.units, stages) : parallel::Layout::Holders());
  if (recipe.train.precision == RunPrecision::bf16) blocks.rounded = weights_of_products(model.parts);
  blocks.device = model.device;
  auto shards = std::make_unique<parallel::Shards>(*world, std::move(layout), trained, stage, blocks);
  for (const tasks::Part& part : model.parts) part.module->to(model.device);  // its buffers
  if (shards->divides_weights()) spare_memory(model.state);
  return shards;
}

}  // namespace

Optimisation make_optimisation(const Recipe& recipe, const RunTask& model, const RunPlan& plan,
                               const parallel::World* world) {
  const TrainConfig& train = recipe.train;
  const OptimiserSettings& common = recipe.optimiser.common;
  const std::vector<std::string> outputs = model.task->output_names();
  Optimisation made;
  std::vector<std::string> no_decay;
  for (const tasks::BackbonePart& part : model.task->backbones())
    for (const std::string& name : part.model->no_weight_decay()) no_decay.push_back(part.prefix + name);
  const NamedTensors parameters = tasks::named_parameters(model.parts);
  NamedTensors trained = parameters;
  std::erase_if(trained, [](const auto& parameter) { return !parameter.second.requires_grad(); });
  made.shards = make_shards(recipe, model, parameters, world);
  if (made.shards) trained = made.shards->parts();
  for (const auto& [name, parameter] : trained) {
    made.trained.push_back(parameter);
    const bool output = std::find(outputs.begin(), outputs.end(), name) != outputs.end();
    (train.clip_mode == ClipMode::agc && output ? made.unclipped : made.clipped).push_back(parameter);
  }
  // Dimensions and names of whole tensors decide about decay and rate.
  auto groups = without_frozen(make_parameter_groups(parameters, {.weight_decay = common.weight_decay,
                                                                  .layer_decay = common.layer_decay,
                                                                  .no_decay = no_decay,
                                                                  .rules = common.groups}));
  for (ParameterGroup& group : groups) group.state_follows = model.continued;
  std::unique_ptr<Offload> copies;
  if (recipe.parallel.offload == parallel::Offloaded::optimiser) copies = std::make_unique<Offload>(trained);
  const NamedTensors& here = copies ? copies->here() : trained;
  const std::map<std::string, torch::Tensor> updated(here.begin(), here.end());
  for (ParameterGroup& group : groups)
    for (auto& [name, parameter] : group.parameters) parameter = updated.at(name);
  made.optimiser = make_optimiser(recipe.optimiser, std::move(groups));
  // A graph rounds the weights itself.
  if (train.precision == RunPrecision::bf16 && !made.shards && !copies && !StepGraphs::on())
    made.optimiser->keep_halves(weights_of_products(model.parts));
  if (copies) made.optimiser->follow(std::move(copies));
  made.averaged = made.shards ? made.shards->rows_of(model.state) : model.state;
  if (made.shards)
    made.optimiser->use_norm_of_all(
        [shards = made.shards.get()](double own, double p) { return shards->norm_of_all(own, p); });
  if (train.ema_decay > 0)
    made.ema =
        std::make_unique<Ema>(EmaConfig{.decay = train.ema_decay, .warmup = train.ema_warmup}, made.averaged);
  made.schedule = make_schedule(recipe.schedule, schedule_span(recipe, plan));
  if (train.clip_grad > 0)
    made.clip = {
        .mode = name_of(train.clip_mode), .value = train.clip_grad, .norm_type = train.clip_norm_type};
  return made;
}

// --- all of it

// Returns a line if label smoothing has no effect, since samples have several classes; else "".
std::string smoothing_note(const Value& task, const data::Source* train) {
  const Value* smoothing = task.find("label_smoothing");
  const data::ClassLabels* classes = train ? train->class_labels() : nullptr;
  if (!classes || !classes->multi_label() || !smoothing || smoothing->as_double() == 0) return "";
  return text("task.label_smoothing = ", shortest(smoothing->as_double()),
              " has no effect: it is for one class an image, the data has several");
}

// Warns if a run is too short for its moving average, so that part of the initial weights remains in it; else
// "".
std::string average_note(const TrainConfig& train, int64_t steps) {
  constexpr double kMuch = 0.05;
  if (train.ema_decay <= 0 || train.ema_warmup) return "";
  const double first = std::pow(train.ema_decay, static_cast<double>(steps));
  if (first < kMuch) return "";
  return text(
      "train.ema_decay = ", shortest(train.ema_decay), ": after ", steps, " steps ", fixed(100 * first, 0),
      " % of the averaged weights are still the first ones; take a smaller decay or train.ema_warmup = true");
}

// Warns if a pipeline has fewer pieces than processes, so that most of them wait; else "".
std::string pipeline_note(const TrainConfig& train, const parallel::World* world) {
  const int64_t stages = world ? world->axis(parallel::AxisName::pipeline).size() : 1;
  if (train.accumulate >= stages) return "";
  return text("train.accumulate = ", train.accumulate, ": the ", stages,
              " processes of the pipeline wait for each other; ", 4 * stages,
              " pieces a step keep them busy");
}

Setup make_setup(const Recipe& recipe, bool continued, int64_t processes, parallel::World* world) {
  if (const std::string missing = missing_weights(recipe); !continued && !missing.empty()) fail(missing);
  Setup setup;
  setup.recipe = recipe;
  setup.compute = choose_compute(recipe.train);
  setup.data = open_data(recipe);
  const WeightsInfo info = describe_run(setup.recipe, setup.data);
  setup.plan = plan_run(setup.recipe, setup.data, info, setup.compute, processes);
  std::optional<nn::OwnRows> rows = own_rows(setup.recipe, world);
  const int64_t holders = rows ? world->holders().size() : 1;
  if (exceeds_memory(setup.recipe, setup.plan, holders))
    fail_usage("the model has ", human_count(static_cast<double>(setup.plan.parameters)),
               " parameters, which take ", human_bytes(weight_bytes(setup.recipe, setup.plan)),
               holders > 1 ? text(" in ", holders, " processes") : "", "; this machine has ",
               human_bytes(main_memory_bytes()), " of memory");
  build_model(setup, info, continued, rows);
  if (recipe.quantization.enabled() && !continued)
    set_activation_step_sizes(setup.recipe, setup.compute, *setup.model.task);
  Compute here = setup.compute;
  if (rows) here.device = torch::kCPU;  // until the weights are divided
  check_sizes(setup.recipe, here, *setup.model.task);
  divide(setup, rows, world);
  if (const auto* limit = dynamic_cast<const tasks::TextLimit*>(setup.model.task.get()))
    if (const std::string line =
            tasks::long_texts_note(*limit, *setup.model.task->streams().at(0).source, kTextsLookedAt);
        !line.empty())
      setup.model.notes.push_back(line);
  // A continued run printed these when it began.
  if (!continued)
    for (const std::string& line : data::set_warnings(setup.data.train.get(), setup.data.validation.get()))
      setup.model.notes.push_back("warning: " + line);
  for (const std::string& line :
       {pipeline_note(recipe.train, world), average_note(recipe.train, setup.plan.steps),
        smoothing_note(setup.recipe.task, setup.data.train.get()),
        warmup_note(setup.recipe.schedule, schedule_span(setup.recipe, setup.plan))})
    if (!line.empty()) setup.model.notes.push_back(line);
  return setup;
}

}  // namespace tessera::train
