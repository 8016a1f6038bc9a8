// A run's folder: one process at a time, the recipe it was started with, and the metrics it wrote.
//
//   recipe.toml  metrics.jsonl  events.*  checkpoints/  best.safetensors  model.safetensors  report.html
//
// metrics.jsonl holds a line each of kind "train" (every log_every steps: means since the line before),
// "epoch" (means over the epoch), "eval", and "checkpoint" (measured when the run was over). Keys for which
// is_time_key() holds depend on the clock (checkpoints come by it, and are exchanges too); all others are the
// same in every run of as many processes.
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
#include "io/files/file_lock.h"

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
  double epoch = 0;  // with fractions
  Metrics values;
};

class RunDirectory {
 public:
  explicit RunDirectory(std::string path);
  RunDirectory(const RunDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  // A run was started here before.
  bool holds_run() const;
  // A usage error if one was.
  void require_no_run() const;

  // Makes the folder and keeps other processes out until this object is gone; an error if one is at work in
  // it.
  void claim();

  // Fails where the folder, or its metrics, were taken away since open_metrics: what is written then is lost.
  void check_there() const;

  void write_recipe(const std::string& toml);

  // Opens metrics.jsonl for appending, after cutting it back to its first `bytes`; if it holds less than that
  // or is cut in the middle of a line, to its whole lines of steps not after `step`. Lines that cannot be read
  // are taken out. Returns what people should know of that.
  std::vector<std::string> open_metrics(uint64_t bytes, int64_t step);
  void write(const HistoryPoint& point);
  // Bytes of metrics.jsonl so far, all of them on the disk when this returns.
  uint64_t sync_metrics();

 private:
  std::string path_;
  std::unique_ptr<FileLock> lock_;
  std::unique_ptr<AppendFile> metrics_;
  uint64_t metrics_bytes_ = 0;
};

// All points of a run's metrics.jsonl; a last line that was cut off is left out, other damage is an error.
std::vector<HistoryPoint> read_history(const std::string& run_directory);

}  // namespace tessera::train
