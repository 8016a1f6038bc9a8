#include "runs/checkpoint.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kLatest = "latest";
constexpr const char* kWriting = ".writing-";

std::string name_of(int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%06lld", static_cast<long long>(step));
  return name;
}

// Returns the step in the name of a committed directory.
std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with("step-")) return std::nullopt;
  const auto step = parse_int(std::string_view(name).substr(5));
  if (!step || *step < 0 || name_of(*step) != name) return std::nullopt;
  return step;
}

std::vector<std::string> entries(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

void verify_file(const std::string& directory, const ManifestFile& listed) {
  const std::string path = directory + "/" + listed.name;
  const MappedFile file(path);
  if (static_cast<int64_t>(file.bytes().size()) != listed.bytes)
    fail("'", path, "' has ", file.bytes().size(), " bytes, its manifest lists ", listed.bytes);
  if (file.checksum() != listed.xxh3) fail("'", path, "' is damaged: its checksum is not the manifest's");
}

// MappedFile rejects a pipe of this name instead of waiting for it.
Manifest read_manifest(const std::string& path) {
  const MappedFile file(path);
  return parse_manifest(as_text(file.bytes()), path);
}

// Writes an index of each tensor's file, in the usual format of sharded weights.
ManifestFile write_index(const std::string& directory, const std::string& file,
                         const std::map<std::string, std::string>& places) {
  const std::string name = file + kIndexEnding,
                    content = nlohmann::json({{"weight_map", places}}).dump(1) + "\n";
  write_text_atomic(directory + "/" + name, content);
  return {name, std::ssize(content), checksum_of(std::as_bytes(std::span(content)))};
}

// "optimiser-00002-of-00004.safetensors"
std::string part_name(const std::string& file, int part, int parts) {
  char numbers[32];
  std::snprintf(numbers, sizeof numbers, "-%05d-of-%05d", part + 1, parts);
  const fs::path path(file);
  return path.stem().string() + numbers + path.extension().string();
}

// Removes the manifest first, so that a partly removed checkpoint is invalid and easily recognised.
void remove_checkpoint(const std::string& directory) {
  remove_all(directory + "/" + kManifest);
  remove_all(directory);
}

}  // namespace

CheckpointStore::CheckpointStore(std::string directory) : directory_(std::move(directory)) {}

std::string CheckpointStore::directory_of(int64_t step) const { return directory_ + "/" + name_of(step); }

uint64_t CheckpointStore::bytes() const {
  uint64_t total = 0;
  std::error_code error;
  std::set<std::pair<uint64_t, uint64_t>> linked;  // device and inode of files with several links
  for (fs::recursive_directory_iterator it(directory_, error), end; !error && it != end;
       it.increment(error)) {
    struct stat status {};
    if (::lstat(it->path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    if (status.st_nlink > 1 && !linked.insert({status.st_dev, status.st_ino}).second) continue;
    total += static_cast<uint64_t>(status.st_size);
  }
  return total;
}

void CheckpointStore::prepare() {
  make_directories(directory_);
  remove_stale_temporaries(directory_);
  for (const std::string& name : entries(directory_)) {
    const size_t writing = name.find(kWriting);
    if (writing == std::string::npos || !step_of(name.substr(0, writing))) continue;
    const std::string path = directory_ + "/" + name, target = directory_ + "/" + name.substr(0, writing);
    // On file systems without atomic exchange, a killed writer may have left the old directory aside.
    if (name.ends_with(".old") && !file_exists(target))
      move_directory(path, target);
    else
      remove_all(path);
  }
}

void CheckpointStore::share_frozen(const StoredCheckpoint& stored) {
  frozen_.clear();
  if (!stored.frozen) return;
  const std::string path = stored.path(kFrozenFile);
  std::vector<int64_t> older = steps();
  std::erase_if(older, [&](int64_t step) { return step >= stored.step; });
  for (auto step = older.rbegin(); step != older.rend() && frozen_.empty(); ++step) {
    const std::string directory = directory_of(*step), other = directory + "/" + kFrozenFile;
    std::error_code none;
    if (fs::equivalent(path, other, none) || none) continue;
    try {
      verify_file(directory, *stored.frozen);
      frozen_.push_back({other, *stored.frozen});
    } catch (const Error&) {  // damaged: write it again
    }
  }
  frozen_.push_back({path, *stored.frozen});
}

void CheckpointStore::put_frozen(const std::string& directory, const NamedTensors& tensors,
                                 WrittenFiles& written) {
  const std::string path = directory + "/" + kFrozenFile;
  if (frozen_.size() > 1)
    for (const Frozen& kept : frozen_)
      if (link_file(kept.path, path)) {
        written.files.push_back(kept.file);
        return;
      }
  for (const auto& [name, tensor] : tensors)
    if (tensor.numel() > 0 && tensor.storage().nbytes() == 0)
      fail("'", path, "' cannot be a link to an earlier checkpoint's, and tensor '", name,
           "' is not in memory to be written again");
  const std::string xxh3 = save_tensors(path, tensors);
  written.files.push_back({kFrozenFile, static_cast<int64_t>(fs::file_size(path)), xxh3});
  written.bytes += fs::file_size(path);
}

WrittenFiles CheckpointStore::write_files(const std::string& directory,
                                          const std::vector<CheckpointFile>& files, const Writers& writers) {
  WrittenFiles written;
  std::exception_ptr first;
  for (const CheckpointFile& file : files) try {
      write_file(directory, file, writers, written);
    } catch (const Error&) {  // other processes wait for the rows of this one in the next files
      if (!first) first = std::current_exception();
    }
  if (first) std::rethrow_exception(first);
  return written;
}

void CheckpointStore::write_file(const std::string& directory, const CheckpointFile& file,
                                 const Writers& writers, WrittenFiles& written) {
  const bool divided = file.divided && writers.parts > 1;
  if (divided || file.joined ? writers.part < 0 : !writers.leader) return;
  const std::string name = divided ? part_name(file.name, writers.part, writers.parts) : file.name;
  const std::string path = directory + "/" + name;
  const std::string xxh3 = file.write ? file.write(path) : save_tensors(path, file.tensors, file.metadata);
  if (file.joined && !writers.leader) return;
  const uint64_t bytes = fs::file_size(path);
  written.files.push_back({name, static_cast<int64_t>(bytes), xxh3});
  written.bytes += bytes;
  const bool frozen = writers.leader && !file.frozen.empty();
  if (frozen && !file_exists(directory + "/" + kFrozenFile)) put_frozen(directory, file.frozen, written);
  if (!divided && !frozen) return;
  auto& places = written.places[file.name];
  for (const auto& [tensor, content] : file.tensors) places[tensor] = name;
  if (!frozen) return;
  for (const auto& [tensor, content] : file.frozen) places[tensor] = kFrozenFile;
}

void CheckpointStore::commit(int64_t step, const std::string& directory, const WrittenFiles& all,
                             const Value& state) {
  Manifest manifest{.step = step, .files = all.files, .state = state};
  for (const auto& [file, places] : all.places)
    manifest.files.push_back(write_index(directory, file, places));
  write_text_atomic(directory + "/" + kManifest, write_manifest(manifest));
  move_directory(directory, directory_of(step));
  for (const ManifestFile& file : manifest.files)
    if (file.name == kFrozenFile) frozen_.push_back({directory_of(step) + "/" + kFrozenFile, file});
  if (frozen_.size() > 2) frozen_.erase(frozen_.begin());
  point_latest(step);
  remove_all(directory);  // the replaced directory, if any
}

namespace {

// Calls the function and returns its error's line; "" if there is none.
std::string error_line(const std::function<void()>& function) {
  try {
    function();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

void throw_any(const std::vector<std::string>& errors) {
  for (const std::string& error : errors)
    if (!error.empty()) fail(error);
}

// As text, for the other processes.
std::string pack(const WrittenFiles& written) {
  nlohmann::json files = nlohmann::json::array();
  for (const ManifestFile& file : written.files) files.push_back({file.name, file.bytes, file.xxh3});
  return nlohmann::json({{"files", files}, {"places", written.places}, {"bytes", written.bytes}}).dump();
}

void add_packed(WrittenFiles& all, const std::string& packed) {
  const nlohmann::json part = nlohmann::json::parse(packed);
  for (const auto& file : part.at("files")) all.files.push_back({file.at(0), file.at(1), file.at(2)});
  for (const auto& [file, places] : part.at("places").items())
    for (const auto& [tensor, place] : places.items()) all.places[file][tensor] = place;
  all.bytes += part.at("bytes").get<uint64_t>();
}

}  // namespace

uint64_t CheckpointStore::save(int64_t step, const std::vector<CheckpointFile>& files, const Value& state,
                               const Writers& writers) {
  std::string directory = text(directory_of(step), kWriting, ::getpid());
  WrittenFiles mine, all;
  // A stage ends in all processes before the next one begins, so that one's error ends the others' saving.
  const auto together = [&](const std::function<void()>& stage) {
    if (!writers.gather) return stage();
    throw_any(writers.gather(error_line(stage)));
  };
  try {
    together([&] {
      if (!writers.leader) return;
      make_directories(directory_);
      remove_all(directory);
      make_directories(directory);
    });
    if (writers.gather) directory = writers.gather(directory).at(0);
    together([&] { mine = write_files(directory, files, writers); });
    all = mine;
    if (writers.gather) {
      all = {};
      for (const std::string& part : writers.gather(pack(mine))) add_packed(all, part);
    }
    together([&] {
      if (writers.leader) commit(step, directory, all, state);
    });
    return all.bytes;
  } catch (...) {
    if (writers.leader) error_line([&] { remove_all(directory); });  // else prepare() removes it next time
    throw;
  }
}

void CheckpointStore::point_latest(int64_t step) const {
  replace_symlink(name_of(step), directory_ + "/" + kLatest);
}

std::vector<int64_t> CheckpointStore::steps() const {
  std::vector<int64_t> found;
  std::error_code nothing;
  for (const std::string& name : entries(directory_))
    if (const auto step = step_of(name); step && fs::is_directory(directory_ + "/" + name, nothing))
      found.push_back(*step);
  std::sort(found.begin(), found.end());
  return found;
}

std::optional<StoredCheckpoint> CheckpointStore::newest(std::vector<std::string>& notes,
                                                        const Accept& accept) const {
  const std::vector<int64_t> found = steps();
  for (auto step = found.rbegin(); step != found.rend(); ++step) {
    try {
      StoredCheckpoint stored = read_checkpoint(directory_of(*step));
      if (accept) accept(stored);
      return stored;
    } catch (const Error& error) {
      notes.push_back(text("checkpoint ", name_of(*step), " is not usable: ", error.what()));
    }
  }
  return std::nullopt;
}

void CheckpointStore::retain(int64_t newest_step, int64_t keep_last, int64_t best_step) {
  std::vector<int64_t> older;
  for (const int64_t step : steps()) {
    if (step < newest_step) older.push_back(step);
    // Newer ones were found to be damaged when the run was continued.
    if (step > newest_step) remove_checkpoint(directory_of(step));
  }
  const auto count = static_cast<int64_t>(older.size());
  for (int64_t i = 0; i < count - (keep_last - 1); ++i)
    if (const int64_t step = older[static_cast<size_t>(i)]; step != best_step)
      remove_checkpoint(directory_of(step));
}

bool StoredCheckpoint::holds(const std::string& file) const {
  const auto listed = [&](const std::string& name) {
    return std::find(files.begin(), files.end(), name) != files.end();
  };
  return listed(file) || listed(file + kIndexEnding);
}

std::string StoredCheckpoint::weights_path(const std::string& file) const {
  const std::string index = file + kIndexEnding;
  return path(std::find(files.begin(), files.end(), index) != files.end() ? index : file);
}

StoredCheckpoint read_checkpoint(const std::string& directory) {
  const std::string where = directory + "/" + kManifest;
  if (!file_exists(where)) fail("'", directory, "' has no manifest.json: its writing was never finished");
  Manifest manifest = read_manifest(where);
  StoredCheckpoint stored{
      .directory = directory, .step = manifest.step, .state = std::move(manifest.state), .files = {}};
  const auto named = step_of(fs::path(directory).filename().string());  // empty for `latest`
  if (named && *named != stored.step)
    fail("'", where, "' is of step ", stored.step, ", but its directory is named after another");
  for (const ManifestFile& file : manifest.files) {
    verify_file(directory, file);
    stored.files.push_back(file.name);
    if (file.name == kFrozenFile) stored.frozen = file;
  }
  for (const char* needed : {kWeightsFile, kOptimiserFile})
    if (!stored.holds(needed)) fail("'", where, "' does not list ", needed);
  return stored;
}

}  // namespace tessera::train
