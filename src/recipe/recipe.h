// A recipe: every setting that determines a training run's result, as one typed tree.
//
//   Recipe recipe = load_recipe("recipes/cifar10/vil.toml", {"train.epochs=3", "data.path=my/shards"});
//
// A recipe file may be based on others (see recipe_files.h). Overlays take precedence key by key, and later
// overrides over earlier ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/value.h"
#include "data/base/source.h"
#include "data/transforms/transform.h"
#include "models/base/model.h"
#include "optim/optimiser.h"
#include "optim/schedule.h"
#include "parallel/mesh.h"
#include "tasks/base/registry.h"
#include "weights/quantise.h"

namespace tessera {
class WeightFile;
}

namespace tessera::train {

// [model]: its name and the source of its initial weights. Every other key is a setting of the family and
// overrides that of the size `name`.
struct ModelSection {
  std::string name = "vil_tiny_patch16_224";  // "auto": model and preprocessing of the pretrained file
  std::string pretrained;                     // weights file to start from; "" = random weights
  std::string pretrained_key;                 // dictionary of a PyTorch archive; "" = the usual one
  std::string select_from;                    // larger model's file to select initial weights from; "" = none
  Value settings;
};

// Opens the weights that [model] starts from.
WeightFile pretrained_file(const ModelSection& model);

enum class FrozenType { same, bf16 };
enum class RunPrecision { fp32, bf16, fp64, fp16 };
enum class ClipMode { norm, value, agc, each };
enum class BadImagePolicy { replace, fail };

// [train]: length, batches, precision, and output.
struct TrainConfig {
  int64_t epochs = 0, steps = 0;  // exactly one of them
  int64_t batch_size = 128, accumulate = 1;
  int64_t repeats = 1;
  std::vector<int64_t> sizes;
  int64_t seed = 0;
  RunPrecision precision = RunPrecision::fp32;
  bool balanced_sampling = false;
  double clip_grad = 0;
  ClipMode clip_mode = ClipMode::norm;
  double clip_norm_type = 2;
  int64_t max_skipped = 10;
  double ema_decay = 0;
  bool ema_warmup = false;
  std::vector<std::string> freeze;
  FrozenType frozen = FrozenType::same;
  bool checkpoint_activations = false;
  std::string device = "auto";
  int64_t threads = 0, loader_threads = 1;
  double eval_every = 1;
  int64_t stop_early = 0;
  int64_t eval_batch_size = 0;
  double checkpoint_seconds = 600;
  int64_t checkpoint_steps = 0;
  int64_t keep_last = 2;
  int64_t log_every = 50;
  bool noise_scale = false;
  BadImagePolicy on_bad_image = BadImagePolicy::replace;
  int64_t max_bad = 100;
  std::string output;
  template <class V>
  void visit(V& v);
};

struct Recipe {
  ModelSection model;
  data::SourceConfig data;
  data::Preprocess preprocess;
  data::AugmentConfig augment;
  Value task = tasks::resolve_task({});  // complete: its name and every key of that task
  QuantizationConfig quantization;
  OptimiserSpec optimiser = resolve_optimiser({});
  Value schedule = resolve_schedule({});  // complete: every key of the schedule named by "name"
  TrainConfig train;
  parallel::ParallelConfig parallel;  // does not affect the result
};

// Reads a file with its bases and overlays `overrides` ("section.key=value"). Usage errors name the file, or the override
// that causes them, and the key: unknown keys (with the nearest known one), wrong types, values out of range, contradicting
// keys. `origins`: names of the overrides in error lines, such as "--device"; if "" or missing, --set with the key.
Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides = {},
                   const std::vector<std::string>& origins = {});

// Reads several files; later ones override earlier ones: a paper's recipe, then a smaller scale.
Recipe load_recipe(const std::vector<std::string>& paths, const std::vector<std::string>& overrides = {},
                   const std::vector<std::string>& origins = {});

// Reads a settings tree; errors begin with `where` (a file name).
Recipe read_recipe(const Value& table, const std::string& where);

// Returns the complete tree: every key of every section, with the model's settings resolved. read_recipe
// restores it.
Value recipe_table(const Recipe& recipe);

// Returns the tree without keys that only affect paths, intervals or speed: output, device, threads,
// checkpoint_* and the like. Weight files contain it.
Value computed_part(const Recipe& recipe);

// Returns the first key of computed_part in which the new recipe differs from the run to continue, as
// "train.batch_size: 64 against 128 in the run"; "" if none differs.
std::string recipe_conflict(const Recipe& run, const Recipe& asked);

// Returns XXH3 of computed_part, 16 hex digits.
std::string recipe_hash(const Recipe& recipe);

// Returns one line per key: "section.key  default  meaning".
std::string describe_recipe_keys();

}  // namespace tessera::train

namespace tessera {
template <>
struct EnumNames<train::RunPrecision> {
  static constexpr std::array names = {"fp32", "bf16", "fp64", "fp16"};
};
template <>
struct EnumNames<train::FrozenType> {
  static constexpr std::array names = {"same", "bf16"};
};
template <>
struct EnumNames<train::ClipMode> {
  static constexpr std::array names = {"norm", "value", "agc", "each"};
};
template <>
struct EnumNames<train::BadImagePolicy> {
  static constexpr std::array names = {"replace", "fail"};
};
}  // namespace tessera

template <class V>
void tessera::train::TrainConfig::visit(V& v) {
  v("epochs", epochs, at_least(0), "passes over the training set (or give steps)");
  v("steps", steps, at_least(0), "optimiser steps (or give epochs)");
  v("batch_size", batch_size, between(1, 1 << 20), "samples a step, of all processes together");
  v("accumulate", accumulate, at_least(1),
    "pieces into which a process splits its share of a step, to save memory");
  v("repeats", repeats, between(1, 1024), "repeated augmentation: views of a sample in a batch");
  v("sizes", sizes, between(1, 16384),
    "input sides over the run, each for an equal part of its epochs; empty = preprocess.size");
  v("seed", seed, at_least(0), "seed of the first weights, the sample order and every augmentation");
  v("precision", precision, choice<RunPrecision>(),
    "arithmetic; bf16 and fp16 by autocast, fp16 with a loss scale");
  v("balanced_sampling", balanced_sampling, "draw classes equally often");
  v("clip_grad", clip_grad, at_least(0), "bound on the gradient, 0 = no clipping");
  v("clip_mode", clip_mode, choice<ClipMode>(),
    "quantity to bound: the norm of the whole gradient, that of each parameter's (each), each value, or agc "
    "(Brock "
    "et al. 2021)");
  v("clip_norm_type", clip_norm_type, above(0), "p of the norm: 2, 1, inf or any other");
  v("max_skipped", max_skipped, at_least(0),
    "steps in a row without a finite loss and gradient before the run is stopped");
  v("ema_decay", ema_decay, from_to_below(0, 1), "decay of the weights' moving average, 0 = none");
  v("ema_warmup", ema_warmup, "weigh early updates more in the moving average");
  v("freeze", freeze, "parameters that do not train, by patterns such as \"blocks.0.*\"");
  v("frozen", frozen, choice<FrozenType>(),
    "type of frozen weights of linear layers in memory and files: same as trained ones, or bf16 (needs "
    "precision bf16)");
  v("checkpoint_activations", checkpoint_activations,
    "compute blocks again in the backward pass: less memory");
  v("device", device, "cpu, cuda, cuda:N or auto");
  v("threads", threads, between(0, 1024), "compute threads, 0 = OMP_NUM_THREADS or all cores");
  v("loader_threads", loader_threads, between(1, 256), "decoding threads");
  v("eval_every", eval_every, at_least(0), "epochs between evaluations, 0 = only at the end");
  v("stop_early", stop_early, at_least(0),
    "end the run after this many evaluations in a row without a new best metric, 0 = never");
  v("eval_batch_size", eval_batch_size, at_least(0), "0 = batch_size");
  v("checkpoint_seconds", checkpoint_seconds, at_least(0), "longest time between checkpoints, 0 = no limit");
  v("checkpoint_steps", checkpoint_steps, at_least(0), "steps between checkpoints, 0 = no such checkpoints");
  v("keep_last", keep_last, at_least(1), "checkpoints kept in addition to the best");
  v("log_every", log_every, at_least(1), "steps between lines in metrics.jsonl; at least a line an epoch");
  v("noise_scale", noise_scale,
    "measure the gradient noise scale by the first piece of each step (needs accumulate of 2 or more)");
  v("on_bad_image", on_bad_image, choice<BadImagePolicy>(), "how to treat a broken image");
  v("max_bad", max_bad, at_least(0), "broken images before the run is failed");
  v("output", output, "run directory");
}
