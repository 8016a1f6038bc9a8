// A recipe: everything that decides what a training run computes, as one typed tree.
//
//   Recipe recipe = load_recipe("recipes/cifar10/vil.toml", {"train.epochs=3", "data.path=my/shards"});
//
// A recipe file may start from others (see recipe_files.h). What is laid over wins key by key; later
// overrides win over earlier ones.
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
#include "tasks/base/registry.h"
#include "weights/quantise.h"

namespace tessera::train {

// [model]: its name and where its first weights come from. Every other key of the section is a setting of the
// family, laid over those of the size that `name` stands for.
struct ModelSection {
  std::string name =
      "vil_tiny_patch16_224";  // "auto": the model, and the preprocessing, of the pretrained file
  std::string pretrained;      // weights file to start from, "" = fresh weights
  std::string select_from;     // a larger model's file to cut first weights out of, "" = none
  Value settings;
};

enum class RunPrecision { fp32, bf16, fp64, fp16 };
enum class ClipMode { norm, value, agc };
enum class BadImagePolicy { replace, fail };

// [train]: how long, in what pieces, how precisely, and what is written.
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
  bool checkpoint_activations = false;
  std::string device = "auto";
  int64_t threads = 0, loader_threads = 1;
  double eval_every = 1;
  int64_t eval_batch_size = 0;
  double checkpoint_seconds = 600;
  int64_t checkpoint_steps = 0;
  int64_t keep_last = 2;
  int64_t log_every = 50;
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
  Value schedule = resolve_schedule({});  // complete: every key of the schedule that its "name" says
  TrainConfig train;
};

// Reads a file with its bases and lays `overrides` ("section.key=value") over it. Usage errors name file and
// key: unknown keys with the nearest known one, wrong types, values out of range, keys that contradict each
// other.
Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides = {});

// The same of several files, later ones laid over earlier ones: a paper's recipe and its scale.
Recipe load_recipe(const std::vector<std::string>& paths, const std::vector<std::string>& overrides = {});

// The same from a settings tree; `where` (a file name) stands in front of errors.
Recipe read_recipe(const Value& table, const std::string& where);

// The complete tree: every key of every section, the model's settings resolved. read_recipe gives the same
// back.
Value recipe_table(const Recipe& recipe);

// The same without the keys that do not change what is computed, but where, how often and how fast: output,
// device, threads, checkpoint_* and their like. What weight files carry.
Value computed_part(const Recipe& recipe);

// The first key of computed_part at which a run would be continued with another recipe than its own, as
// "train.batch_size: 64 against 128 in the run"; "" if there is none.
std::string recipe_conflict(const Recipe& run, const Recipe& asked);

// XXH3 of computed_part, 16 hex digits.
std::string recipe_hash(const Recipe& recipe);

// A line a key: "section.key  default  meaning".
std::string describe_recipe_keys();

}  // namespace tessera::train

namespace tessera {
template <>
struct EnumNames<train::RunPrecision> {
  static constexpr std::array names = {"fp32", "bf16", "fp64", "fp16"};
};
template <>
struct EnumNames<train::ClipMode> {
  static constexpr std::array names = {"norm", "value", "agc"};
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
    "pieces that a process computes its share of a step in, for less memory");
  v("repeats", repeats, between(1, 1024), "repeated augmentation: so many views of a sample in a batch");
  v("sizes", sizes, between(1, 16384),
    "input sides over the run, each for an equal part of its epochs; empty = preprocess.size");
  v("seed", seed, at_least(0), "of the first weights, the sample order and every augmentation");
  v("precision", precision, choice<RunPrecision>(),
    "arithmetic; bf16 and fp16 by autocast, fp16 with a loss scale");
  v("balanced_sampling", balanced_sampling, "draw classes equally often");
  v("clip_grad", clip_grad, at_least(0), "bound on the gradient, 0 = no clipping");
  v("clip_mode", clip_mode, choice<ClipMode>(),
    "what is bounded: the norm of the whole gradient, each value, or agc (Brock et al. 2021)");
  v("clip_norm_type", clip_norm_type, above(0), "p of the norm: 2, 1, inf or any other");
  v("max_skipped", max_skipped, at_least(0),
    "steps in a row without a finite loss and gradient before the run is stopped");
  v("ema_decay", ema_decay, from_to_below(0, 1), "of the weights' moving average, 0 = none");
  v("ema_warmup", ema_warmup, "let early updates count for more in the moving average");
  v("freeze", freeze, "parameters that stay as they are, by patterns such as \"blocks.0.*\"");
  v("checkpoint_activations", checkpoint_activations,
    "compute blocks again in the backward pass: less memory");
  v("device", device, "cpu, cuda, cuda:N or auto");
  v("threads", threads, between(0, 1024), "compute threads, 0 = all cores");
  v("loader_threads", loader_threads, between(1, 256), "decoding threads");
  v("eval_every", eval_every, at_least(0), "epochs between evaluations, 0 = only at the end");
  v("eval_batch_size", eval_batch_size, at_least(0), "0 = batch_size");
  v("checkpoint_seconds", checkpoint_seconds, at_least(0), "longest time between checkpoints, 0 = no limit");
  v("checkpoint_steps", checkpoint_steps, at_least(0), "a checkpoint every so many steps, 0 = none");
  v("keep_last", keep_last, at_least(1), "checkpoints kept besides the best");
  v("log_every", log_every, at_least(1), "steps between lines in metrics.jsonl");
  v("on_bad_image", on_bad_image, choice<BadImagePolicy>(), "what is done about a broken image");
  v("max_bad", max_bad, at_least(0), "broken images before the run is failed");
  v("output", output, "run directory");
}
