#include "cli/base/common.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <initializer_list>
#include <unordered_map>

#include "core/error.h"
#include "core/text.h"
#include "data/base/source.h"
#include "io/files/file.h"
#include "io/files/path.h"
#include "parallel/launcher.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

// One text for all spellings of a path and all hard links of a file, of files that do not exist yet too.
std::string place_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) return text("file ", status.st_dev, " ", status.st_ino);
  if (errno == ENAMETOOLONG) fail_usage("'", printable(path), "': the name is too long for a file");
  std::error_code error;
  const fs::path whole = fs::absolute(behind_links(path), error);
  if (error) return fs::path(path).lexically_normal().string();
  const fs::path place = fs::weakly_canonical(whole, error);
  return (error ? whole.lexically_normal() : place).string();
}

// Returns the origin of an output for error messages.
std::string origin_of(const OutputPlace& output) {
  return output.input.empty() ? output.option : "'" + output.input + "'";
}

[[noreturn]] void refuse_shared(const OutputPlace& first, const OutputPlace& second) {
  const bool images = !first.input.empty() && !second.input.empty();
  fail_usage(origin_of(first), " and ", origin_of(second), " would both be written to '", second.path, "': ",
             images ? "give images whose names differ before the ending, or one call for each"
                    : "choose another " + second.option);
}

std::string refusal(const OutputPlace& output, const std::string& input) {
  return text("the output '", output.path, "' of ", origin_of(output), " would replace the input '", input,
              "': choose another ", output.option);
}

// True if an output may replace the file `name` of an input folder: it is a page or table, or belongs neither
// to a set nor to a run or model.
bool may_replace(const fs::path& folder, const fs::path& name) {
  const auto holds = [&](const char* file) {
    std::error_code ignored;
    return fs::exists(folder / file, ignored);
  };
  const auto ends_in = [ending = lower(name.extension().string())](std::initializer_list<const char*> all) {
    return std::ranges::find(all, ending) != all.end();
  };
  const bool run = holds("recipe.toml");
  if (ends_in({".html", ".svg"})) return !(run && name == "report.html");
  if (ends_in({".csv", ".npy", ".npz"})) return true;
  const bool model = run || holds("config.json") || holds("model_index.json") ||
                     holds("adapter_config.json") || holds("manifest.json");
  if (ends_in({".json"})) return run && *name.begin() != "checkpoints" && !holds("manifest.json");
  return model && ends_in({".png", ".jpg", ".jpeg", ".webp"});
}

// Throws a usage error if an output would replace a file of the folder.
void check_within(const std::string& input, const OutputPlace& output) {
  std::error_code error;
  const fs::path folder = fs::canonical(input, error), file = fs::canonical(output.path, error);
  if (error || !fs::is_directory(folder, error)) return;
  const fs::path name = file.lexically_relative(folder);
  if (name.empty() || *name.begin() == ".." || may_replace(folder, name)) return;
  fail_usage("the output '", output.path, "' of ", origin_of(output), " would replace a file of the input '",
             input, "': choose another ", output.option);
}

// The files that the command line names.
struct NamedFiles {
  std::vector<std::string> inputs;
  std::vector<OutputPlace> outputs;
};
NamedFiles& named_files() {
  static NamedFiles files;
  return files;
}

// Locks an output against the other processes of a launcher during the life of this one.
class OutputLock {
 public:
  explicit OutputLock(const OutputPlace& output)
      : path_((fs::path(behind_links(output.path)) / "").parent_path().string() + ".lock") {
    std::error_code error;
    if (const fs::path folder = fs::path(path_).parent_path();
        !folder.empty() && !fs::is_directory(folder, error))
      return;  // the command reports it
    lock_ = FileLock::try_lock(path_);
    if (!lock_)
      fail_usage("'", output.path, "' is written by another of the ", parallel::started_processes(),
                 " processes that were started: each must have its own ", output.option);
  }
  ~OutputLock() {
    if (lock_) ::unlink(path_.c_str());
  }
  OutputLock(const OutputLock&) = delete;

 private:
  std::string path_;
  std::unique_ptr<FileLock> lock_;
};

// Throws if the folder of a file, or the folder above a new one, takes no files: before the work instead of after it.
void check_writable(const OutputPlace& output) {
  std::error_code error;
  fs::path place = behind_links(output.path);
  if (fs::exists(place, error) && !fs::is_regular_file(place, error) && !fs::is_directory(place, error))
    return;
  if (!fs::is_directory(place, error)) place = fs::absolute(place, error).parent_path();
  while (!error && !fs::exists(place, error) && place.has_relative_path()) place = place.parent_path();
  if (fs::is_directory(place, error) && ::access(place.c_str(), W_OK) != 0)
    fail("cannot write '", output.path, "': ", std::generic_category().message(errno));
}

void lock_among_processes(const OutputPlace& output) {
  static std::deque<OutputLock> locks;
  if (output.alone && parallel::started_processes() > 1) locks.emplace_back(output);
}

// Throws a usage error if a part of the path is a file.
void check_folder(const std::string& option, const fs::path& folder) {
  std::error_code error;
  for (fs::path part = folder; !part.empty() && part != part.parent_path(); part = part.parent_path()) {
    const fs::file_status status = fs::status(part, error);
    if (fs::is_directory(status)) return;
    if (fs::exists(status))
      fail_usage(option, " '", folder.string(), "' cannot be a folder: '", part.string(),
                 "' is a file, choose another name");
  }
}

}  // namespace

void check_output_places(const std::vector<std::string>& inputs, const std::vector<OutputPlace>& outputs) {
  std::unordered_map<std::string, const std::string*> read;
  for (const std::string& input : inputs) read.try_emplace(place_of(input), &input);
  std::unordered_map<std::string, const OutputPlace*> written;
  for (const OutputPlace& output : outputs) {
    const std::string place = place_of(output.path);
    std::error_code error;
    const bool folder = fs::is_directory(output.path, error);
    if (const auto lost = read.find(place); lost != read.end() && !folder)
      fail_usage(refusal(output, *lost->second));
    const auto [other, first] = written.try_emplace(place, &output);
    if (first) continue;
    const bool again = !output.input.empty() && !other->second->input.empty() &&
                       place_of(output.input) == place_of(other->second->input);
    if (!again) refuse_shared(*other->second, output);
  }
}

void guard_output(const OutputPlace& output) {
  NamedFiles& named = named_files();
  named.outputs.push_back(output);
  check_output_places(named.inputs, named.outputs);
  check_writable(output);
  lock_among_processes(output);
  std::error_code error;
  if (!output.replaces || !fs::is_regular_file(output.path, error)) return;
  for (const std::string& input : named.inputs) check_within(input, output);
  refuse_to_read(output.path, [output](const std::string& input) { return refusal(output, input); });
}

void guard_outputs(const std::vector<std::string>& inputs, const std::vector<OutputPlace>& outputs) {
  if (outputs.empty()) return;
  const auto add = [](const std::string& input) {
    std::error_code error;
    if (!fs::exists(input, error)) return false;
    named_files().inputs.push_back(input);
    return true;
  };
  for (const std::string& input : inputs)
    if (!add(input))  // "conversations:FILE,IMAGES"
      for (const std::string& part : split(input.substr(input.find(':') + 1), ',')) add(part);
  for (const OutputPlace& output : outputs) guard_output(output);
}

void require_apart(const std::string& output, const std::vector<std::string>& sets) {
  for (const std::string& given : sets) {
    std::error_code error;
    const bool is_path = fs::exists(given, error);
    const std::string set = is_path ? given : given.substr(given.find(':') + 1);  // "named:FOLDER"
    const fs::path folder = fs::canonical(set, error), place = fs::weakly_canonical(output, error);
    if (error || !fs::is_directory(folder, error)) continue;
    const fs::path name = place.lexically_relative(folder);
    if (!name.empty() && *name.begin() != ".." && *name.begin() != ".")
      fail_usage("the output '", output, "' of --output would be a part of the input '", set,
                 "': name a folder outside of it");
  }
}

bool names_output_file(const std::string& option, const std::string& out, int64_t images,
                       const std::vector<std::string>& endings) {
  std::error_code error;
  if (out.empty() || fs::is_directory(out, error)) return false;
  const auto ends_in = [name = lower(out)](const std::string& ending) { return name.ends_with(ending); };
  if (std::any_of(endings.begin(), endings.end(), ends_in)) {
    if (images > 1)
      fail_usage(option, " ", out, " is one file, there are ", images, " images: give a folder");
    check_folder(option, fs::path(out).parent_path());
    return true;
  }
  if (data::has_picture_extension(out))
    fail_usage(option, " '", out, "' must end in ", join(endings, ", "), ", or be a folder");
  check_folder(option, out);
  return false;
}

}  // namespace tessera::cli
