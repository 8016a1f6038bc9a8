// ImageFolder: one folder per class. The root contains the class folders, or train/ and optionally a held-out
// val/, validation/, valid/ or test/ with class folders, also by other usual names (source_kinds.h). Images
// directly in that root, without any folder, have no labels. Run directories inside these folders are
// skipped.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "data/base/class_names.h"
#include "data/base/image_files.h"
#include "data/base/source_files.h"
#include "data/base/source_kinds.h"
#include "io/files/file.h"
#include "text/unicode.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 64;     // folders below a class
constexpr int kMostOpened = 16;  // files without a suffix, to find whether a folder has images

// The folders of a class that were already listed: a link to one of them is skipped.
using Seen = std::set<std::pair<dev_t, ino_t>>;

// Returns the sorted names of a folder's entries that pass the filter, except hidden ones, up to an error.
template <class Wanted>
std::vector<std::string> list(const fs::path& folder, const Wanted& wanted, std::error_code& error) {
  std::vector<std::string> names;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!is_hidden(name) && wanted(*entry)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Returns the same names. Throws if the folder cannot be listed.
template <class Wanted>
std::vector<std::string> list(const fs::path& folder, const Wanted& wanted) {
  std::error_code error;
  std::vector<std::string> names = list(folder, wanted, error);
  if (error) fail(folder.string(), " cannot be listed: ", error.message());
  return names;
}

// True for the directory of a run, or a folder that contains only such folders and tables of sweeps.
bool is_run(const fs::path& folder, int depth = 3) {
  if (is_run_folder(folder.string())) return true;
  std::error_code error;
  bool any = false;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename() == "results.csv") continue;
    std::error_code ignored;
    if (depth == 0 || !entry->is_directory(ignored) || !is_run(entry->path(), depth - 1)) return false;
    any = true;
  }
  return any;
}

bool is_folder(const fs::directory_entry& entry) {
  std::error_code error;
  return entry.is_directory(error) && !is_run(entry.path());
}

// Adds a folder to those seen. Returns whether it is new.
bool is_new(const fs::path& folder, Seen& seen) {
  struct stat place {};
  return ::stat(folder.c_str(), &place) != 0 || seen.emplace(place.st_dev, place.st_ino).second;
}

// Adds the images below `folder`, as paths relative to the class root, sorted within each folder.
void add_images(const fs::path& folder, const std::string& prefix, int depth, Seen& seen,
                std::vector<std::string>& out, LeftOut& left_out) {
  if (!is_new(folder, seen)) return;
  if (depth > kDeepest) fail(folder.string(), " is more than ", kDeepest, " folders below its class");
  for (const std::string& name :
       list(folder, [](const fs::directory_entry& entry) { return !is_folder(entry); }))
    if (std::error_code error; fs::is_directory(folder / name, error))
      left_out.add_run();
    else if (is_image_file((folder / name).string()))
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
  std::string train = {};  // the split folder for training
};

bool holds_images(const fs::path& folder) {
  return !list(folder, [](const fs::directory_entry& entry) {
            return !is_folder(entry) && is_image_file(entry.path().string());
          }).empty();
}

// True if a folder or one below it holds an image, by its suffix; only some files without suffix are opened. A folder that
// cannot be listed holds none.
bool holds_images_below(const fs::path& folder, Seen& seen, int depth = 0) {
  if (depth > kDeepest || !is_new(folder, seen)) return false;
  std::vector<fs::path> folders;
  int opened = 0;
  std::error_code error, ignored;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    if (is_hidden(path.filename().string())) continue;
    if (entry->is_directory(ignored))
      folders.push_back(path);
    else if (has_picture_extension(path.string()) ||
             (path.extension().empty() && opened++ < kMostOpened && is_image_file(path.string())))
      return true;
  }
  return std::ranges::any_of(folders, [&](const fs::path& inner) {
    return !is_run(inner) && holds_images_below(inner, seen, depth + 1);
  });
}

bool holds_images_below(const fs::path& folder) {
  Seen seen;
  return holds_images_below(folder, seen);
}

// Returns the only folder in a folder, or the only one with images next to folders of other files (meta/,
// annotations/); else "". An empty folder may be a class.
std::string only_folder(const std::string& path) {
  const std::vector<std::string> folders = list(path, is_folder);
  if (folders.empty() || holds_images(path)) return "";
  std::vector<std::string> found;
  std::error_code error;
  for (size_t i = 0; i < folders.size() && found.size() < 2; ++i)
    if (const fs::path folder = fs::path(path) / folders[i];
        folders.size() == 1 || fs::is_empty(folder, error) || holds_images_below(folder))
      found.push_back(folders[i]);
  return found.size() == 1 ? (fs::path(path) / found[0]).string() : "";
}

// True if a folder's content looks like class folders: several folders and no image.
bool holds_classes(const std::string& path) {
  return list(path, is_folder).size() > 1 && !holds_images(path);
}

// Returns the folder of a split's classes, which archives may put into one more folder; "" for "".
std::string classes_folder(const std::string& split) {
  const std::string inner = split.empty() ? "" : only_folder(split);
  if (inner.empty() || holds_images(inner) || list(inner, is_folder).empty()) return split;
  const std::string name = fs::path(inner).filename().string();
  const bool repeats = split_of_name(name) || name == fs::path(split).filename().string();
  return repeats || holds_classes(inner) ? inner : split;
}

// The folders of a set's splits; "" for a missing one.
struct SplitFolders {
  std::string train, held_out;
};

// Returns the split folders of a set: train/ and val/ by any of their usual names. Folders by other names than
// train, val, validation, valid and test are splits only if all folders are, or if both hold the same folders.
SplitFolders split_folders(const std::string& path) {
  const std::vector<std::string> folders = list(path, is_folder);
  const auto whole = [&](const std::string& name) {
    return name.empty() ? "" : (fs::path(path) / name).string();
  };
  const auto inside = [&](const std::string& name) {
    return name.empty() ? std::vector<std::string>() : list(classes_folder(whole(name)), is_folder);
  };
  SplitFolders usual;
  for (const char* name : {"test", "valid", "validation", "val"})
    for (const std::string& folder : folders)
      if (lower(folder) == name) usual.held_out = folder;
  for (const std::string& folder : folders)
    if (lower(folder) == "train") usual.train = folder;
  const bool all =
      std::ranges::all_of(folders, [](const std::string& name) { return split_of_name(name).has_value(); });
  // A class of trains among other classes.
  if (!all && usual.held_out.empty() && inside(usual.train).empty()) usual.train = "";
  const auto word = [&](Split split) { return split_folder(folders, split, path); };
  SplitFolders named{usual.train.empty() ? word(Split::train) : usual.train,
                     usual.held_out.empty() ? word(Split::validation) : usual.held_out};
  if (!all && (usual.train.empty() || usual.held_out.empty())) {
    const auto theirs = inside(named.held_out);
    const bool shared = std::ranges::any_of(
        inside(named.train), [&](const std::string& name) { return std::ranges::count(theirs, name) > 0; });
    if (!shared) named = usual;
  }
  return {whole(named.train), whole(named.held_out)};
}

// Archives often put the whole set into one more folder.
std::string set_folder(const std::string& path, int depth = 0) {
  const std::string inner = depth < kDeepest ? only_folder(path) : "";
  if (inner.empty() || split_of_name(fs::path(inner).filename().string())) return path;
  const SplitFolders splits = split_folders(inner);
  // Images directly in the splits, without class folders, belong to another kind of set.
  const bool train = !splits.train.empty(), both = train && !splits.held_out.empty();
  if (train || !splits.held_out.empty()) {
    const bool classes = train && !list(splits.train, is_folder).empty();
    return classes && (both || !holds_images(splits.train)) ? inner : path;
  }
  if (holds_classes(inner)) return inner;
  const std::string deeper = set_folder(inner, depth + 1);
  return deeper == inner ? path : deeper;
}

// Returns a line about the folders with images next to the training folder that no split reads.
std::vector<std::string> unread_folders(const fs::path& train_folder) {
  const fs::path path = train_folder.parent_path();
  const std::string train = train_folder.filename().string();
  std::vector<std::string> unread;
  std::error_code error;
  for (const std::string& name : list(path, is_folder, error))
    if (name != train && split_of_name(name) != Split::validation && holds_images_below(path / name))
      unread.push_back(name);
  if (unread.empty()) return {};
  return {text(path.string(), ": ", counted(std::ssize(unread), "folder"), " with images next to ", train,
               " ", unread.size() == 1 ? "is" : "are", " not read: ", some_of(unread))};
}

FolderPlace find_folder(const SourceConfig& config, Split split) {
  const std::string path = set_folder(path_of(config, split));
  const bool own_path = !config.val_path.empty();
  const SplitFolders splits = split_folders(path);
  const std::string held_out = classes_folder(splits.held_out), train = classes_folder(splits.train);
  const bool has_train = !train.empty();
  // A folder that contains only val/ is a set without training images, not a set with one class "val".
  const bool only_held_out = !held_out.empty() && !has_train && class_folders(path).size() == 1;
  if (split == Split::validation && own_path)
    return {(has_train || only_held_out) && !held_out.empty() ? held_out : path, false};
  if (only_held_out)
    fail(path, " has ", held_out, " but no train folder: give ", held_out, " as the data to train on it");
  if (!has_train) return {path, !own_path};
  if (split == Split::validation && !held_out.empty()) return {held_out, false};
  return {train, !own_path && held_out.empty(), splits.train};
}

// Returns the class names of the training split, which the validation set must share.
std::vector<std::string> required_classes(const SourceConfig& config) {
  if (std::string_view(source_kind(config.path)) != "ImageFolder") return training_classes(config);
  auto classes = class_folders(find_folder(config, Split::train).root);
  order_classes(classes, config);
  return classes;
}

// Returns a remark if a name differs from a class only in capitals or its Unicode form: "é" as one character or two.
std::string other_form(const std::string& name, const std::vector<std::string>& classes) {
  const auto letters = [](const std::string& word) {
    std::u32string out;
    for (const char32_t c : tokens::to_code_points_lossy(word)) tokens::decompose(c, false, out);
    return out;
  };
  for (const std::string& theirs : classes)
    if (const bool form = letters(theirs) == letters(name); form || lower(theirs) == lower(name))
      return text(": it differs from '", theirs, "' in ", form ? "its Unicode form" : "capitals",
                  " alone, rename one of them");
  return "";
}

// True if the first files below a folder are texts, as labels of detectors are.
bool lists_alone(const std::string& folder) {
  const std::vector<std::string> files = some_files_below(folder, size_t{1} << 22);
  return !files.empty() &&
         std::ranges::all_of(files, [](const std::string& file) { return lower(file).ends_with(".txt"); });
}

// Returns a line if the class folders seem to be a level above the real ones. For a single class "images",
// `data check` has a separate line.
std::vector<std::string> level_warnings(const std::string& root, const std::vector<std::string>& classes) {
  if (classes.empty()) return {};
  const auto any_of = [&](std::initializer_list<const char*> names) {
    return std::ranges::any_of(names,
                               [&](const char* name) { return std::ranges::count(classes, name) > 0; });
  };
  if (any_of({"images"}) && any_of({"labels"}) && lists_alone(root + "/labels"))
    return {text(root, ": the folders ", some_of(classes),
                 " are read as classes, but look like images and their ",
                 "labels in a form that is not read: COCO's, Pascal VOC's, YOLO's and labelme's are")};
  if (any_of({"images", "image", "imgs", "img"}) && any_of({"masks", "mask", "labels", "annotations"}))
    return {text(
        root, ": the folders ", some_of(classes), " are read as classes, but look like images and their ",
        "annotations: give the folder that contains both, one for each split; masks must not be JPEG")};
  std::error_code error;
  if (const fs::path list = fs::path(root).parent_path() / "train_test_split.txt"; fs::exists(list, error))
    return {
        text(list.string(), " is not read: make a table of the images, their labels and a column `split`")};
  if (holds_images(fs::path(root) / classes[0])) return {};
  const auto first = list(fs::path(root) / classes[0], is_folder);
  if (first.size() < 2 || classes.size() == 1 || classes == std::vector<std::string>{"images"}) return {};
  for (const std::string& other : classes)
    if (list(fs::path(root) / other, is_folder) != first) return {};
  return {text("the classes ", some_of(classes), " of ", root, " hold the same folders ", some_of(first),
               ": if these are the classes, give one folder as the data and one as the validation data")};
}

// Returns the images directly in a folder, which have no labels, and their captions.
FileSet flat_set(const std::string& root, bool reports, CaptionUse captions) {
  FileSet flat;
  flat.shown = flat.root = root;
  Seen seen;
  LeftOut left_out;
  add_images(root, "", 0, seen, flat.paths, left_out);
  if (captions != CaptionUse::none) flat.captions = captions_next_to(root, flat.paths);
  if (!flat.captions.empty()) left_out.drop(".txt");
  if (reports) flat.left_out = left_out.text();
  flat.labels.resize(flat.paths.size(), 0);
  flat.classes = {""};
  return flat;
}

// Compares the class folders of a validation set with the classes of the training set.
void compare_classes(const std::string& root, const std::vector<std::string>& found,
                     const std::vector<std::string>& required, ProblemList& missing, ProblemList& unknown) {
  for (const std::string& name : required)
    if (!std::ranges::binary_search(found, name))
      missing.add(root, " has no image of the class '", name, "' of the training set");
  for (const std::string& name : found)
    if (std::ranges::count(required, name) == 0)
      unknown.add(root, "/", name, " is no class of the training set", other_form(name, required));
}

// True if every class folder holds the splits: cat/train, cat/val. A single folder is no set of classes (images/train).
bool splits_are_inside(const std::string& root, const std::vector<std::string>& classes) {
  return classes.size() > 1 && std::ranges::all_of(classes, [&](const std::string& name) {
           const fs::path folder = fs::path(root) / name;
           const std::vector<std::string> inside = list(folder, is_folder);
           const auto is_split = [](const std::string& word) { return split_of_name(word).has_value(); };
           const auto trains = std::ranges::count_if(
               inside, [](const std::string& word) { return split_of_name(word) == Split::train; });
           return trains == 1 && std::ranges::all_of(inside, is_split) && !holds_images(folder);
         });
}

// Adds the images of the set's classes that have a folder. If the classes hold the splits, `split` is the one to add.
void add_classes(const std::vector<std::string>& found, std::optional<Split> split, ProblemList& empty,
                 FileSet& set, LeftOut& left_out) {
  for (size_t label = 0; label < set.classes.size(); ++label) {
    const std::string& name = set.classes[label];
    if (!std::ranges::binary_search(found, name)) continue;
    const size_t before = set.paths.size();
    Seen seen;
    is_new(set.root, seen);
    const fs::path folder = fs::path(set.root) / name;
    const std::string part = split ? split_folder(list(folder, is_folder), *split, folder.string()) : "";
    if (!split || !part.empty())
      add_images(folder / part, name + (split ? "/" + part : "") + "/", 0, seen, set.paths, left_out);
    set.labels.resize(set.paths.size(), static_cast<int64_t>(label));
    if (set.paths.size() == before) empty.add(set.root, "/", name, " is an empty class: no image in it");
  }
}

// Counts the runs and images next to the class folders.
void count_strays(const std::string& root, LeftOut& left_out) {
  for (const std::string& name :
       list(root, [](const fs::directory_entry& entry) { return !is_folder(entry); }))
    if (std::error_code error; fs::is_directory(fs::path(root) / name, error))
      left_out.add_run();
    else if (is_image_file((fs::path(root) / name).string()))
      left_out.add_stray_image();
}

// True if the only folder of held-out data is no class, but the images of a set in one more folder: val/images.
bool is_unsorted(const FolderPlace& place, const SourceConfig& config) {
  const std::vector<std::string> found = list(place.root, is_folder);
  if (found.size() != 1) return found.empty();
  const std::string name = lower(found[0]);
  const bool usual = name == "images" || name == lower(fs::path(place.root).filename().string());
  return usual && !place.by_share && !config.path.empty() &&
         std::ranges::count(required_classes(config), found[0]) == 0;
}

// Returns lines about the data next to the class folders of the training split that are not read.
std::vector<std::string> unread_warnings(const SourceConfig& config, const FolderPlace& place, Split split) {
  if (split != Split::train) return {};
  std::vector<std::string> lines =
      place.train.empty() ? std::vector<std::string>() : unread_folders(place.train);
  for (const std::string& folder : std::set<std::string>{path_of(config, Split::train), place.root})
    std::ranges::move(unread_tables(folder), std::back_inserter(lines));
  const fs::path above = fs::path(place.root).parent_path();
  if (place.by_share)
    std::ranges::move(unread_lists(above.empty() ? "." : above.string(), place.root),
                      std::back_inserter(lines));
  return lines;
}

// Returns the file that names classes whose folders are numbers: data.class_names, or one of a usual name in the set.
std::string names_file(const SourceConfig& config, const std::string& root) {
  if (!config.class_names.empty()) return config.class_names;
  const std::string& path = config.path.empty() ? config.val_path : config.path;
  for (const std::string& folder : {set_folder(path), path, root})
    for (const char* name : {"classes.txt", "class_names.txt", "labels.txt", "imagenet_class_index.json",
                             "class_index.json", "classes.json", "cat_to_name.json"})
      if (const fs::path file = fs::path(folder) / name; file_exists(file.string())) return file.string();
  return "";
}

// Returns the names of folders that are the numbers of a list's classes, from 0, or from 1 if the last one has a folder.
std::vector<std::string> names_of_numbers(const std::string& file, const std::vector<std::string>& folders) {
  const std::vector<std::string> names = read_class_names(file);
  std::vector<int64_t> numbers;
  for (const std::string& folder : folders) numbers.push_back(parse_int(folder).value_or(-1));
  const auto [least, most] = std::ranges::minmax(numbers);
  const auto count = std::ssize(names);
  const bool whole = lower(file).ends_with(".json") || most + 1 == count || most == count;
  if (least < 0 || most > count || !whole || (least > 0 && most < count) || (least == 0 && most == count))
    fail(file, " has ", counted(count, "name"), ", but the folders are ", least, " to ", most,
         ": they must count from 0 or 1 to the last name");
  std::vector<std::string> chosen;
  for (const int64_t number : numbers) chosen.push_back(names[static_cast<size_t>(number - (most == count))]);
  return chosen;
}

// Names the classes of folders 0, 1, … by a list. Returns a line if a list is not read.
std::vector<std::string> name_numbers(const SourceConfig& config, const std::string& root, FileSet& set) {
  const bool numbers =
      std::ranges::all_of(set.classes, [](const auto& name) { return parse_int(name).has_value(); });
  if (!numbers && config.class_names.empty()) return {};
  const std::string file = names_file(config, root);
  if (file.empty()) return {};
  if (!numbers) return {text(file, " is not read: the folders of ", root, " name the classes")};
  try {
    set.classes = names_of_numbers(file, set.classes);
  } catch (const Error& error) {
    if (!config.class_names.empty()) throw;
    return {text("the folders' numbers are the names of the classes: ", error.what())};
  }
  return {};
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
  FolderPlace place = find_folder(config, split);
  const bool reports = split == Split::train || !place.by_share;  // once per folder
  if (split == Split::train ? list(place.root, is_folder).empty() : is_unsorted(place, config)) {
    if (FileSet flat = flat_set(place.root, reports, config.captions); !flat.paths.empty()) {
      flat.warnings = unread_warnings(config, place, split);
      if (place.by_share) flat.keep(select_split(config, split, flat.paths, flat.labels));
      return without_labels(std::make_unique<FolderSource>(std::move(flat)));
    }
    refuse_foreign_files(place.root);
  }
  const auto found = class_folders(place.root);
  const bool inside = place.by_share && splits_are_inside(place.root, found);
  place.by_share = place.by_share && !inside;
  ProblemList problems, warnings;
  LeftOut left_out;
  FileSet set;
  set.shown = set.root = place.root, set.classes = found;
  order_classes(set.classes, config);
  const bool held_out = split == Split::validation && !place.by_share && !config.path.empty();
  if (held_out) {
    if (const auto required = required_classes(config); !required.empty()) set.classes = required;
    compare_classes(place.root, found, set.classes, warnings, config.reads_classes ? problems : warnings);
  }
  add_classes(found, inside ? std::optional(split) : std::nullopt,
              held_out || !config.reads_classes ? warnings : problems, set, left_out);
  if (set.paths.empty()) refuse_foreign_files(place.root);
  count_strays(place.root, left_out);
  if (reports) set.left_out = left_out.text();
  if (place.by_share) set.keep(select_split(config, split, set.paths, set.labels));
  set.problems = problems.lines(), set.warnings = warnings.lines();
  for (auto& lines : {name_numbers(config, place.root, set),
                      reports && !inside ? level_warnings(place.root, found) : std::vector<std::string>(),
                      unread_warnings(config, place, split)})
    set.warnings.insert(set.warnings.end(), lines.begin(), lines.end());
  return std::make_unique<FolderSource>(std::move(set));
}

}  // namespace tessera::data
