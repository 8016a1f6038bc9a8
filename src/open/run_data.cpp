#include "open/run_data.h"

#include <filesystem>
#include <sstream>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "runs/manifest.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostManifestBytes = uint64_t{64} << 20;
constexpr int kMostLevels = 3;  // RUN/checkpoints/step-000123/weights.safetensors

// Returns the directory of the run that weights belong to; "" if there is none.
fs::path run_of(const std::string& weights) {
  std::error_code error;
  fs::path place = fs::weakly_canonical(weights, error);
  for (int level = 0; level <= kMostLevels && !error; ++level, place = place.parent_path())
    if (fs::exists(place / "recipe.toml", error) && fs::is_directory(place / "checkpoints", error))
      return place;
  return {};
}

// Returns the folder that a run was started in; "" if it is not recorded.
fs::path start_of(const std::string& weights) {
  const Value state = recorded_state(weights);
  const Value* folder = state.find("started_in");
  if (!folder || !folder->is_string()) return {};
  return (run_of(weights) / folder->as_string()).lexically_normal();
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Replaces a relative path that exists in `start` and not here. In "text:classes,FILE", paths follow ':' and ','.
void find_from(std::string& path, const fs::path& start, std::vector<std::string>& found) {
  const auto moved = [&](const std::string& word) {
    const bool elsewhere = !word.empty() && fs::path(word).is_relative() && !is_there(word);
    return elsewhere && is_there(start / word);
  };
  const auto from_start = [&](const std::string& word) {
    found.push_back((start / word).lexically_normal().string());
    return found.back();
  };
  if (path.empty() || is_there(path)) return;
  if (moved(path)) {
    path = from_start(path);
    return;
  }
  const size_t colon = path.find(':');
  if (colon == std::string::npos) return;
  std::vector<std::string> words = split(path.substr(colon + 1), ',');
  for (std::string& word : words)
    if (moved(word)) word = from_start(word);
  path = path.substr(0, colon + 1) + join(words, ",");
}

}  // namespace

Value recorded_state(const std::string& weights) try {
  const fs::path run = run_of(weights);
  const std::string path = (run / "checkpoints/latest/manifest.json").string();
  if (run.empty() || !file_exists(path)) return {};
  return parse_manifest(read_text(path, kMostManifestBytes), path).state;
} catch (const Error&) {
  return {};  // reported if the checkpoint is read
}

std::string started_in(const std::string& output) {
  std::error_code error;
  const fs::path run = fs::weakly_canonical(output, error), here = fs::current_path(error);
  return error ? "" : here.lexically_relative(run).generic_string();
}

std::string find_run_data(data::SourceConfig& config, const std::string& weights) {
  const fs::path start = start_of(weights);
  std::vector<std::string> found;
  if (start.empty()) return "";
  for (std::string* path : {&config.path, &config.val_path, &config.image_root, &config.class_names})
    find_from(*path, start, found);
  if (found.empty()) return "";
  return text("data from the folder in which the run was started: ", some_of(found));
}

void note_changed_data(OpenedTask& opened, const std::string& weights) {
  const Value state = recorded_state(weights);
  const Value* recorded = state.find("validation_data");
  if (!recorded || !recorded->is_string()) return;
  const data::Source& validation = *opened.task->validation().source;
  std::ostringstream print;
  print << std::hex << validation.fingerprint();
  if (recorded->as_string() != print.str())
    opened.notes.push_back("the validation set differs from that of the run: " + validation.describe());
}

}  // namespace tessera::train
