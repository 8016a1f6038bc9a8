// `tessera plan`: the layout of a training on a cluster, with its time, memory and traffic.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>

#include "cli/base/command.h"
#include "cli/scale/reports.h"
#include "core/config.h"
#include "core/error.h"
#include "core/text.h"
#include "core/threads.h"
#include "core/value.h"
#include "io/files/file.h"
#include "recipe/recipe_files.h"
#include "train/model_shape.h"

namespace tessera::cli {
namespace {

struct PlanOptions {
  std::vector<std::string> recipes, settings;
  std::string cluster = "cpu", chips, write, fit;
  std::optional<int64_t> batch_size;
  int64_t keep = 8;
  bool measure = false, runnable = false;
  AnalysisOutput output;

  template <class V>
  void visit(V& v) {
    v("recipes", recipes, {.argument = "RECIPES"}, "TOML files; later ones override earlier ones");
    v("cluster", cluster,
      "CHIPxCOUNT: h100x64, h100x64/4 for machines of four chips, or cluster.toml of tessera doctor");
    v("chips", chips, "TOML file with more chips");
    v("set", settings, "override keys of the recipe: --set model.depth=6");
    v("batch_size", batch_size, {.range = between(1, 1 << 20), .sets = "train.batch_size"},
      "samples a step (train.batch_size)");
    v("keep", keep, between(1, 1000), "layouts in the table");
    v("measure", measure, "measure a layer on this machine and keep the result");
    v("runnable", runnable, "only layouts that this program can run");
    v("write", write, {.writes = Writes::file}, "write a recipe with the chosen layout to this .toml file");
    v("fit", fit, "fit the constants on published figures in this CSV file instead");
    v("output", output, "");
  }
};

// Measured blocks are kept by chip, version and model.
std::string block_file(const std::string& chip, const train::Recipe& recipe) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string root = cache && *cache ? cache : text(home ? home : ".", "/.cache");
  Value key = recipe.model.settings;
  key.set("name", recipe.model.name);
  key.set("task", recipe.task);
  key.set("size", recipe.preprocess.size);
  key.set("precision", name_of(recipe.train.precision));
  key.set("threads", recipe.train.threads);
  return text(root, "/tessera/blocks/", chip, "-", program_version(), "-",
              checksum_of(as_bytes(write_toml(key))), ".toml");
}

std::optional<plan::MeasuredBlock> kept_block(const std::string& file) {
  if (!file_exists(file)) return {};
  return read_config<plan::MeasuredBlock>(parse_toml(read_text(file), file));
}

plan::MeasuredBlock measure(train::Recipe recipe, const std::string& file) {
  plan::MeasuredBlock block = train::measure_block(recipe);
  if (const Value* depth = train::depth_of(recipe)) block.layers = static_cast<double>(depth->as_int());
  make_directories(std::filesystem::path(file).parent_path().string());
  write_text_atomic(file, write_toml(write_config(block)));
  return block;
}

// Measured activations replace the formula's.
void take_activations(plan::Shape& shape, const plan::MeasuredBlock& block) {
  if (block.layer_bytes == 0 && block.outer_bytes == 0) return;
  double layers = 0;
  for (const plan::Stack& stack : shape.stacks) layers += static_cast<double>(stack.layers);
  for (plan::Stack& stack : shape.stacks)
    stack.kept_bytes = std::max(1.0, block.layer_bytes * (block.layers > 0 ? block.layers / layers : 1));
  shape.kept_bytes = block.outer_bytes;
  shape.vocabulary = 0;  // the measured bytes already include its logits
}

std::string source_of(const train::CountedRun& run, const plan::Cluster& cluster, bool measured) {
  if (measured) return "a measured block";
  if (cluster.chip.generation == plan::Generation::cpu)
    return "a guess: no figures of processors are published (--measure measures a block)";
  if (!run.only_attention) return "a guess: layers with kernels of their own (--measure measures a block)";
  if (!run.language) return "a guess: published figures are of language models";
  return "constants fitted on published figures";
}

[[noreturn]] void refuse(const PlanInput& input, const PlanOptions& options,
                         const plan::SearchOptions& search) {
  const plan::Shortfall why = plan::shortfall(input.shape, input.cluster, input.arithmetic, search);
  if (!why.batch_divides)
    fail_usage("no layout", options.runnable ? " that this program can run" : "", " divides a batch of ",
               input.arithmetic.batch, " over ", input.cluster.chips,
               " chips; change --batch-size or --cluster");
  fail_usage(
      input.shape.name, " does not fit ", input.cluster.chips, " x ", input.cluster.chip.name, ": ",
      human_bytes(static_cast<uint64_t>(why.missing_bytes)), " a chip are missing in the smallest layout",
      why.smallest_chips > 0 ? text("; ", input.cluster.chip.name, "x", why.smallest_chips, " would do")
                             : "");
}

// Returns the layout as keys of [parallel].
Value parallel_keys(const plan::Layout& layout) {
  Value keys;
  keys.set("replicate", layout.zero > 0 ? 1 : layout.data);
  keys.set("shard", layout.zero > 0 ? layout.data : 1);
  keys.set("zero", layout.zero);
  if (layout.context > 1) keys.set("context", layout.context);
  if (layout.tensor > 1) keys.set("tensor", layout.tensor);
  if (layout.pipeline > 1) keys.set("pipeline", layout.pipeline);
  return keys;
}

// Writes a recipe based on the given ones with the chosen layout.
void write_recipe(const PlanOptions& options, const PlanInput& input, const plan::Layout& layout) {
  Value recipe;
  Value::Array bases;
  for (const std::string& path : options.recipes) bases.push_back(std::filesystem::absolute(path).string());
  recipe.set("base", bases);
  recipe.set("train.batch_size", input.arithmetic.batch);
  recipe.set("train.accumulate", layout.microbatches(input.arithmetic.batch));
  recipe.set("train.checkpoint_activations", layout.recompute == plan::Recompute::full);
  const std::string missing = plan::why_not_yet(layout);
  if (missing.empty()) recipe.set("parallel", parallel_keys(layout));
  std::string page = text("# Layout by tessera plan: ", layout.text(), ", on ", input.cluster.chips, " x ",
                          input.cluster.chip.name, ".\n", write_toml(recipe));
  if (!missing.empty()) {
    Value parallel;
    parallel.set("parallel", parallel_keys(layout));
    page += text("\n# This version cannot run ", missing, " yet.\n");
    for (const std::string& line : split(write_toml(parallel), '\n'))
      if (!line.empty()) page += "# " + line + "\n";
  }
  write_text_atomic(options.write, page);
}

// Processes of this machine share its cores and its memory.
void share_machine(plan::Cluster& cluster, int64_t threads) {
  const double cores = available_cores(), processes = static_cast<double>(cluster.per_machine),
               own = std::min(threads > 0 ? static_cast<double>(threads) : cores, cores / processes);
  cluster.chip.flops *= own / cores, cluster.chip.memory_bytes_per_s *= own / cores;
  cluster.chip.memory_bytes /= processes;
}

void make_plan(const PlanOptions& options, const Given& given) {
  AnalysisWriter writer(options.output);
  if (!options.write.empty() && !options.write.ends_with(".toml"))
    fail_usage("--write ", printable(options.write), ": must end in .toml");
  const bool measured = options.cluster.ends_with(".toml");
  if (measured && !options.chips.empty())
    fail_usage("--chips and --cluster ", printable(options.cluster), " both describe the chips: give one");
  const std::vector<plan::Chip> known =
      options.chips.empty() ? plan::chips() : plan::read_chips(options.chips);
  PlanInput input{.cluster = measured ? plan::read_cluster(options.cluster)
                                      : plan::parse_cluster(options.cluster, known)};
  std::vector<std::string> settings = options.settings, origins(settings.size());
  given.add_recipe_settings(settings, origins);
  train::check_one_length(settings);
  const train::CountedRun run = train::count_run(train::load_recipe(options.recipes, settings, origins));
  if (input.cluster.chip.name == "cpu" && options.chips.empty() && !measured)
    share_machine(input.cluster, run.recipe.train.threads);
  input.shape = run.shape, input.arithmetic = run.arithmetic;
  if (input.shape.all_parameters() == 0) fail_usage(options.recipes[0], ": its model has no parameters");
  const std::string file = block_file(input.cluster.chip.name, run.recipe);
  const std::optional<plan::MeasuredBlock> block =
      options.measure ? measure(run.recipe, file) : kept_block(file);
  if (block) take_activations(input.shape, *block);
  input.source = source_of(run, input.cluster, block.has_value());
  const plan::SearchOptions search{.only_runnable = options.runnable,
                                   .keep = static_cast<size_t>(options.keep),
                                   .measured = block ? &*block : nullptr};
  const std::vector<plan::Plan> plans =
      plan::search(input.shape, input.cluster, input.arithmetic, plan::fitted_constants(), search);
  if (plans.empty()) refuse(input, options, search);
  if (!options.write.empty()) write_recipe(options, input, plans[0].layout);
  writer.write(findings_of(input, plans));
}

void plan_or_fit(const PlanOptions& options, const Given& given) {
  if (!options.fit.empty()) {
    AnalysisWriter writer(options.output);
    return writer.write(findings_of_fit(plan::read_published(options.fit)));
  }
  if (options.recipes.empty()) fail_usage("RECIPES is missing: the recipe to plan");
  make_plan(options, given);
}

}  // namespace

void add_plan(Arguments& command, Action& action) {
  action = with_options<PlanOptions>(command, plan_or_fit);
}

}  // namespace tessera::cli
