// Hugging Face's imagefolder with objects: metadata.jsonl next to the images, or in each of the split folders. Its lines
// are {"file_name": …, "objects": {"bbox": [[left, top, width, height], …], "category": […]}}. `objects` may be a list of
// {"bbox": …, "category": …} too. Categories are numbers or names.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "data/base/class_names.h"
#include "data/base/source_kinds.h"
#include "data/base/source_labels.h"
#include "data/base/table_columns.h"
#include "data/sources/annotated_source.h"
#include "data/sources/coco_file.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/files/path.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr uint64_t kMostBytes = uint64_t{512} << 20;

struct NamedBox {
  std::string category;  // a name, or a number
  RunBox box = {};
};

struct ObjectLine {
  std::string where, file;
  std::vector<NamedBox> objects = {};
};

struct ObjectLines {
  std::vector<ObjectLine> lines;
  ProblemList problems;
};

const Json* member(const Json& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (const auto found = object.find(key); found != object.end()) return &*found;
  return nullptr;
}
const Json* boxes_in(const Json& objects) { return member(objects, {"bbox", "bboxes", "boxes"}); }
const Json* categories_in(const Json& objects) {
  return member(objects, {"category", "categories", "category_id", "label", "labels", "class", "class_id"});
}

RunBox box_of(const Json& value, const std::string& where) {
  std::vector<double> sides;
  for (size_t i = 0; value.is_array() && i < value.size(); ++i)
    if (value[i].is_number() && std::isfinite(value[i].get<double>()))
      sides.push_back(value[i].get<double>());
  if (sides.size() != 4 || value.size() != 4 || !(sides[2] > 0 && sides[3] > 0))
    fail(where, ": a 'bbox' is ", printable(value.dump(), 60),
         ", must be [left, top, width, height] in pixels, with an area");
  return {sides[0], sides[1], sides[2], sides[3]};
}

std::string category_of(const Json& value, const std::string& where) {
  if (const auto number = whole_number(value)) return std::to_string(*number);
  if (!value.is_string() || trim(value.get_ref<const std::string&>()).empty())
    fail(where, ": a category is ", printable(value.dump(), 40), ", must be a number or a name");
  return std::string(trim(value.get_ref<const std::string&>()));
}

// Returns the objects of an entry. Throws unless its lists of boxes and categories are of one length.
std::vector<NamedBox> objects_of(const Json& objects, const std::string& where) {
  std::vector<NamedBox> found;
  if (objects.is_null()) return found;
  if (objects.is_array()) {
    for (const Json& one : objects) {
      const Json *box = one.is_object() ? boxes_in(one) : nullptr,
                 *category = one.is_object() ? categories_in(one) : nullptr;
      if (!box || !category) fail(where, ": an object has no 'bbox', or no 'category'");
      found.push_back({category_of(*category, where), box_of(*box, where)});
    }
    return found;
  }
  const Json *boxes = objects.is_object() ? boxes_in(objects) : nullptr,
             *categories = objects.is_object() ? categories_in(objects) : nullptr;
  if (!boxes || !categories || !boxes->is_array() || !categories->is_array() ||
      boxes->size() != categories->size())
    fail(where, ": 'objects' must have the lists 'bbox' and 'category', of one length");
  for (size_t i = 0; i < boxes->size(); ++i)
    found.push_back({category_of((*categories)[i], where), box_of((*boxes)[i], where)});
  return found;
}

ObjectLine line_of(const Json& entry, const std::string& where) {
  const Json* file = entry.is_object() ? path_member(entry) : nullptr;
  if (!file || !file->is_string() || file->get_ref<const std::string&>().empty())
    fail(where, " has no text 'file_name'");
  ObjectLine line{where, portable_path(file->get<std::string>())};
  if (line.file.find('\0') != std::string::npos) fail(where, ": 'file_name' holds a zero byte");
  if (const auto objects = entry.find("objects"); objects != entry.end())
    line.objects = objects_of(*objects, where);
  return line;
}

ObjectLines read_lines(const std::string& path) {
  const std::string content = without_mark(read_text(path, kMostBytes));
  ObjectLines read;
  int64_t number = 0;
  for (const std::string& line : split(content, '\n'))
    if (++number; !trim(line).empty()) try {
        const std::string where = text(path, " line ", number);
        read.lines.push_back(
            line_of(parse_json(line, where, {.max_bytes = 16 << 20, .max_depth = 8}), where));
      } catch (const Error& error) {
        read.problems.add(error.what());
      }
  return read;
}

// Returns the numbers or the names of the categories of both splits: names in alphabetical order.
std::vector<std::string> classes_of(const SourceConfig& config, const std::vector<const ObjectLines*>& splits,
                                    const std::string& root) {
  std::set<std::string> names;
  std::vector<int64_t> numbers;
  for (const ObjectLines* split : splits)
    for (const ObjectLine& line : split->lines)
      for (const NamedBox& object : line.objects) names.insert(object.category);
  for (const std::string& name : names)
    if (const auto number = parse_int(name)) numbers.push_back(*number);
  std::string list = config.class_names;
  for (const char* name : {"classes.txt", "class_names.txt", "labels.txt"})
    if (const std::string file = (fs::path(root) / name).string(); list.empty() && file_exists(file))
      list = file;
  if (!list.empty()) return read_class_names(list);
  if (numbers.size() == names.size()) return classes_of_numbers(numbers);
  std::vector<std::string> classes(names.begin(), names.end());
  order_classes(classes, config);
  return classes;
}

// The metadata of a split, and whether it is a share of that of the set.
struct Place {
  std::string root, file;
  bool by_share = false;
};

Place place_of(const SourceConfig& config, Split split) {
  const std::string& root = path_of(config, split);
  const std::string train = metadata_file(root, Split::train), own = metadata_file(root, split);
  const bool alone = own.empty() || own == train;
  const std::string held_out = metadata_file(root, Split::validation);
  return {root, alone ? train : own, config.val_path.empty() && (held_out.empty() || held_out == train)};
}

// Keeps the lines of a split by the first folder of their paths, "train/a.jpg", if all are in folders of splits.
bool keep_folder(ObjectLines& lines, Split split) {
  const auto split_of = [](const ObjectLine& line) {
    const size_t end = line.file.find('/');
    return end == std::string::npos ? std::nullopt : split_of_name(line.file.substr(0, end));
  };
  std::set<Split> found;
  for (const ObjectLine& line : lines.lines) {
    const auto own = split_of(line);
    if (!own) return false;
    found.insert(*own);
  }
  if (found.size() < 2) return false;
  std::erase_if(lines.lines, [&](const ObjectLine& line) { return split_of(line) != split; });
  return true;
}

std::vector<std::string> names_of(const std::vector<CocoCategory>& categories) {
  std::vector<std::string> names;
  for (const CocoCategory& one : categories) names.push_back(one.name);
  return names;
}

// Returns the class of an object by its name or number, -1 without one.
int64_t number_of(const NamedBox& object, const std::vector<std::string>& classes, bool chosen) {
  const auto named = std::ranges::find(classes, object.category);
  if (named != classes.end()) return named - classes.begin();
  const auto number = parse_int(object.category);
  return number ? class_of_number(*number, classes, chosen) : -1;
}

// Adds the images and objects of lines. Objects of other classes are problems.
void add_lines(ObjectLines& lines, const std::string& folder, bool chosen, CocoFile& file) {
  const std::vector<std::string> classes = names_of(file.categories);
  for (const ObjectLine& line : lines.lines) {
    const int64_t image = std::ssize(file.images) + 1;
    file.images.push_back({.number = image, .file = with_suffix(folder, line.file)});
    for (const NamedBox& object : line.objects) {
      const int64_t label = number_of(object, classes, chosen);
      if (label < 0)
        lines.problems.add(line.where, ": the category '", printable(object.category, 40), "' is none of ",
                           some_of(classes));
      else
        file.annotations.push_back({.number = std::ssize(file.annotations) + 1,
                                    .image = image,
                                    .category = label,
                                    .box = object.box,
                                    .area = object.box.width * object.box.height});
    }
  }
}

}  // namespace

bool is_metadata_objects_path(const std::string& path) {
  std::error_code error;
  const std::string file = fs::is_directory(path, error) ? metadata_file(path, Split::train) : "";
  if (!file.ends_with(".jsonl")) return false;
  std::ifstream in(file, std::ios::binary);
  constexpr int kLooked = 64;  // the first images may have no objects
  std::string line;
  for (int i = 0; i < kLooked && std::getline(in, line); ++i)
    if (line.find("\"objects\"") != std::string::npos && line.find("box") != std::string::npos) return true;
  return false;
}

std::unique_ptr<Source> open_metadata_objects(const SourceConfig& config, Split split) {
  if (config.captions == CaptionUse::over_boxes) return open_metadata(config, split);
  Place own = place_of(config, split);
  ObjectLines lines = read_lines(own.file), others;
  const Split other_split = split == Split::train ? Split::validation : Split::train;
  if (is_metadata_objects_path(path_of(config, other_split)))
    if (const Place other = place_of(config, other_split); other.file != own.file)
      others = read_lines(other.file);
  const std::vector<std::string> classes = classes_of(config, {&lines, &others}, own.root);
  if (own.by_share && keep_folder(lines, split)) own.by_share = false;
  const bool chosen = config.class_names.empty() && are_chosen_numbers(classes);
  CocoFile file;
  for (const std::string& name : classes) file.categories.push_back({std::ssize(file.categories), name});
  const std::string folder =
      config.image_root.empty() ? fs::path(own.file).parent_path().string() : config.image_root;
  add_lines(lines, folder, chosen, file);
  file.problems = lines.problems.lines();
  measure_images(file.images, folder);
  drop_outside(file);
  return make_object_source(
      std::move(file), {.kind = "metadata", .file = own.file, .images = folder, .by_share = own.by_share},
      config, split);
}

}  // namespace tessera::data
