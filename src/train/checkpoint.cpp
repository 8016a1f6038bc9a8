#include "train/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "core/error.h"
#include "core/text.h"
#include "io/file.h"
#include "train/json_value.h"

namespace tessera::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.json";
constexpr const char* kLatest = "latest";
constexpr const char* kWriting = ".writing-";
constexpr int64_t kFormat = 1;

std::string name_of(int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%06lld", static_cast<long long>(step));
  return name;
}

// The step of a committed directory's name.
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

std::string manifest_of(int64_t step, const Value::Array& files, const Value& state) {
  Value manifest;
  manifest.set("format", kFormat);
  manifest.set("step", step);
  manifest.set("files", files);
  manifest.set("state", state);
  return json_text(manifest, 1) + "\n";
}

const Value& field(const Value& table, const char* key, const std::string& where, bool (Value::*is)() const) {
  const Value* value = table.find(key);
  if (!value || !(value->*is)()) fail(where, ": no usable '", key, "'");
  return *value;
}

// A name from a manifest is joined to a path: it must stay in the directory.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name[0] != '.' && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

void verify_file(const std::string& directory, const Value& entry, const std::string& where) {
  const std::string& name = field(entry, "name", where, &Value::is_string).as_string();
  if (!is_plain_name(name)) fail(where, ": '", name, "' is no file name");
  const std::string path = directory + "/" + name;
  const MappedFile file(path);
  const auto bytes = static_cast<int64_t>(file.bytes().size());
  const int64_t wanted = field(entry, "bytes", where, &Value::is_int).as_int();
  if (bytes != wanted) fail("'", path, "' has ", bytes, " bytes, its manifest says ", wanted);
  const std::string& checksum = field(entry, "xxh3", where, &Value::is_string).as_string();
  if (checksum_of(file.bytes()) != checksum)
    fail("'", path, "' is damaged: its checksum is not the manifest's");
}

// The manifest goes first: what is half removed is not valid, and says so quickly.
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
  for (fs::recursive_directory_iterator it(directory_, error), end; !error && it != end; it.increment(error))
    if (it->is_regular_file(error) && !error) total += it->file_size(error);
  return total;
}

void CheckpointStore::prepare() {
  make_directories(directory_);
  remove_stale_temporaries(directory_);
  for (const std::string& name : entries(directory_)) {
    const size_t writing = name.find(kWriting);
    if (writing == std::string::npos || !step_of(name.substr(0, writing))) continue;
    const std::string path = directory_ + "/" + name, target = directory_ + "/" + name.substr(0, writing);
    // On file systems without an exchange of names a killed writer may leave the old one aside.
    if (name.ends_with(".old") && !file_exists(target))
      move_directory(path, target);
    else
      remove_all(path);
  }
}

uint64_t CheckpointStore::save(int64_t step, const std::vector<CheckpointFile>& files, const Value& state) {
  make_directories(directory_);
  const std::string fresh = text(directory_of(step), kWriting, ::getpid());
  remove_all(fresh);
  try {
    make_directories(fresh);
    uint64_t total = 0;
    Value::Array listed;
    for (const CheckpointFile& file : files) {
      const std::string path = fresh + "/" + file.name;
      Value entry;
      entry.set("name", file.name);
      entry.set("xxh3", save_tensors(path, file.tensors, file.metadata));
      const auto bytes = static_cast<int64_t>(fs::file_size(path));
      entry.set("bytes", bytes);
      total += static_cast<uint64_t>(bytes);
      listed.push_back(std::move(entry));
    }
    write_text_atomic(fresh + "/" + kManifest, manifest_of(step, listed, state));
    move_directory(fresh, directory_of(step));
    point_latest(step);
    remove_all(fresh);  // what was replaced, if anything
    return total;
  } catch (...) {
    try {
      remove_all(fresh);
    } catch (const Error&) {  // the first error is the one to tell; prepare() removes it next time
    }
    throw;
  }
}

void CheckpointStore::point_latest(int64_t step) const {
  replace_symlink(name_of(step), directory_ + "/" + kLatest);
}

std::vector<int64_t> CheckpointStore::steps() const {
  std::vector<int64_t> found;
  for (const std::string& name : entries(directory_))
    if (const auto step = step_of(name)) found.push_back(*step);
  std::sort(found.begin(), found.end());
  return found;
}

std::optional<StoredCheckpoint> CheckpointStore::newest(std::vector<std::string>& notes) const {
  const std::vector<int64_t> found = steps();
  for (auto step = found.rbegin(); step != found.rend(); ++step) {
    try {
      return read_checkpoint(directory_of(*step));
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
    // What claims to be newer was found damaged when the run was continued.
    if (step > newest_step) remove_checkpoint(directory_of(step));
  }
  const auto count = static_cast<int64_t>(older.size());
  for (int64_t i = 0; i < count - (keep_last - 1); ++i)
    if (const int64_t step = older[static_cast<size_t>(i)]; step != best_step)
      remove_checkpoint(directory_of(step));
}

StoredCheckpoint read_checkpoint(const std::string& directory) {
  const std::string where = directory + "/" + kManifest;
  if (!file_exists(where)) fail("'", directory, "' has no manifest.json: its writing was never finished");
  const Value manifest = parse_json_value(read_text(where), "'" + where + "'");
  const int64_t format = field(manifest, "format", where, &Value::is_int).as_int();
  if (format != kFormat) fail("'", where, "': format ", format, ", this program reads ", kFormat);
  StoredCheckpoint stored{.directory = directory,
                          .step = field(manifest, "step", where, &Value::is_int).as_int(),
                          .state = field(manifest, "state", where, &Value::is_table),
                          .files = {}};
  for (const Value& entry : field(manifest, "files", where, &Value::is_array).as_array()) {
    verify_file(directory, entry, where);
    stored.files.push_back(entry.find("name")->as_string());
  }
  return stored;
}

}  // namespace tessera::train
