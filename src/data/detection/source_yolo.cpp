// Images with boxes or polygons as YOLO's programs read them: images/…/NAME.jpg, labels/…/NAME.txt, or both in the folder of each
// split, and the classes in data.yaml or classes.txt. Without a list, the numbers in the label files are the classes.
//
// A line of a label file is `class x y width height`: the box's centre and size as fractions of the image's
// width and height; or `class x1 y1 x2 y2 x3 y3 …`, a polygon with the box around it. If data.yaml has `kpt_shape`, key
// points follow the box and are ignored. An image without a label file has no objects.
#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "data/base/class_names.h"
#include "data/base/image_files.h"
#include "data/base/source_kinds.h"
#include "data/base/source_labels.h"
#include "data/base/table_columns.h"
#include "data/detection/label_parsers.h"
#include "data/detection/yolo_labels.h"
#include "data/sources/annotated_source.h"
#include "data/sources/coco_file.h"
#include "io/files/file.h"
#include "io/files/path.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

bool folder_there(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool file_there(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool is_yaml(const std::string& path) { return path.ends_with(".yaml") || path.ends_with(".yml"); }

// True if a line of a text begins with the key.
bool has_key(const std::string& content, const std::string& key) {
  return content.starts_with(key) || content.find("\n" + key) != std::string::npos;
}

// True if a file describes images with objects; false if it cannot be read.
bool is_data_yaml(const std::string& file) {
  try {
    const std::string content = read_text(file, kMostYamlBytes);
    return has_key(content, "names:") && has_key(content, "train:");
  } catch (const Error&) {
    return false;
  }
}

// Returns data.yaml of a folder, or its only file of that kind by another name (coco128.yaml); the path itself if it is
// such a file; "" without one.
std::string yaml_of(const std::string& path) {
  if (file_there(path)) return is_yaml(path) ? path : "";
  for (const char* name : {"data.yaml", "data.yml"})
    if (const fs::path file = fs::path(path) / name; file_there(file)) return file.string();
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    const std::string file = entry->path().string();
    const bool hidden = is_hidden(entry->path().filename().string());
    if (is_yaml(file) && !hidden && file_there(file) && is_data_yaml(file)) found.push_back(file);
  }
  return found.size() == 1 ? found[0] : "";
}

std::string class_list_of(const std::string& path) {
  for (const char* name : {"classes.txt", "labels/classes.txt", "obj.names"})
    if (const fs::path file = fs::path(path) / name; file_there(file)) return file.string();
  return "";
}

// True if a folder or its subfolders (two levels) contain a label file.
bool holds_labels(const fs::path& folder, int depth = 0) {
  std::error_code error;
  std::vector<fs::path> folders;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    if (is_label_file(path)) return true;
    if (folder_there(path)) folders.push_back(path);
  }
  return depth < 2 &&
         std::ranges::any_of(folders, [&](const fs::path& inner) { return holds_labels(inner, depth + 1); });
}

// True if one of the first files below a folder begins with a label. Sets without a list of classes need one.
bool holds_written_labels(const fs::path& folder) {
  constexpr size_t kFiles = 1000;  // most label files of a set may be empty
  std::vector<std::string> files = some_files_below(folder.string(), size_t{1} << 22);
  std::erase_if(files, [](const std::string& file) { return !is_label_file(file); });
  files.resize(std::min(files.size(), kFiles));
  return std::ranges::any_of(files, begins_as_labels);
}

// The images of one split: folders, or lists of paths.
struct YoloSplit {
  std::string root, images;  // the first place
  std::vector<std::string> others = {};
  NumberedClasses classes = {};
  bool by_share = false, keypoints = false;
};

// Returns the forms of a path: itself, without "../", and if it is absolute, its ends from the longest.
std::vector<std::string_view> path_forms(std::string_view path) {
  std::vector<std::string_view> forms = {path};
  if (path.starts_with("../")) forms.push_back(path.substr(3));
  for (size_t slash = path.find('/'); is_absolute_path(path) && slash != std::string_view::npos;
       slash = path.find('/', slash + 1))
    if (const std::string_view end = path.substr(slash + 1); !end.empty() && !end.starts_with('/'))
      forms.push_back(end);
  return forms;
}

// Returns the path of a split in data.yaml. It and `path` are often from another machine, and "../train/images"
// is often relative to the file's own folder: the first path that exists counts.
std::string place_of(const std::string& yaml, const YoloYaml& keys, const YamlText& split,
                     const std::string& root) {
  const fs::path own = fs::path(yaml).parent_path();
  std::vector<fs::path> bases = {own / keys.path.value, own};
  if (!root.empty()) bases = {root};
  const std::string name = portable_path(split.value);
  for (const std::string_view from : path_forms(name))
    for (const fs::path& base : bases)
      if (const fs::path path = base / from; folder_there(path) || file_there(path))
        return path.lexically_normal().string();
  fail(yaml, " line ", split.line, ": '", printable(split.value), "' is neither a folder nor a file in ",
       (root.empty() ? own : fs::path(root)).string(), "; data.image_root names another folder");
}

YoloSplit split_by_yaml(const SourceConfig& config, Split split, const std::string& yaml) {
  const YoloYaml keys = parse_yolo_yaml(read_list_text(yaml, kMostYamlBytes), yaml);
  const std::vector<YamlText>& held_out = keys.val.empty() ? keys.test : keys.val;
  const bool held = split == Split::validation && !held_out.empty();
  const std::vector<YamlText>& chosen = held ? held_out : keys.train;
  if (chosen.empty()) fail(yaml, " has no '", held ? "val" : "train", "', the folder of images");
  const std::string root =
      config.image_root.empty() ? fs::path(yaml).parent_path().string() : config.image_root;
  std::vector<std::string> places;
  for (const YamlText& one : chosen) places.push_back(place_of(yaml, keys, one, config.image_root));
  return {.root = root,
          .images = places[0],
          .others = {places.begin() + 1, places.end()},
          .classes = keys.classes,
          .by_share = held_out.empty() && config.val_path.empty(),
          .keypoints = keys.keypoints};
}

// Returns the folder of a split with images/ and labels/ in it, "" without one.
std::string split_around(const std::string& path, Split split) {
  std::vector<std::string> folders;
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error))
    if (folder_there(entry->path() / "images") && split_of_name(entry->path().filename().string()) == split &&
        holds_labels(entry->path() / "labels"))
      folders.push_back(entry->path().filename().string());
  return split_folder(folders, split, path);
}

// The folders of splits with images/ and labels/ in them.
struct SplitsAround {
  std::string train, held_out;
};

SplitsAround splits_around(const std::string& path) {
  return {split_around(path, Split::train), split_around(path, Split::validation)};
}

// Returns the list of classes of a set, also in the folder of its training images; "" without one.
std::string class_list_around(const std::string& path) {
  const std::string own = class_list_of(path);
  if (!own.empty()) return own;
  const std::string train = split_around(path, Split::train);
  return train.empty() ? "" : class_list_of((fs::path(path) / train).string());
}

bool has_splits_around(const std::string& path) {
  const SplitsAround found = splits_around(path);
  const std::string own = found.train.empty() ? found.held_out : found.train;
  return !own.empty() &&
         (!class_list_around(path).empty() || holds_written_labels(fs::path(path) / own / "labels"));
}

// True for Darknet's form, as CVAT writes it: obj.names and train.txt, the paths of the images.
bool has_darknet_lists(const fs::path& folder) {
  return file_there(folder / "obj.names") && file_there(folder / "train.txt");
}

YoloSplit split_by_lists(const SourceConfig& config, Split split, const fs::path& folder) {
  std::string held_out;
  for (const char* name : {"test.txt", "val.txt", "valid.txt"})
    if (file_there(folder / name)) held_out = (folder / name).string();
  const bool held = split == Split::validation && !held_out.empty();
  return {.root = folder.string(),
          .images = held ? held_out : (folder / "train.txt").string(),
          .by_share = held_out.empty() && config.val_path.empty()};
}

YoloSplit split_by_folders(const SourceConfig& config, Split split, const std::string& path) {
  const fs::path images = fs::path(path) / "images";
  std::vector<std::string> folders;
  for (const auto& entry : fs::directory_iterator(images))
    if (entry.is_directory()) folders.push_back(entry.path().filename().string());
  const std::string train = split_folder(folders, Split::train, images.string()),
                    held_out = split_folder(folders, Split::validation, images.string());
  const std::string own = split == Split::validation && !held_out.empty() ? held_out : train;
  return {.root = path,
          .images = (own.empty() ? images : images / own).string(),
          .by_share = (held_out.empty() || train.empty()) && config.val_path.empty()};
}

YoloSplit split_by_outer_folders(const SourceConfig& config, Split split, const std::string& path) {
  const SplitsAround found = splits_around(path);
  const bool held = found.train.empty() || (split == Split::validation && !found.held_out.empty());
  return {.root = path,
          .images = (fs::path(path) / (held ? found.held_out : found.train) / "images").string(),
          .by_share = (found.held_out.empty() || found.train.empty()) && config.val_path.empty()};
}

// Adds the paths of the images of a folder, or those in a list, relative to its folder.
void add_image_paths(const std::string& place, std::vector<std::string>& paths, LeftOut& left_out) {
  if (folder_there(place)) {
    for (const std::string& file : files_below(place))
      if (is_image_file(file))
        paths.push_back(file);
      else if (!file.ends_with(".txt"))  // some sets have the labels next to the images
        left_out.add(fs::path(file).filename().string());
    return;
  }
  const std::vector<std::string> lines = tessera::split(read_list_text(place, uint64_t{1} << 30), '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string line = portable_path(std::string(trim(lines[i])));
    if (line.empty()) continue;
    if (!has_picture_extension(line))
      fail(place, " line ", i + 1, ": '", printable(line), "' is no path of an image");
    const fs::path folder = fs::path(place).parent_path();
    if (line.starts_with("data/") && !file_there(folder / line)) line = line.substr(5);  // as CVAT writes it
    paths.push_back((folder / with_suffix(folder.string(), line)).lexically_normal().string());
  }
}

// Returns the label files of a folder of images that belong to none of them.
std::vector<std::string> labels_without_image(const YoloSplit& split, const std::vector<std::string>& paths) {
  const std::string folder =
      fs::path(labels_of((fs::path(split.images) / "x.jpg").string())).parent_path().string();
  if (!folder_there(split.images) || !folder_there(folder) || fs::path(folder) == fs::path(split.images))
    return {};
  std::set<std::string> used;
  for (const std::string& image : paths) used.insert(labels_of(image));
  std::vector<std::string> unused;
  for (const std::string& file : files_below(folder))
    if (file.ends_with(".txt") && !file.ends_with("classes.txt") && !used.contains(file))
      unused.push_back(file);
  return unused;
}

// Returns the classes of a list, numbered from 0.
NumberedClasses classes_in_list(const std::string& list) {
  NumberedClasses classes{.names = read_class_names(list), .numbers = {}};
  classes.numbers.resize(classes.names.size());
  std::iota(classes.numbers.begin(), classes.numbers.end(), 0);
  return classes;
}

// Returns the classes of a set without data.yaml: those of a given list, of its own or of the training data's. Without a list
// they are the numbers in the label files, and a warning is added.
NumberedClasses classes_of(const SourceConfig& config, const std::string& path,
                           std::vector<std::string>& warnings) {
  std::string list = config.class_names;
  for (const std::string& folder : {path, config.path})
    if (list.empty()) list = class_list_around(folder);
  if (!list.empty()) return classes_in_list(list);
  if (const std::string yaml = yaml_of(config.path); !yaml.empty())
    return parse_yolo_yaml(read_list_text(yaml, kMostYamlBytes), yaml).classes;
  NumberedClasses classes = classes_of_labels(folder_there(config.path) ? config.path : path);
  warnings.push_back(text(path, ": no list of classes, so they are called by their numbers ",
                          some_of(classes.names), ": put their names into ",
                          (fs::path(path) / "classes.txt").string(), ", one a line"));
  return classes;
}

// Returns a line for each kind of file that has no object or no image.
std::vector<std::string> file_warnings(const YoloSplit& split, const std::vector<std::string>& paths,
                                       const std::vector<std::string>& missing, const LeftOut& left_out) {
  std::vector<std::string> lines;
  if (!left_out.empty()) lines.push_back(text(split.images, ": left out ", left_out.text()));
  if (!missing.empty())
    lines.push_back(text(split.images, ": ", counted(std::ssize(missing), "image"), " without a label file (",
                         some_of(missing, 2), "), taken as without objects"));
  if (const auto unused = labels_without_image(split, paths); !unused.empty())
    lines.push_back(text(split.images, ": ", counted(std::ssize(unused), "label file"), " without an image (",
                         some_of(unused, 2), ")"));
  return lines;
}

}  // namespace

YoloYaml parse_yolo_yaml(const std::string& content, const std::string& where) {
  const YamlFile file(content, where);
  return {file.scalar("path"), file.texts("train"),   file.texts("val"),
          file.texts("test"),  classes_of_yaml(file), file.has("kpt_shape")};
}

bool is_yolo_path(const std::string& path) {
  if (const std::string yaml = yaml_of(path); !yaml.empty()) {
    if (yaml == path) return true;
    const std::string content = read_text(yaml);
    return has_key(content, "names:") || has_key(content, "nc:");
  }
  if (has_darknet_lists(path) || has_splits_around(path)) return true;
  const fs::path labels = fs::path(path) / "labels";
  return folder_there(fs::path(path) / "images") &&
         (class_list_of(path).empty() ? holds_written_labels(labels) : holds_labels(labels));
}

std::unique_ptr<Source> open_yolo(const SourceConfig& config, Split split) {
  const std::string& path = path_of(config, split);
  const std::string yaml = yaml_of(path);
  YoloSplit own = !yaml.empty()             ? split_by_yaml(config, split, yaml)
                  : has_darknet_lists(path) ? split_by_lists(config, split, path)
                  : has_splits_around(path) ? split_by_outer_folders(config, split, path)
                                            : split_by_folders(config, split, path);
  std::vector<std::string> warnings;
  if (yaml.empty()) own.classes = classes_of(config, path, warnings);
  CocoFile file;
  for (size_t i = 0; i < own.classes.names.size(); ++i)
    file.categories.push_back({own.classes.numbers[i], std::move(own.classes.names[i])});
  LeftOut left_out;
  std::vector<std::string> paths;
  add_image_paths(own.images, paths, left_out);
  for (const std::string& place : own.others) add_image_paths(place, paths, left_out);
  for (const std::string& image : paths) {
    const std::string name = fs::path(image).lexically_proximate(own.root).string();
    file.images.push_back({.number = std::ssize(file.images) + 1, .file = name});
  }
  measure_images(file.images, own.root);
  const std::vector<std::string> missing = add_labels(file, paths, own.keypoints);
  drop_outside(file);
  ObjectPlace place{.kind = "YOLO", .file = own.images, .images = own.root, .by_share = own.by_share};
  place.warnings = std::move(warnings);
  for (std::string& line : file_warnings(own, paths, missing, left_out))
    place.warnings.push_back(std::move(line));
  return make_object_source(std::move(file), std::move(place), config, split);
}

}  // namespace tessera::data
