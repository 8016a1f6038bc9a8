// `tessera train RECIPE...`: trains, shows the progress, and writes the report at the end.
#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/run/together.h"
#include "core/config.h"
#include "core/control_characters.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "core/value.h"
#include "io/files/json.h"
#include "open/run_data.h"
#include "parallel/world.h"
#include "recipe/recipe_files.h"
#include "report/markup.h"
#include "tasks/base/registry.h"
#include "train/memory.h"
#include "train/process_share.h"
#include "train/trainer.h"

namespace tessera::cli {
namespace {

struct TrainOptions {
  std::string data, val_data, output, model, pretrained, key, device, precision, on_bad_image, profile;
  std::vector<std::string> recipes, settings;
  std::optional<int64_t> threads, max_bad, epochs, batch_size, processes;
  std::optional<double> lr, crop;
  std::optional<std::string> resume;
  bool dry_run = false, json = false, other_threads = false, keys = false;

  template <class V>
  void visit(V& v) {
    v("recipe", recipes, {.argument = "RECIPE"},
      "TOML files (see recipes/); later ones override earlier ones");
    v("set", settings, "override keys of the recipe: --set train.epochs=3 model.dim=96");
    v("data", data, {.sets = "data.path"}, "the images (data.path)");
    v("val_data", val_data, {.sets = "data.val_path"},
      "the validation set, if it has a path of its own (data.val_path)");
    v("output", output, {.names = "-o", .sets = "train.output", .writes = Writes::together},
      "run directory (train.output)");
    v("model", model, {.sets = "model.name"}, "a name of `tessera models` (model.name)");
    v("pretrained", pretrained, {.names = "-w,--weights", .sets = "model.pretrained"},
      "initial weights of any format (model.pretrained)");
    v("key", key, {.sets = "model.pretrained_key"},
      "PyTorch archives: name of the dictionary, such as model_ema (model.pretrained_key)");
    v("epochs", epochs, {.range = between(1, 1000000), .sets = "train.epochs"},
      "passes over the training images (train.epochs)");
    v("lr", lr, {.range = between(0, 1e6), .sets = "optimiser.lr"}, "learning rate (optimiser.lr)");
    v("batch_size", batch_size, {.range = between(1, 1 << 20), .sets = "train.batch_size"},
      "images in a step (train.batch_size)");
    v("crop", crop, {.range = between(0.01, 1), .sets = "preprocess.crop"},
      "test-crop ratio (preprocess.crop)");
    v("resume", resume, {.optional_value = true},
      "continue the run in the output directory: auto (or start a new one), required; or a run directory");
    v("allow_other_threads", other_threads, "continue with another number of threads (not bit for bit)");
    v("device", device, {.sets = "train.device"}, "cpu, cuda or auto (train.device)");
    v("precision", precision,
      {.choices = tessera::names_of<train::RunPrecision>(), .sets = "train.precision"},
      "arithmetic of the run (train.precision)");
    v("threads", threads, {.range = between(0, 1024), .sets = "train.threads"},
      "compute threads, 0 = OMP_NUM_THREADS or all cores (train.threads)");
    v("on_bad_image", on_bad_image, {.sets = "train.on_bad_image"}, "replace or fail (train.on_bad_image)");
    v("max_bad", max_bad, {.range = between(0, 1000000000), .sets = "train.max_bad"},
      "broken images before the run fails (train.max_bad)");
    v("profile", profile, {.writes = Writes::together},
      "file for a Chrome trace of ten steps (chrome://tracing)");
    v("dry_run", dry_run, "print the resolved recipe and the cost of the run");
    v("processes", processes, {.range = between(1, 1 << 20), .only_for = "--dry-run"},
      "with --dry-run: the share of one of so many processes");
    v("help_recipe", keys, "every recipe key with its default and meaning");
    v("json", json, "the result as one JSON object");
  }
};

std::string percent(double share) { return fixed(100 * share, 1) + " %"; }

// Returns the size of the weights that checkpoints share; "" without frozen weights.
std::string shared_text(const train::RunPlan& plan) {
  return plan.shared_bytes > 0 ? text(" next to ", human_bytes(plan.shared_bytes), " that all share") : "";
}

// The display of a run: a bar on a terminal, lines in a file.
class Watcher : public train::Observer {
 public:
  void started(const train::RunPlan& plan, int64_t first_step) override {
    say(text("model    ", plan.model, ": ", human_count(static_cast<double>(plan.parameters)), " parameters",
             plan.trainable_parameters < plan.parameters
                 ? text(" (", human_count(static_cast<double>(plan.trainable_parameters)), " trained)")
                 : "",
             ", ", human_count(static_cast<double>(plan.macs)), " multiply-adds an image, on ", plan.device,
             plan.processes > 1 ? text(" in ", plan.processes, " processes") : "", " with ", plan.threads,
             " threads"));
    say(text("data     ", plan.train_data));
    say(text("validate ", plan.validation_data));
    say(text("plan     ", plan.steps, " steps of ", plan.batch_size, " images (", plan.steps_per_epoch,
             " an epoch); disk: a checkpoint takes ", human_bytes(plan.checkpoint_bytes), shared_text(plan),
             ", the run at most ", human_bytes(plan.disk_bytes), " of ", human_bytes(plan.free_bytes),
             " free"));
    ProgressLine::Options bar;
    bar.label = "train";
    bar.total = plan.steps;
    bar.start = first_step;
    bar_ = std::make_unique<ProgressLine>(std::cerr, bar);
    step_ = first_step;
  }

  void progressed(const train::StepProgress& at) override {
    step_ = at.step;
    if (!bar_) return;
    fields_ = {{"loss", fixed(at.loss, 3)}};
    for (const tasks::Metric& metric : at.metrics) fields_.emplace_back(metric.info.name, value_text(metric));
    fields_.emplace_back("images/s", fixed(at.images_per_second, 0));
    fields_.emplace_back("wait", percent(at.wait_share));
    bar_->update(at.step, fields_);
  }

  void evaluating(int64_t done, int64_t samples) override {
    if (bar_) bar_->update(step_, {{"evaluating", text(done, " of ", samples)}});
  }

  void evaluated(const train::EvaluationReport& report) override {
    if (bar_) bar_->update(step_, fields_);
    say(text("epoch ", report.epoch, "  step ", report.step, "  validation:", metrics_text(report.metrics),
             report.best ? "  (best so far)" : ""));
  }

  void note(const std::string& line) override { say(line); }

  void done() {
    if (bar_) bar_->finish();
    bar_.reset();
  }

 private:
  void say(const std::string& line) {
    if (bar_)
      bar_->print(line);
    else
      std::cerr << one_line(line) << "\n";
  }
  std::unique_ptr<ProgressLine> bar_;
  int64_t step_ = 0;
  ProgressLine::Fields fields_;  // of that step
};

train::Resume parse_resume(const std::optional<std::string>& value) {
  if (!value) return train::Resume::never;
  if (value->empty() || *value == "auto") return train::Resume::automatic;
  if (*value == "required") return train::Resume::required;
  fail_usage("--resume is '", *value,
             "', must be auto (continue if there is something), required, or a run directory");
}

std::string recipe_in(const std::string& run) { return run + "/recipe.toml"; }

// `--resume RUN` continues the run in this directory. Without RECIPE, the run's own recipe is read.
TrainOptions with_run(TrainOptions options) {
  if (!options.resume) return options;
  if (file_exists(recipe_in(*options.resume))) {
    if (!options.output.empty() && options.output != *options.resume)
      fail_usage("--resume ", *options.resume, " and --output ", options.output, " are two runs: give one");
    options.output = *options.resume;
    options.resume = "required";
  }
  parse_resume(options.resume);  // refuses other words
  if (!options.recipes.empty()) return options;
  if (options.output.empty())
    fail_usage("tessera train: --resume without RECIPE needs the run: --resume RUN, or --output RUN");
  if (!file_exists(recipe_in(options.output)))
    fail_usage("tessera train: nothing to resume in '", options.output,
               "', which has no recipe.toml: give RECIPE");
  options.recipes = {recipe_in(options.output)};
  return options;
}

train::Recipe recipe_of(const TrainOptions& options, const Given& given) {
  std::vector<std::string> settings = options.settings, origins(settings.size());
  given.add_recipe_settings(settings, origins);
  train::check_one_length(settings);
  if (!options.output.empty()) settings.push_back("train.output=" + toml_text(Value(options.output)));
  train::Recipe recipe = train::load_recipe(options.recipes, settings, origins);
  if (options.recipes == std::vector{recipe_in(options.output)})
    if (const std::string line = train::find_run_data(recipe.data, options.output); !line.empty())
      std::cerr << one_line(line) << "\n";
  return recipe;
}

std::string compute_line(const train::Recipe& recipe, const train::RunPlan& plan) {
  const bool total = plan.total_macs > 0;
  const double of_an_image = plan.training_macs * static_cast<double>(recipe.train.epochs);
  return text(human_count(total ? plan.total_macs : of_an_image), " multiply-adds",
              total ? "" : " for each image of the set",
              ": three times the forward pass, dropped paths left out");
}

// Returns the classes of the training set; none if it has no classes, or is missing.
std::vector<std::string> classes_of(const train::PlannedRun& planned) {
  if (!planned.missing_data.empty()) return {};
  const tasks::TaskKind& kind = tasks::find_task(tasks::task_name(planned.recipe.task));
  const auto source = data::open_source(tasks::data_for(kind, planned.recipe.data), data::Split::train);
  return source->class_labels() ? source->class_labels()->class_names() : std::vector<std::string>();
}

// Returns "3 (cat, dog, owl)", or only the first names.
std::string classes_line(const std::vector<std::string>& names) {
  constexpr size_t kShown = 12;
  const std::span shown = std::span(names).first(std::min(names.size(), kShown));
  return text(names.size(), " (", printable(join(shown, ", "), 400), names.size() > kShown ? ", …)" : ")");
}

std::string steps_line(const train::Recipe& recipe, const train::RunPlan& plan, bool counted) {
  if (counted) return text(plan.steps, " (", plan.steps_per_epoch, " an epoch)");
  if (plan.steps > 0) return text(plan.steps);
  return text(recipe.train.epochs, " epochs in batches of ", plan.batch_size,
              "; the number of steps depends on the data");
}

nlohmann::ordered_json json_of(const train::ProcessShare& share) {
  return {{"processes", share.processes},
          {"replicate", share.replicate},
          {"shard", share.shard},
          {"tensor", share.tensor},
          {"pipeline", share.pipeline},
          {"zero", share.zero},
          {"weight_bytes", share.weights},
          {"gradient_bytes", share.gradients},
          {"optimiser_bytes", share.optimiser},
          {"offloaded_bytes", share.offloaded},
          {"average_bytes", share.average},
          {"gathered_bytes", share.whole},
          {"all_reduce_bytes", share.reduced},
          {"reduce_scatter_bytes", share.scattered},
          {"all_gather_bytes", share.gathered}};
}

void print_plan_json(const train::PlannedRun& planned, const std::vector<std::string>& classes_there) {
  const auto& [recipe, plan, missing_data, missing_weights, share] = planned;
  const auto table = nlohmann::ordered_json::parse(json_text(train::recipe_table(recipe)));
  const nlohmann::ordered_json total_macs =
      plan.total_macs > 0 ? nlohmann::ordered_json(plan.total_macs) : nullptr;
  std::cout << json_text(nlohmann::ordered_json{{"recipe", table},
                                                {"parameters", plan.parameters},
                                                {"trained_parameters", plan.trainable_parameters},
                                                {"steps", plan.steps},
                                                {"steps_per_epoch", plan.steps_per_epoch},
                                                {"images", plan.images},
                                                {"samples", plan.samples},
                                                {"validation", plan.validation_samples},
                                                {"training_macs", plan.training_macs},
                                                {"total_macs", total_macs},
                                                {"memory_bytes", plan.memory_bytes},
                                                {"disk_bytes", plan.disk_bytes},
                                                {"checkpoint_bytes", plan.checkpoint_bytes},
                                                {"shared_bytes", plan.shared_bytes},
                                                {"free_bytes", plan.free_bytes},
                                                {"process", share ? json_of(*share) : nullptr},
                                                {"classes", classes_there},
                                                {"missing_data", missing_data},
                                                {"missing_weights", missing_weights}})
            << "\n";
}

// The memory and traffic of one of several processes.
void print_share(const train::ProcessShare& share) {
  std::cout << "# processes   " << share.processes << " as replicate " << share.replicate << " x shard "
            << share.shard << (share.tensor > 1 ? text(" x tensor ", share.tensor) : "")
            << (share.pipeline > 1 ? text(" x pipeline ", share.pipeline) : "")
            << ", parallel.zero = " << share.zero << ": the fullest holds " << human_bytes(share.held())
            << " (weights " << human_bytes(share.weights) << ", gradients " << human_bytes(share.gradients)
            << ", optimiser " << human_bytes(share.optimiser) << ", average " << human_bytes(share.average)
            << ", gathered weights " << human_bytes(share.whole) << ") and activations"
            << (share.offloaded > 0 ? text("; in main memory ", human_bytes(share.offloaded)) : "") << "\n"
            << "# exchanges   in a step, in a process: all-reduce " << human_bytes(share.reduced)
            << ", reduce-scatter " << human_bytes(share.scattered) << ", all-gather "
            << human_bytes(share.gathered)
            << (share.tensor > 1     ? "; and the activations of divided layers"
                : share.pipeline > 1 ? "; and the activations between its blocks and those of its neighbours"
                                     : "")
            << "\n";
}

void print_plan(const train::PlannedRun& planned, bool json) {
  const auto& [recipe, plan, missing_data, missing_weights, share] = planned;
  const std::vector<std::string> classes_there = classes_of(planned);
  if (json) return print_plan_json(planned, classes_there);
  const bool counted = missing_data.empty();
  std::cout << write_toml(train::recipe_table(recipe)) << "\n";
  if (!counted) std::cout << "# data        " << one_line(missing_data) << " (--data DIR)\n";
  if (!missing_weights.empty()) std::cout << "# weights     " << one_line(missing_weights) << "\n";
  const Value* classes = recipe.model.settings.find("classes");
  const bool assumed = !counted && classes && classes->is_int() && classes->as_int() > 0;
  if (!classes_there.empty()) std::cout << "# classes     " << classes_line(classes_there) << "\n";
  std::cout << "# parameters  " << plan.parameters << " (" << plan.trainable_parameters << " trained)"
            << (assumed ? text(", with ", classes->as_int(), " classes") : "") << "\n"
            << "# steps       " << steps_line(recipe, plan, counted) << "\n";
  if (const int64_t patience = recipe.train.stop_early; patience > 0)
    std::cout << "# stop early  after " << tessera::counted(patience, "evaluation")
              << " in a row without a new best metric (train.stop_early): then fewer steps\n";
  std::cout << "# images      "
            << (plan.images > 0 ? text(plan.images) : text(recipe.train.epochs, " times the set"));
  if (counted)
    std::cout << " (" << plan.samples << " in the set, " << plan.validation_samples << " for validation)";
  std::cout
      << "\n# compute     " << compute_line(recipe, plan) << "\n# memory      "
      << (train::exceeds_memory(recipe, plan) ? "more than " : "about ") << human_bytes(plan.memory_bytes)
      << (train::exceeds_memory(recipe, plan)
              ? " in one process: weights, gradients and optimiser, more than this machine can try\n"
              : " in one process at most: program, weights, gradients, optimiser, activations and loader\n")
      << "# disk        " << human_bytes(plan.disk_bytes) << " at most, a checkpoint "
      << human_bytes(plan.checkpoint_bytes) << shared_text(plan) << ", free " << human_bytes(plan.free_bytes)
      << "\n";
  if (share) print_share(*share);
}

// Returns the command that uses weights of a task.
std::string next_command(const std::string& task, const std::string& weights) {
  static const std::map<std::string, std::pair<const char*, const char*>> words = {
      {"generate", {"", " -o grid.png"}},
      {"segment", {" IMAGE", " -o mask.png"}},
      {"detect", {" IMAGE", " --overlay found.png"}},
      {"complete", {" IMAGE", " -o completed.png"}},
      {"zeroshot", {" IMAGE", " --classes NAMES.txt"}},
      {"caption", {" IMAGE", ""}},
      {"chat", {"", ""}}};
  const char* command = tasks::find_task(task).command;
  const auto found = command ? words.find(command) : words.end();
  if (found == words.end()) return "tessera eval --weights " + weights;
  return text("tessera ", command, found->second.first, " --weights ", weights, found->second.second);
}

void print_summary(const train::RunSummary& summary, const std::string& page, const train::Recipe& recipe,
                   bool json) {
  if (json) {
    nlohmann::ordered_json line = {
        {"output", summary.output}, {"model", summary.model_file}, {"report", page}};
    for (const tasks::Metric& metric : summary.final.metrics) line[metric.info.name] = metric.value;
    line["best_step"] = summary.best_step;
    line["steps"] = summary.steps;
    line["stopped_early"] = !summary.stopped_early.empty();
    line["images_per_second"] = summary.images_per_second;
    line["wait_share"] = summary.wait_share;
    line["seconds"] = summary.seconds;
    line["bad_images"] = summary.bad_images;
    for (const parallel::Traffic& kind : summary.exchanges)
      line["exchanges"][kind.kind] = {
          {"calls", kind.calls}, {"bytes", kind.bytes}, {"seconds", kind.seconds}};
    std::cout << json_text(line) << "\n";
    return;
  }
  std::cout << "validation" << metrics_text(summary.final.metrics) << "\n"
            << "trained  " << human_duration(summary.seconds) << ", " << fixed(summary.images_per_second, 0)
            << " images/s, " << percent(summary.wait_share) << " of the time waiting for data\n";
  for (const parallel::Traffic& kind : summary.exchanges)
    std::cout << "exchange " << kind.kind << ": " << kind.calls << " times, "
              << human_bytes(static_cast<uint64_t>(kind.bytes)) << ", " << fixed(kind.seconds, 2) << " s\n";
  if (!summary.stopped_early.empty()) std::cout << "ended    " << summary.stopped_early << "\n";
  if (summary.bad_images) std::cout << "images that could not be read: " << summary.bad_images << "\n";
  if (!summary.best_file.empty())
    std::cout << "best     epoch "
              << report::compact(static_cast<double>(summary.best_step) /
                                 static_cast<double>(summary.plan.steps_per_epoch))
              << ", " << summary.main_metric.name << " "
              << value_text({summary.main_metric, summary.best_metric}) << ": " << one_line(summary.best_file)
              << "\n";
  std::cout << "weights  " << one_line(summary.model_file) << "\n"
            << "report   " << one_line(page) << "\n"
            << "try      "
            << next_command(tasks::task_name(recipe.task), shell_quoted(one_line(summary.model_file)))
            << "\n";
}

void train_here(const TrainOptions& options, const Given& given, parallel::World& world) {
  const train::Recipe recipe = recipe_of(options, given);
  const train::Resume resume = parse_resume(options.resume);
  if (options.dry_run) {
    if (world.leader())
      print_plan(train::plan_training(recipe, options.processes.value_or(world.size())), options.json);
    return;
  }
  given.refuse_others("", "give it as well");
  Watcher watcher;
  train::TrainOptions how = {.resume = resume,
                             .allow_other_threads = options.other_threads,
                             .observers = {},
                             .world = &world,
                             .profile = options.profile};
  if (world.leader()) how.observers = {&watcher};
  const train::RunSummary summary = train::run_training(recipe, how);
  watcher.done();
  if (world.leader()) print_summary(summary, write_training_report(summary), recipe, options.json);
}

void run(const TrainOptions& asked, const Given& given) {
  const TrainOptions options = with_run(asked);
  if (options.keys) {
    std::cout << train::describe_recipe_keys();
    return;
  }
  if (options.recipes.empty()) {
    for (const std::string& setting : options.settings)
      if (setting.find('=') == std::string::npos)
        fail_usage("tessera train: '", setting, "' is among the values of --set: put RECIPE first");
    fail_usage("tessera train: RECIPE is missing, for example recipes/demo.toml");
  }
  run_together(parallel::World::join(), [&](parallel::World& world) { train_here(options, given, world); });
}

}  // namespace

void add_train(Arguments& command, Action& action) { action = with_options<TrainOptions>(command, run); }

}  // namespace tessera::cli
