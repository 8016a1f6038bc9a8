// Estimates the resources of a run before it begins.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/memory.h"
#include "core/text.h"
#include "core/threads.h"
#include "io/files/file.h"
#include "models/base/tokeniser.h"
#include "open/device.h"
#include "train/memory.h"
#include "train/process_share.h"
#include "train/setup.h"

namespace tessera::train {
namespace {

// Fragmentation: blocks that are freed and requested again in each step leave gaps. Measured runs took 1.2 to
// 2.2 times the size of their activations.
constexpr double kFragmentation = 1.8;

// Texts have no samples yet if their tokeniser is missing.
bool can_be_counted(const RunData& data, const tasks::Task& task) {
  return data.train && task.streams().at(0).source;
}

// An epoch is a pass over the task's first stream. Its samples may differ from those of the data:
// conversations about images, windows of texts.
void plan_steps(RunPlan& plan, const Recipe& recipe, const RunData& data, const tasks::Task& task) {
  const TrainConfig& train = recipe.train;
  plan.batch_size = train.batch_size;
  if (can_be_counted(data, task)) {
    const auto samples = task.streams().at(0).source, validation = task.validation().source;
    plan.samples = samples->size();
    plan.validation_samples = validation->size();
    plan.train_data = samples->describe();
    plan.validation_data = validation->describe();
    if (plan.samples < train.batch_size)
      fail_usage("train.batch_size = ", train.batch_size,
                 " is more than the training set holds: ", plan.train_data, "; --batch-size ",
                 std::max<int64_t>(1, plan.samples / 4), " gives several steps an epoch");
  }
  plan.steps_per_epoch = plan.samples / train.batch_size;
  constexpr int64_t kMostImages = int64_t{1} << 50;  // limit per run: later multiplications must not overflow
  const int64_t passes = train.steps > 0 ? train.steps : train.epochs;
  if (passes > kMostImages / std::max(train.batch_size, plan.samples))
    fail_usage(train.steps > 0 ? "train.steps = " : "train.epochs = ", passes, " makes more than ",
               kMostImages, " images");
  plan.steps = train.steps > 0 ? train.steps : train.epochs * plan.steps_per_epoch;
  plan.images = plan.steps * train.batch_size;
}

void plan_model(RunPlan& plan, const tasks::Task& task, const Recipe& recipe) {
  plan.model = task.backbones().at(0).spec.name;
  plan.macs = task.macs(recipe.preprocess.size);
  NamedTensors trained;
  for (const auto& [name, parameter] : tasks::named_parameters(task.parts())) {
    plan.parameters += parameter.numel();
    if (parameter.scalar_type() == torch::kBFloat16) plan.rounded_parameters += parameter.numel();
    if (!parameter.requires_grad()) continue;
    plan.trainable_parameters += parameter.numel();
    trained.emplace_back(name, parameter);
  }
  // A checkpoint holds the weights, their average, and the optimiser's state of trained parameters. Peak disk
  // use: the kept checkpoints, the best, and the one being written; two copies of the shared part; and the
  // best and final weights.
  constexpr uint64_t kHeaders = 1 << 18;
  const uint64_t size = recipe.train.precision == RunPrecision::fp64 ? 8 : 4;
  const uint64_t all = weight_bytes(recipe, plan);
  const int64_t frozen = plan.parameters - plan.trainable_parameters;
  const uint64_t copies = recipe.train.ema_decay > 0 ? 2 : 1;
  if (keeps_frozen_apart(frozen, plan.parameters))
    plan.shared_bytes = all - size * static_cast<uint64_t>(plan.trainable_parameters);
  plan.state_bytes = all * copies + size * optimiser_values(recipe.optimiser, trained) + kHeaders;
  plan.checkpoint_bytes = plan.state_bytes - copies * plan.shared_bytes;
  plan.disk_bytes = (static_cast<uint64_t>(recipe.train.keep_last) + 2) * plan.checkpoint_bytes +
                    2 * plan.shared_bytes + 2 * (all + kHeaders);
  plan.free_bytes = free_disk_bytes(recipe.train.output);
}

// Finds problems of the first batch or evaluation before anything is written.
void check_loading(const tasks::Task& task, const Recipe& recipe, const RunPlan& plan) {
  const auto check_stream = [&](const tasks::StreamSpec& stream, bool training) {
    stream.transform(recipe.preprocess.size);
    const BatchShare share{0, training ? plan.batch_processes : plan.processes};
    data::check_loader(*stream.source, loader_config(recipe.train, stream, training, share));
  };
  for (const tasks::StreamSpec& stream : task.streams()) check_stream(stream, true);
  check_stream(task.validation(), false);
  const int64_t epochs = std::max<int64_t>(1, plan.steps / plan.steps_per_epoch);
  if (std::ssize(recipe.train.sizes) > epochs)
    fail_usage("train.sizes has ", recipe.train.sizes.size(), " sizes, more than the run has epochs, ",
               epochs);
  for (const tasks::BackbonePart& part : task.backbones())  // as at the first step
    part.model->before_step({0, plan.steps, plan.steps_per_epoch});
}

// Bytes of a stream's batches that are queued, in use, or in transfer to the model.
uint64_t loader_bytes(const tasks::StreamSpec& stream, const data::LoaderConfig& config, int64_t side) {
  uint64_t sample = 0;
  const auto transform = stream.transform(side);
  for (const data::Field& field : transform->fields()) sample += field.bytes();
  return static_cast<uint64_t>((std::max(config.queue, config.threads) + 1) * config.batch_size) * sample;
}

// For a model that reads tokens, uses zero tokens: the tokeniser's weights may not exist yet.
void read_no_tokens(const tasks::Task& task) {
  for (const tasks::BackbonePart& part : task.backbones())
    if (auto* reader = dynamic_cast<models::ReadsTokens*>(part.model.get()))
      reader->set_tokens(
          [](const torch::Tensor& images, int64_t rows, int64_t columns) {
            return torch::zeros({images.size(0), rows * columns},
                                torch::TensorOptions(torch::kInt64).device(images.device()));
          },
          "");
}

// Peak memory of the run in one process: the usage after a pass over two samples (program, LibTorch, weights,
// gradients, the kernels' workspace), plus the rest of a run.
uint64_t memory_of(const Recipe& recipe, const RunPlan& plan, const Compute& compute, tasks::Task& task) {
  const TrainConfig& train = recipe.train;
  const std::vector<int64_t> sizes = input_sizes(recipe);
  const int64_t side = *std::max_element(sizes.begin(), sizes.end()), seen = recipe.preprocess.size;
  const ActivationBytes evaluation = measure_evaluation(task, seen, compute.precision);
  const ActivationBytes training = measure_training(task, side, compute.precision);
  const uint64_t now = resident_bytes();
  const data::LoaderConfig validation = loader_config(train, task.validation(), false);
  // Tensors in evaluation have other sizes than in training and rarely fit into freed blocks.
  const int64_t samples = (train.batch_size + train.accumulate - 1) / train.accumulate;
  const auto activations = static_cast<uint64_t>(
      kFragmentation * static_cast<double>(training.per_sample * std::max<int64_t>(0, samples - 2)) +
      static_cast<double>(evaluation.per_sample * validation.batch_size));
  // The weights are allocated already; the average and the optimiser's state are not.
  uint64_t bytes = now + plan.state_bytes - weight_bytes(recipe, plan) + activations;
  for (const tasks::StreamSpec& stream : task.streams())
    bytes += loader_bytes(stream, loader_config(train, stream, true), side);
  return bytes + loader_bytes(task.validation(), validation, seen);
}

}  // namespace

std::vector<int64_t> input_sizes(const Recipe& recipe) {
  return recipe.train.sizes.empty() ? std::vector{recipe.preprocess.size} : recipe.train.sizes;
}

int64_t input_size(const Recipe& recipe, const RunPlan& plan, int64_t epoch) {
  const std::vector<int64_t> sizes = input_sizes(recipe);
  const int64_t epochs = std::max<int64_t>(1, plan.steps / std::max<int64_t>(1, plan.steps_per_epoch));
  const auto count = static_cast<int64_t>(sizes.size());
  return sizes[static_cast<size_t>(std::min(count - 1, epoch * count / epochs))];
}

ScheduleSpan schedule_span(const Recipe& recipe, const RunPlan& plan) {
  return {.lr = recipe.optimiser.lr_for(recipe.train.batch_size),
          .steps = plan.steps,
          .steps_per_epoch = plan.steps_per_epoch};
}

std::unique_ptr<tasks::Task> meta_task_of(const Recipe& recipe, const RunData& data, const WeightsInfo& info,
                                          const Compute& compute) {
  tasks::TaskSetup setup = task_setup(recipe, data, info, compute);
  setup.meta = true;
  auto task = tasks::find_task(tasks::task_name(recipe.task)).make(setup);
  freeze(recipe, task->parts());
  return task;
}

void check_layers_divide(const Recipe& recipe, const std::vector<tasks::Part>& parts, int64_t processes) {
  if (processes == 1) return;
  if (recipe.train.noise_scale)
    fail_usage("train.noise_scale reads the gradients of whole layers, which parallel.tensor = ", processes,
               " divides: leave one of them out");
  int64_t layers = 0;
  for (const tasks::Part& part : parts)
    for (const auto& module : part.module->named_modules()) {
      const auto* const layer = dynamic_cast<const nn::DividedLayer*>(module.value().get());
      if (!layer) continue;
      ++layers;
      if (layer->most_shares() < processes)
        fail_usage("parallel.tensor = ", processes, ": layer '", part.prefix, module.key(), "' of model '",
                   recipe.model.name, "' divides into ", layer->most_shares(),
                   layer->most_shares() == 1 ? " share" : " shares", " at most");
    }
  if (layers == 0)
    fail_usage("parallel.tensor = ", processes, ": model '", recipe.model.name,
               "' has no layer that processes divide (attention, MLP, mLSTM): leave it at 1");
}

void check_blocks_divide(const Recipe& recipe, const tasks::Task& task, int64_t processes) {
  if (processes == 1) return;
  const std::string setting = text("parallel.pipeline = ", processes);
  if (recipe.train.noise_scale)
    fail_usage("train.noise_scale reads the gradients of all blocks, which ", setting,
               " divides: leave one of them out");
  if (const std::string why = task.why_weights_stay_whole(); !why.empty())
    fail_usage(setting, " divides the weights of no task '", tasks::task_name(recipe.task), "': ", why);
  const int64_t blocks = std::ssize(units_of(task.parts()));
  if (blocks < processes)
    fail_usage(setting, ": model '", recipe.model.name, "' has ", blocks, blocks == 1 ? " block" : " blocks",
               " for as many processes at most");
  for (const auto& [name, tensor] : tasks::named_state(task.parts()))
    if (name.ends_with(".running_mean"))
      fail_usage(setting, ": model '", recipe.model.name, "' has running statistics ('", name,
                 "'), which one process alone would count: leave it at 1");
}

RunPlan plan_run(const Recipe& recipe, const RunData& data, const WeightsInfo& info, const Compute& compute,
                 int64_t processes) {
  if (recipe.parallel.offload != parallel::Offloaded::none && compute.device.is_cpu())
    fail_usage(
        "parallel.offload = 'optimiser' takes the optimiser's state off a GPU; the device of this run is the "
        "CPU, so ",
        "leave it out");
  RunPlan plan;
  plan.processes = processes;
  const parallel::Mesh mesh = processes == 1 ? parallel::Mesh() : parallel::Mesh(recipe.parallel, processes);
  const int64_t divided = mesh.degree(parallel::AxisName::tensor),
                stages = mesh.degree(parallel::AxisName::pipeline);
  plan.batch_processes = processes / divided / stages;
  plan.threads = num_threads();
  plan.device = compute.device.str();
  const auto task = meta_task_of(recipe, data, info, compute);
  check_layers_divide(recipe, task->parts(), divided);
  check_blocks_divide(recipe, *task, stages);
  plan_steps(plan, recipe, data, *task);
  plan_model(plan, *task, recipe);
  plan_compute(recipe, *task, plan);
  if (task->whole_batch() && recipe.train.accumulate > 1)
    fail_usage("train.accumulate = ", recipe.train.accumulate, ": task ", tasks::task_name(recipe.task),
               " compares all samples of a step and cannot compute them in pieces");
  // Processes may synchronise after each piece.
  const int64_t smallest = recipe.train.batch_size / plan.batch_processes;
  if (plan.batch_processes > 1 && smallest > 0 && recipe.train.accumulate > smallest)
    fail_usage("train.accumulate = ", recipe.train.accumulate, " must be at most ", smallest,
               ", the least samples of a batch of ", recipe.train.batch_size, " that one of ",
               plan.batch_processes, " processes has");
  if (can_be_counted(data, *task)) {
    check_loading(*task, recipe, plan);
    make_schedule(recipe.schedule, schedule_span(recipe, plan));
  }
  return plan;
}

PlannedRun plan_training(const Recipe& recipe, int64_t processes) {
  PlannedRun planned;
  planned.recipe = recipe;
  Compute compute = choose_compute(recipe.train);
  const RunData data = open_data(recipe, /*may_be_missing=*/true);
  planned.missing_data = data.missing;
  planned.missing_weights = missing_weights(recipe);
  const WeightsInfo info = describe_run(planned.recipe, data);
  planned.plan = plan_run(planned.recipe, data, info, compute, 1);
  if (processes > 1)
    planned.share = std::make_shared<ProcessShare>(
        share_of_process(planned.recipe, *meta_task_of(planned.recipe, data, info, compute), processes));
  if (data.train && planned.plan.samples == 0)
    planned.missing_data = "task.tokenizer is missing, so the number of samples is unknown";
  if (exceeds_memory(planned.recipe, planned.plan)) {
    // If a trial run is impossible, count weights, their average, the optimiser's state, and the gradients.
    const uint64_t size = recipe.train.precision == RunPrecision::fp64 ? 8 : 4;
    planned.plan.memory_bytes =
        planned.plan.state_bytes + size * static_cast<uint64_t>(planned.plan.trainable_parameters);
    return planned;
  }
  compute.device = torch::kCPU;
  tasks::TaskSetup setup = task_setup(planned.recipe, data, info, compute);
  setup.init = models::Init::skip;
  const auto task = tasks::find_task(tasks::task_name(recipe.task)).make(setup);
  read_no_tokens(*task);
  tasks::move(task->parts(), compute.device, parameter_type(compute.precision));
  {
    const torch::NoGradGuard no_grad;
    for (const auto& [name, parameter] : tasks::named_parameters(task->parts()))
      parameter.zero_();  // touch their memory
  }
  planned.plan.memory_bytes = memory_of(planned.recipe, planned.plan, compute, *task);
  return planned;
}

}  // namespace tessera::train
