// A run's folder: its lock, recipe and metrics.
//
//   recipe.toml  metrics.jsonl  events.*  checkpoints/  best.safetensors  model.safetensors  report.html
//
// metrics.jsonl has lines of kind "train" (every log_every steps: means since the previous line), "epoch"
// (means over the epoch), "eval", and "checkpoint" (measured after the run). Keys with is_time_key() depend
// on the clock, since checkpoints, which need exchanges, are timed. All others are equal in every run with
// the same number of processes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/value.h"
#include "io/files/file.h"
#include "io/files/path.h"

namespace tessera::train {

using Metrics = std::vector<std::pair<std::string, double>>;

inline bool is_time_key(std::string_view key) {
  return key.ends_with("seconds") || key.ends_with("_exchanges") || key.ends_with("_bytes") ||
         key == "images_per_second" || key == "wait_share";
}

// One line of metrics.jsonl.
struct HistoryPoint {
  std::string kind;  // "train", "epoch", "eval" or "checkpoint"
  int64_t step = 0;
  double epoch = 0;  // fractional
  Metrics values;
};

class RunDirectory {
 public:
  explicit RunDirectory(std::string path);
  RunDirectory(const RunDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  // True if a run was started here before.
  bool holds_run() const;
  // Throws a usage error if holds_run(), unless it `may_hold` one, or if the folder has other files that a run would
  // replace, such as the weights of a hub.
  void require_no_run(bool may_hold = false) const;

  // Makes the folder and locks it for the lifetime of this object. Throws Error if another process uses it.
  void claim();

  // Throws Error if the folder or its metrics were removed since open_metrics(), since writes would be lost.
  void check_there() const;

  void write_recipe(const std::string& toml);

  // Opens metrics.jsonl for appending, after truncating it to its first `bytes`. If it is shorter, or that
  // position is inside a line, keeps its whole lines up to `step` instead. Removes unreadable lines. Returns
  // notes on the losses for the user.
  std::vector<std::string> open_metrics(uint64_t bytes, int64_t step);
  void write(const HistoryPoint& point);
  // Returns the bytes of metrics.jsonl so far, after syncing them to disk.
  uint64_t sync_metrics();

 private:
  std::string path_;
  std::unique_ptr<FileLock> lock_;
  std::unique_ptr<AppendFile> metrics_;
  uint64_t metrics_bytes_ = 0;
};

// Reads all points of a run's metrics.jsonl; ignores an incomplete last line. Throws Error for other damage.
std::vector<HistoryPoint> read_history(const std::string& run_directory);

}  // namespace tessera::train
