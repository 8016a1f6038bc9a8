// ImageFolder: one folder per class. The root contains the class folders, or train/ and optionally a held-out
// val/, validation/, valid/ or test/ with class folders. Images directly in that root, without any folder,
// have no labels.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "data/base/image_files.h"
#include "data/base/source_files.h"
#include "data/base/source_kinds.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 64;  // folders below a class

// The folders of a class that were already listed: a link to one of them is skipped.
using Seen = std::set<std::pair<dev_t, ino_t>>;

// Returns the sorted names of a folder's entries that pass the filter, except hidden ones.
template <class Wanted>
std::vector<std::string> list(const fs::path& folder, const Wanted& wanted) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with('.') && wanted(*entry)) names.push_back(name);
  }
  if (error) fail(folder.string(), " cannot be listed: ", error.message());
  std::sort(names.begin(), names.end());
  return names;
}

bool is_folder(const fs::directory_entry& entry) {
  std::error_code error;
  return entry.is_directory(error);
}

// Adds the images below `folder`, as paths relative to the class root, sorted within each folder.
void add_images(const fs::path& folder, const std::string& prefix, int depth, Seen& seen,
                std::vector<std::string>& out, LeftOut& left_out) {
  struct stat place {};
  if (::stat(folder.c_str(), &place) == 0 && !seen.emplace(place.st_dev, place.st_ino).second) return;
  if (depth > kDeepest) fail(folder.string(), " is more than ", kDeepest, " folders below its class");
  for (const std::string& name :
       list(folder, [](const fs::directory_entry& entry) { return !is_folder(entry); }))
    if (is_image_file((folder / name).string()))
      out.push_back(prefix + name);
    else
      left_out.add(name);
  for (const std::string& name : list(folder, is_folder))
    add_images(folder / name, prefix + name + "/", depth + 1, seen, out, left_out);
}

std::vector<std::string> class_folders(const std::string& root) {
  auto classes = list(root, is_folder);
  if (classes.empty())
    fail(root, " holds no folders; an ImageFolder has a folder for each class, with images in it");
  for (const std::string& name : classes)
    if (!is_utf8(name)) fail(root, ": the name of a class folder is not UTF-8");
  return classes;
}

// The root of a split's class folders, and whether the split is a share of it.
struct FolderPlace {
  std::string root;
  bool by_share;
};

// Returns val/, validation/, valid/ or test/ in a folder, or "".
std::string held_out_folder(const std::string& path) {
  for (const char* name : {"val", "validation", "valid", "test"})
    if (const fs::path folder = fs::path(path) / name; fs::is_directory(folder)) return folder.string();
  return "";
}

FolderPlace find_folder(const SourceConfig& config, Split split) {
  const std::string& path = path_of(config, split);
  const bool own_path = !config.val_path.empty();
  const std::string held_out = held_out_folder(path), train = (fs::path(path) / "train").string();
  const bool has_train = fs::is_directory(train);
  // A folder with only val/ in it is a set without training images, not a set with one class "val".
  const bool only_held_out = !held_out.empty() && !has_train && class_folders(path).size() == 1;
  if (split == Split::validation && own_path)
    return {(has_train || only_held_out) && !held_out.empty() ? held_out : path, false};
  if (only_held_out) fail(path, " has ", held_out, " but no train folder");
  if (!has_train) return {path, !own_path};
  if (split == Split::validation && !held_out.empty()) return {held_out, false};
  return {train, !own_path && held_out.empty()};
}

// Returns the class names of the training split, which the validation set must share.
std::vector<std::string> required_classes(const SourceConfig& config) {
  if (std::string_view(source_kind(config.path)) != "ImageFolder") return training_classes(config);
  return class_folders(find_folder(config, Split::train).root);
}

class FolderSource final : public FileSource {
 public:
  using FileSource::FileSource;
  const char* kind() const override { return "ImageFolder"; }
};

}  // namespace

bool is_folder_path(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

std::unique_ptr<Source> open_folder(const SourceConfig& config, Split split) {
  const FolderPlace place = find_folder(config, split);
  if (list(place.root, is_folder).empty()) {
    FileSet flat;
    flat.shown = flat.root = place.root;
    Seen seen;
    LeftOut left_out;
    add_images(place.root, "", 0, seen, flat.paths, left_out);
    if (split == Split::train || !place.by_share) flat.left_out = left_out.text();
    flat.labels.resize(flat.paths.size(), 0);
    flat.classes = {""};
    const bool found = !flat.paths.empty();
    if (found && place.by_share) flat.keep(select_split(config, split, flat.paths, flat.labels));
    if (found) return without_labels(std::make_unique<FolderSource>(std::move(flat)));
  }
  const auto found = class_folders(place.root);
  ProblemList problems;
  LeftOut left_out;
  FileSet set;
  set.shown = set.root = place.root;
  set.classes = found;
  if (split == Split::validation && !place.by_share && !config.path.empty()) {
    if (const auto required = required_classes(config); !required.empty()) set.classes = required;
    const auto has = [](const std::vector<std::string>& names, const std::string& name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    for (const std::string& name : set.classes)
      if (!has(found, name))
        problems.add(place.root, " has no folder for the class '", name, "' of the training set");
    for (const std::string& name : found)
      if (!has(set.classes, name)) problems.add(place.root, "/", name, " is no class of the training set");
  }
  for (size_t label = 0; label < set.classes.size(); ++label) {
    const std::string& name = set.classes[label];
    if (!std::binary_search(found.begin(), found.end(), name)) continue;
    const size_t before = set.paths.size();
    Seen seen;
    add_images(fs::path(place.root) / name, name + "/", 0, seen, set.paths, left_out);
    set.labels.resize(set.paths.size(), static_cast<int64_t>(label));
    if (set.paths.size() == before) problems.add(place.root, "/", name, " is an empty class: no image in it");
  }
  for (const std::string& name :
       list(place.root, [](const fs::directory_entry& entry) { return !is_folder(entry); }))
    if (is_image_file((fs::path(place.root) / name).string())) left_out.add_stray_image();
  if (split == Split::train || !place.by_share) set.left_out = left_out.text();  // once per folder
  if (place.by_share) set.keep(select_split(config, split, set.paths, set.labels));
  set.problems = problems.lines();
  return std::make_unique<FolderSource>(std::move(set));
}

}  // namespace tessera::data
