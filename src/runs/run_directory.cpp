#include "runs/run_directory.h"

#include <sys/stat.h>

#include <cerrno>
#include <cmath>
#include <string_view>

#include "core/error.h"
#include "core/text.h"
#include "io/files/json.h"

namespace tessera::train {
namespace {

constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kRecipe = "recipe.toml";
constexpr uint64_t kMostMetricsBytes = uint64_t{1} << 30;

std::string line_of(const HistoryPoint& point) {
  Value line;
  line.set("kind", point.kind);
  line.set("step", point.step);
  line.set("epoch", point.epoch);
  for (const auto& [name, value] : point.values)
    if (std::isfinite(value))
      line.as_table().emplace_back(name, value);  // JSON has no NaN: omit undefined values
  return json_text(line) + "\n";
}

HistoryPoint point_of(std::string_view line, const std::string& where) {
  const Value table = parse_json_value(line, where);
  HistoryPoint point;
  if (!table.is_table()) fail(where, ": must be an object");
  for (const auto& [key, value] : table.as_table()) {
    if (key == "kind" && value.is_string())
      point.kind = value.as_string();
    else if (key == "step" && value.is_int())
      point.step = value.as_int();
    else if (key == "epoch" && value.is_number())
      point.epoch = value.as_double();
    else if (value.is_number())
      point.values.emplace_back(key, value.as_double());
    else
      fail(where, ": '", key, "' is ", value.type_name());
  }
  return point;
}

// MappedFile rejects a pipe of this name instead of waiting for it.
std::string read_metrics(const std::string& path) {
  const MappedFile file(path);
  if (file.bytes().size() > kMostMetricsBytes)
    fail("'", path, "' has ", human_bytes(file.bytes().size()), ", at most ", human_bytes(kMostMetricsBytes),
         " are read");
  return std::string(as_text(file.bytes()));
}

// Calls see(line, end of the line) for each whole line.
template <class See>
void for_each_line(std::string_view content, const See& see) {
  size_t begin = 0;
  for (size_t end; (end = content.find('\n', begin)) != std::string_view::npos; begin = end + 1)
    see(content.substr(begin, end - begin), end + 1);
}

}  // namespace

RunDirectory::RunDirectory(std::string path) : path_(std::move(path)) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
}

bool RunDirectory::holds_run() const {
  return file_exists(file(kRecipe)) || file_exists(file("checkpoints"));
}

void RunDirectory::require_no_run(bool may_hold) const {
  if (holds_run() && may_hold) return;
  if (holds_run())
    fail_usage("run directory '", path_, "' already holds a run: continue it with --resume, or choose ",
               "another --output");
  for (const char* name : {"model.safetensors", "model.safetensors.index.json", "best.safetensors",
                           "best.safetensors.index.json", "report.html", kMetrics})
    if (file_exists(file(name)))
      fail_usage("'", path_, "' holds ", name,
                 " and no run, which would replace it: choose another --output");
}

void RunDirectory::claim() {
  make_directories(path_);
  lock_ = FileLock::try_lock(file(".lock"));
  if (!lock_) fail("run directory '", path_, "' is in use by another process");
  remove_stale_temporaries(path_);
}

void RunDirectory::check_there() const {
  struct stat found {};
  if (::stat(file(kMetrics).c_str(), &found) == 0 || errno != ENOENT) return;
  fail("run directory '", path_,
       "' was removed while the run was writing to it: its contents are lost, start the run again");
}

void RunDirectory::write_recipe(const std::string& toml) { write_text_atomic(file(kRecipe), toml); }

std::vector<std::string> RunDirectory::open_metrics(uint64_t bytes, int64_t step) {
  const std::string path = file(kMetrics);
  const std::string content = file_exists(path) ? read_metrics(path) : "";
  const bool whole = bytes <= content.size() && (bytes == 0 || content[bytes - 1] == '\n');
  std::string kept;
  std::vector<std::string> damaged;
  int64_t number = 0;
  for_each_line(content, [&](std::string_view line, size_t end) {
    ++number;
    if (whole && end > bytes) return;
    try {
      const int64_t at = point_of(line, text("'", path, "' line ", number)).step;
      if (whole || at <= step) kept.append(line) += '\n';
    } catch (const Error& error) {
      damaged.emplace_back(error.what());
    }
  });
  std::vector<std::string> notes;
  if (!whole)
    notes.emplace_back(
        "metrics.jsonl is shorter than when the checkpoint was written; some of its lines are lost");
  if (!damaged.empty())
    notes.push_back(text("metrics.jsonl: ", damaged.size(), damaged.size() == 1 ? " line is" : " lines are",
                         " damaged and taken out; ", damaged.front()));
  if (!content.starts_with(kept))
    write_text_atomic(path, kept);
  else if (kept.size() < content.size())
    cut_file(path, kept.size());
  metrics_ = std::make_unique<AppendFile>(path);
  metrics_bytes_ = kept.size();
  return notes;
}

void RunDirectory::write(const HistoryPoint& point) {
  const std::string line = line_of(point);
  metrics_->write(line);
  metrics_bytes_ += line.size();
}

uint64_t RunDirectory::sync_metrics() {
  metrics_->sync();
  return metrics_bytes_;
}

std::vector<HistoryPoint> read_history(const std::string& run_directory) {
  const std::string path = run_directory + "/" + kMetrics;
  const std::string content = read_metrics(path);
  std::vector<HistoryPoint> points;
  for_each_line(content, [&](std::string_view line, size_t) {
    points.push_back(point_of(line, text("'", path, "' line ", points.size() + 1)));
  });
  return points;
}

}  // namespace tessera::train
