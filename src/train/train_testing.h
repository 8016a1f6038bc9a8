// Helpers for training tests: a tiny recipe, and comparison of a run's files.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/value.h"
#include "io/files/file.h"
#include "io/files/io_testing.h"
#include "runs/checkpoint.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace tessera::train {

// A ViT of two blocks on 64 pictures, 8 steps an epoch, 3 epochs. Uses everything with state or random
// numbers: drop path, mixup, crops, EMA with warm-up, clipping.
inline constexpr const char* kTinyRecipe = R"(
[model]
name = "vit"
dim = 16
depth = 2
heads = 2
patch_size = 16
drop_path = 0.2
[data]
path = "shapes:train=64,val=24"
[preprocess]
size = 32
[augment]
crop = "padded"
[task.mixup]
mixup = 0.2
cutmix = 1.0
[optimiser]
name = "adamw"
lr = 0.003
[schedule]
name = "cosine"
[train]
epochs = 3
batch_size = 8
threads = 1
device = "cpu"
clip_grad = 1.0
ema_decay = 0.9
ema_warmup = true
log_every = 3
)";

inline Recipe tiny_recipe(const std::string& output, const std::vector<std::string>& settings = {}) {
  Value table = parse_toml(kTinyRecipe, "tiny");
  table.set("train.output", output);
  for (const std::string& setting : settings) {
    const size_t equals = setting.find('=');
    table.set(setting.substr(0, equals), parse_toml_value(setting.substr(equals + 1)));
  }
  return read_recipe(table, "tiny");
}

// Opens a loader over a stream of the run's task, as in evaluation.
inline std::unique_ptr<data::Loader> open_stream(const Setup& setup, const tasks::StreamSpec& stream,
                                                 bool training = false) {
  return std::make_unique<data::Loader>(*stream.source, stream.transform(setup.recipe.preprocess.size),
                                        loader_config(setup.recipe.train, stream, training));
}

// Evaluates a task on the validation set of a run.
inline tasks::Findings evaluate(const Setup& setup, tasks::Task& task) {
  tasks::EvaluateOptions options;
  options.open = [&](const tasks::StreamSpec&) { return open_stream(setup, setup.model.task->validation()); };
  return task.evaluators().at(0)->run(options);
}

inline std::vector<std::pair<std::string, double>> values_of(const tasks::Findings& findings) {
  std::vector<std::pair<std::string, double>> values;
  for (const tasks::Metric& metric : findings.metrics) values.emplace_back(metric.info.name, metric.value);
  return values;
}

// metrics.jsonl without the keys that depend on the clock.
inline std::vector<HistoryPoint> timeless_history(const std::string& run) {
  std::vector<HistoryPoint> points = read_history(run);
  for (HistoryPoint& point : points)
    std::erase_if(point.values, [](const auto& entry) { return is_time_key(entry.first); });
  return points;
}

inline void expect_same_history(const std::string& run, const std::string& other) {
  const auto a = timeless_history(run), b = timeless_history(other);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].kind, b[i].kind) << "line " << i;
    EXPECT_EQ(a[i].step, b[i].step) << "line " << i;
    EXPECT_EQ(a[i].values, b[i].values) << "line " << i << ", step " << a[i].step;
  }
}

// Weights, average, optimiser and final files, byte for byte.
inline void expect_same_weights(const std::string& run, const std::string& other) {
  for (const char* name : {"model.safetensors", "best.safetensors", "checkpoints/latest/weights.safetensors",
                           "checkpoints/latest/ema.safetensors", "checkpoints/latest/optimiser.safetensors"})
    EXPECT_TRUE(read_file(run + "/" + name) == read_file(other + "/" + name)) << name << " differs";
}

}  // namespace tessera::train
