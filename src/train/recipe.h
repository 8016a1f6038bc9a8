// A recipe: everything that decides what a training run computes, as one typed tree.
//
//   Recipe recipe = load_recipe("recipes/cifar10/vil.toml", {"train.epochs=3", "data.path=my/shards"});
//
// A recipe file may start from another one: base = "other.toml" (relative to the file that says it). What is
// laid over wins key by key; later overrides win over earlier ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/value.h"
#include "data/mixup.h"
#include "data/source.h"
#include "data/transform.h"
#include "models/model.h"
#include "train/optimiser.h"
#include "train/quantise.h"
#include "train/schedule.h"

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

// [distil]: a trained model as a teacher.
struct DistilConfig {
  std::string teacher;  // weights file or run, "" = none
  std::string kind = "hard";
  double alpha = 0.5, tau = 1;
  std::string unlabelled;
  int64_t unlabelled_batch = 0;
  template <class V>
  void visit(V& v) {
    v("teacher", teacher, "weights file or run directory of a trained model, empty = none");
    v("kind", kind,
      "hard (the teacher's best class), soft (DeiT's) or batchmean (divided by the batch only)");
    v("alpha", alpha, "share of the teacher in the loss");
    v("tau", tau, "temperature of soft distillation");
    v("unlabelled", unlabelled, "pictures that only the teacher judges: any kind of set, its labels unread");
    v("unlabelled_batch", unlabelled_batch, "of them a step, besides the batch");
  }
};

// [soft_mask]: the share of the bi-directional mask in training of causal models (iLLaMA).
struct SoftMaskConfig {
  double share = 0;
  std::string mode = "soft", shape = "linear";
  int64_t cutoff_epoch = 0;
  template <class V>
  void visit(V& v) {
    v("share", share, "at the start, 0 = off");
    v("mode", mode,
      "soft (until cutoff_epoch, then 0), standard (throughout) or late (from cutoff_epoch on)");
    v("shape", shape, "linear (falling to 0) or constant");
    v("cutoff_epoch", cutoff_epoch, "where it ends");
  }
};

struct TrainConfig {
  int64_t epochs = 0, steps = 0;  // exactly one of them
  int64_t batch_size = 128, accumulate = 1;
  int64_t repeats = 1;
  std::vector<int64_t> sizes;
  int64_t seed = 0;
  std::string precision = "fp32";
  std::string loss = "auto";
  double target_threshold = -1;
  double label_smoothing = 0;
  Value class_weights = "none";
  bool balanced_sampling = false;
  double clip_grad = 0;
  std::string clip_mode = "norm";
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
  std::string on_bad_image = "replace";
  int64_t max_bad = 100;
  std::string output;
  template <class V>
  void visit(V& v) {
    v("epochs", epochs, "passes over the training set (or give steps)");
    v("steps", steps, "optimiser steps (or give epochs)");
    v("batch_size", batch_size, "pictures a step, of all processes together");
    v("accumulate", accumulate, "pieces that a process computes its share of a step in, for less memory");
    v("repeats", repeats, "repeated augmentation: so many views of a picture in a batch");
    v("sizes", sizes,
      "input sides over the run, each for an equal part of its epochs; empty = preprocess.size");
    v("seed", seed, "of the first weights, the sample order and every augmentation");
    v("precision", precision, "fp32, bf16 (autocast) or fp64");
    v("loss", loss, "auto, cross_entropy or bce");
    v("target_threshold", target_threshold,
      "bce: mixed targets above it count as 1, all others as 0 (DeiT III: 0); negative = as they are");
    v("label_smoothing", label_smoothing, "share of the target spread over all classes");
    v("class_weights", class_weights, "none, balanced, or one number a class");
    v("balanced_sampling", balanced_sampling, "draw classes equally often");
    v("clip_grad", clip_grad, "bound on the gradient, 0 = no clipping");
    v("clip_mode", clip_mode, "what is bounded: norm (of the whole gradient), value, or agc");
    v("max_skipped", max_skipped,
      "steps in a row without a finite loss and gradient before the run is stopped");
    v("ema_decay", ema_decay, "of the weights' moving average, 0 = none");
    v("ema_warmup", ema_warmup, "let early updates count for more in the moving average");
    v("freeze", freeze, "parameters that stay as they are, by patterns such as \"blocks.0.*\"");
    v("checkpoint_activations", checkpoint_activations,
      "compute blocks again in the backward pass: less memory");
    v("device", device, "cpu, cuda or auto");
    v("threads", threads, "compute threads, 0 = all cores");
    v("loader_threads", loader_threads, "decoding threads");
    v("eval_every", eval_every, "epochs between evaluations, 0 = only at the end");
    v("eval_batch_size", eval_batch_size, "0 = batch_size");
    v("checkpoint_seconds", checkpoint_seconds, "longest time between checkpoints, 0 = no limit");
    v("checkpoint_steps", checkpoint_steps, "a checkpoint every so many steps, 0 = none");
    v("keep_last", keep_last, "checkpoints kept besides the best");
    v("log_every", log_every, "steps between lines in metrics.jsonl");
    v("on_bad_image", on_bad_image, "replace or fail");
    v("max_bad", max_bad, "broken pictures before the run is failed");
    v("output", output, "run directory");
  }
};

struct Recipe {
  ModelSection model;
  data::SourceConfig data;
  data::Preprocess preprocess;
  data::AugmentConfig augment;
  data::MixupConfig mixup;
  DistilConfig distil;
  SoftMaskConfig soft_mask;
  QuantizationConfig quantization;
  OptimiserSpec optimiser = resolve_optimiser({});
  Value schedule = resolve_schedule({});  // complete: every key of the schedule that its "name" says
  TrainConfig train;
};

// Lays settings over others, key by key; train.epochs takes train.steps back, and the other way round.
void lay_over(Value& base, const Value& over);

// The tree of a file (a recipe or a sweep) laid over that of its base.
Value read_based(const std::string& path);

// "section.key=value", as the command line has it, as a tree of its own.
Value parse_setting(const std::string& setting);

// Reads a file with its bases and lays `overrides` ("section.key=value") over it. Usage errors name file and
// key: unknown keys with the nearest known one, wrong types, values out of range, keys that contradict each
// other.
Recipe load_recipe(const std::string& path, const std::vector<std::string>& overrides = {});

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
