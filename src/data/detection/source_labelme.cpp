// labelme's folders: a JSON file for each image, next to it or in a folder of their own, {"shapes": [{"label": "cat", "points":
// [[x, y], …], "shape_type": "polygon"}], "imagePath": "a.jpg"}. Polygons, rectangles and circles are objects, and parts of one
// label and `group_id` are one object, as in labelme's own converter to COCO.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "core/threads.h"
#include "data/base/class_names.h"
#include "data/base/image_files.h"
#include "data/base/source_kinds.h"
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

constexpr JsonLimits kLimits = {.max_bytes = uint64_t{64} << 20};  // a file may contain its image
constexpr std::array<std::string_view, 5> kJsonFolders = {"labels", "annotations", "json", "jsons",
                                                          "labelme"};

bool is_json(const std::string& path) { return lower(path).ends_with(".json"); }

// True if a file begins as labelme writes it.
bool is_labelme_file(const fs::path& path) {
  constexpr std::streamsize kLooked = 1 << 16;
  std::string head(kLooked, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(head.data(), kLooked);
  head.resize(static_cast<size_t>(std::max<std::streamsize>(0, in.gcount())));
  const auto has = [&](const char* key) { return head.find(key) != std::string::npos; };
  return has("\"shapes\"") && (has("\"imagePath\"") || has("\"flags\""));
}

// True if the first JSON file in a folder is labelme's, or in one of its folders of splits or of JSON files.
bool holds_labelme(const fs::path& folder, int depth = 0) {
  constexpr int kMostEntries = 100'000;
  std::vector<fs::path> inner;
  std::error_code error;
  int seen = 0;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end && ++seen < kMostEntries;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (is_hidden(name)) continue;
    std::error_code ignored;
    const bool named = std::ranges::count(kJsonFolders, lower(name)) > 0 || split_of_name(name);
    if (named && entry->is_directory(ignored)) inner.push_back(entry->path());
    if (is_json(name) && entry->is_regular_file(ignored)) return is_labelme_file(entry->path());
  }
  return depth < 2 &&
         std::ranges::any_of(inner, [&](const fs::path& one) { return holds_labelme(one, depth + 1); });
}

struct LabelmeObject {
  std::string label;
  Outline outline;
  Rectangle box;  // if there is no outline
};

// One JSON file.
struct LabelmeImage {
  std::string json, image = {};  // paths
  std::vector<LabelmeObject> objects = {};
  std::map<std::string, int64_t> left_out = {};  // shapes by type
  bool labelled = true;                          // has a list of shapes
  std::string fault = {};
};

// Reads one file.
class LabelmeReader {
 public:
  explicit LabelmeReader(LabelmeImage& image) : image_(image) {}

  void read() {
    const Json all = parse_json(read_text(image_.json, kLimits.max_bytes), image_.json, kLimits);
    const auto shapes = all.is_object() ? all.find("shapes") : all.end();
    image_.labelled = all.is_object() && shapes != all.end() && shapes->is_array();
    if (!image_.labelled) return;
    for (size_t i = 0; i < shapes->size(); ++i) add((*shapes)[i], text(image_.json, ": shape ", i));
    const auto stored = all.find("imagePath");
    find_image(stored != all.end() && stored->is_string() ? stored->get<std::string>() : "");
  }

 private:
  void add(const Json& shape, const std::string& where) {
    if (!shape.is_object()) fail(where, " is ", shape.type_name(), ", must be an object");
    const auto type = shape.find("shape_type"), label = shape.find("label");
    const std::string kind = type != shape.end() && type->is_string() ? type->get<std::string>() : "polygon";
    if (label == shape.end() || !label->is_string() || trim(label->get_ref<const std::string&>()).empty())
      fail(where, " has no 'label', the class of an object");
    const std::vector<double> points = points_of(shape, where);
    std::vector<double> polygon = polygon_of(kind, points);
    corners_ += std::max<int64_t>(0, std::ssize(polygon) - std::ssize(points)) / 2;
    check(corners_ <= kMostCorners, where, ": the circles of a file may have at most ", kMostCorners,
          " corners");
    const bool mask = kind == "mask" && points.size() == 4;
    if (polygon.empty() && !mask) return void(++image_.left_out[known_type(kind)]);
    LabelmeObject& object = object_of(std::string(trim(label->get_ref<const std::string&>())), shape);
    if (mask) {  // its pixels are an image inside the file
      ++image_.left_out["mask (their boxes are read)"];
      object.box = {std::min(points[0], points[2]), std::min(points[1], points[3]),
                    std::max(points[0], points[2]), std::max(points[1], points[3])};
    } else {
      object.outline.polygons.push_back(std::move(polygon));
    }
  }

  static std::string known_type(const std::string& kind) {
    constexpr std::array kTypes = {"polygon", "rectangle", "circle", "mask",
                                   "point",   "points",    "line",   "linestrip"};
    return std::ranges::count(kTypes, kind) > 0 ? kind : "unknown";
  }

  // Returns the object of a shape: that of its group and label, or a new one.
  LabelmeObject& object_of(const std::string& label, const Json& shape) {
    const auto group = shape.find("group_id");
    if (group != shape.end() && !group->is_null()) {
      const auto [found, is_new] = groups_.try_emplace({label, group->dump()}, image_.objects.size());
      if (!is_new) return image_.objects[found->second];
    }
    return image_.objects.emplace_back(LabelmeObject{label, {}, {}});
  }

  // Returns x0, y0, x1, y1, ….
  static std::vector<double> points_of(const Json& shape, const std::string& where) {
    const auto points = shape.find("points");
    if (points == shape.end() || !points->is_array()) fail(where, " has no list 'points'");
    std::vector<double> numbers;
    for (const Json& point : *points) {
      if (!point.is_array() || point.size() != 2) fail(where, ": a point must be two numbers, x and y");
      for (const Json& one : point) {
        numbers.push_back(one.is_number() ? one.get<double>() : NAN);
        if (!(std::abs(numbers.back()) <= kFarthestPoint))
          fail(where, ": a point has ", one.dump().substr(0, 40), ", must be two numbers, x and y");
      }
    }
    return numbers;
  }

  // Returns the outline of a shape, empty for shapes without an area, such as points and lines.
  static std::vector<double> polygon_of(const std::string& kind, const std::vector<double>& p) {
    const bool closed = kind == "polygon" || kind == "rectangle" || kind == "rotation";
    if (closed && p.size() >= 6) return p;
    if (kind == "rectangle" && p.size() == 4) return {p[0], p[1], p[2], p[1], p[2], p[3], p[0], p[3]};
    if (kind != "circle" || p.size() != 4) return {};
    const double radius = std::hypot(p[2] - p[0], p[3] - p[1]);
    if (!(radius > 0)) return {};
    // As many corners as keep the polygon within a pixel of the circle.
    const double corners = std::numbers::pi / std::acos(std::max(0.0, 1 - 1 / radius));
    const int count = std::clamp(static_cast<int>(corners), 12, 1000);
    std::vector<double> polygon;
    for (int i = 0; i < count; ++i) {
      const double angle = 2 * std::numbers::pi * i / count;
      polygon.push_back(p[0] + radius * std::sin(angle));
      polygon.push_back(p[1] + radius * std::cos(angle));
    }
    return polygon;
  }

  // Finds the image by the stored path, which may be of another machine, or by the name of the JSON file.
  void find_image(const std::string& stored) {
    const fs::path folder = fs::path(image_.json).parent_path(), name = portable_path(stored);
    std::vector<fs::path> places;
    if (!name.empty() && !name.is_absolute()) places.push_back(folder / name);
    for (const fs::path& images : {folder, images_next_to(folder)}) {
      if (name.has_filename()) places.push_back(images / name.filename());
      places.push_back(images / with_suffix(images.string(), fs::path(image_.json).stem().string()));
    }
    for (const fs::path& place : places)
      if (std::error_code error; has_picture_extension(place.string()) && fs::is_regular_file(place, error))
        return void(image_.image = place.lexically_normal().string());
    fail(image_.json, ": its image '", printable(name.empty() ? places[0].string() : stored, 200),
         "' is not next to it");
  }

  // Returns the folder of the images for one of JSON files: "labels/train" is next to "images/train".
  static fs::path images_next_to(const fs::path& folder) {
    fs::path out;
    for (const fs::path& part : folder)
      out /= std::ranges::count(kJsonFolders, lower(part.string())) > 0 ? fs::path("images") : part;
    return out;
  }

  static constexpr int64_t kMostCorners = 1'000'000;

  LabelmeImage& image_;
  int64_t corners_ = 0;                                           // that circles add
  std::map<std::pair<std::string, std::string>, size_t> groups_;  // by label and group_id
};

std::vector<LabelmeImage> read_labelme(const std::vector<std::string>& files) {
  std::vector<LabelmeImage> images;
  for (const std::string& file : files) images.push_back({.json = file});
  parallel_for(std::ssize(images), 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      LabelmeImage& image = images[static_cast<size_t>(i)];
      try {
        LabelmeReader(image).read();
      } catch (const Error& error) {
        image.fault = error.what();
      }
    }
  });
  return images;
}

struct LabelmeSplit {
  std::string root;
  std::vector<std::string> all, own;  // JSON files
  bool by_share = false;
};

LabelmeSplit labelme_split(const SourceConfig& config, Split split) {
  LabelmeSplit out{.root = path_of(config, split), .all = {}, .own = {}};
  std::map<std::string, std::vector<std::string>> by_folder;  // of any name on the way to it
  for (const std::string& file : files_below(out.root)) {
    if (!is_json(file)) continue;
    out.all.push_back(file);
    for (const fs::path& part : fs::path(file).lexically_relative(out.root).parent_path())
      by_folder[part.string()].push_back(file);
  }
  std::vector<std::string> folders;
  for (const auto& [name, files] : by_folder) folders.push_back(name);
  const std::string train = split_folder(folders, Split::train, out.root),
                    held_out = split_folder(folders, Split::validation, out.root);
  const bool both = !train.empty() && !held_out.empty();
  out.own = both ? by_folder[split == Split::train ? train : held_out] : out.all;
  out.by_share = !both && config.val_path.empty();
  return out;
}

// Returns the classes of a list, or those of all files of both splits, so that they agree.
std::vector<std::string> labelme_classes(const SourceConfig& config, Split split, const LabelmeSplit& own,
                                         const std::vector<LabelmeImage>& read) {
  if (!config.class_names.empty()) return read_class_names(config.class_names);
  for (const char* name : {"classes.txt", "class_names.txt", "labels.txt"})
    if (const fs::path file = fs::path(own.root) / name; file_exists(file.string())) {
      std::vector<std::string> names = read_class_names(file.string());
      std::erase_if(names, [](const auto& one) { return one == "__ignore__" || one == "_background_"; });
      return names;
    }
  std::vector<LabelmeImage> others;
  const Split other = split == Split::train ? Split::validation : Split::train;
  if (const std::string& root = path_of(config, other); root != own.root && is_labelme_path(root))
    others = read_labelme(labelme_split(config, other).all);
  std::set<std::string> names;
  for (const std::vector<LabelmeImage>* images : {&read, &std::as_const(others)})
    for (const LabelmeImage& image : *images)
      for (const LabelmeObject& object : image.objects) names.insert(object.label);
  std::vector<std::string> classes(names.begin(), names.end());
  order_classes(classes, config);
  return classes;
}

// Adds an image with its objects; objects of other classes are problems.
void add_labelled(LabelmeImage& image, const std::string& root, CocoFile& file, ProblemList& problems) {
  const int64_t number = std::ssize(file.images) + 1;
  file.images.push_back({.number = number, .file = fs::path(image.image).lexically_proximate(root).string()});
  for (LabelmeObject& object : image.objects) {
    const auto found = std::ranges::find(file.categories, object.label, &CocoCategory::name);
    if (found == file.categories.end()) {
      problems.add(image.json, ": the label '", printable(object.label, 40), "' is no class of the list");
      continue;
    }
    const Rectangle box = object.outline.empty() ? object.box : box_of_outline(object.outline);
    CocoAnnotation made{
        .number = std::ssize(file.annotations) + 1, .image = number, .category = found->number};
    made.box = {box.left, box.top, box.right - box.left, box.bottom - box.top};
    made.area = made.box.width * made.box.height;
    made.outline = std::move(object.outline);
    if (made.area > 0)
      file.annotations.push_back(std::move(made));
    else
      ++file.dropped["a box without area"];
  }
}

// Returns lines about shapes, files and images that are not read.
std::vector<std::string> left_out_lines(const LabelmeSplit& own, const std::vector<LabelmeImage>& images) {
  std::map<std::string, int64_t> shapes;
  std::set<std::string> used;
  int64_t others = 0;
  for (const LabelmeImage& image : images) {
    for (const auto& [kind, count] : image.left_out) shapes[kind] += count;
    others += !image.labelled;
    used.insert(image.image);
  }
  std::vector<std::string> lines;
  for (const auto& [kind, count] : shapes)
    lines.push_back(text(own.root, ": left out ", counted(count, "shape"), " of type ", kind));
  if (others > 0)
    lines.push_back(text(own.root, ": left out ", counted(others, "JSON file"), " without shapes"));
  int64_t bare = 0;
  if (own.own.size() == own.all.size())
    for (const std::string& file : files_below(own.root))
      bare += is_image_file(file) && !used.contains(fs::path(file).lexically_normal().string());
  if (bare > 0)
    lines.push_back(text(own.root, ": left out ", counted(bare, "image"), " without a JSON file"));
  return lines;
}

}  // namespace

bool is_labelme_path(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error) && holds_labelme(path);
}

std::unique_ptr<Source> open_labelme(const SourceConfig& config, Split split) {
  const LabelmeSplit own = labelme_split(config, split);
  std::vector<LabelmeImage> images = read_labelme(own.all);
  CocoFile file;
  for (const std::string& name : labelme_classes(config, split, own, images))
    file.categories.push_back({std::ssize(file.categories), name});
  const std::set<std::string> kept(own.own.begin(), own.own.end());
  std::erase_if(images, [&](const LabelmeImage& image) { return !kept.contains(image.json); });
  ProblemList problems;
  for (LabelmeImage& image : images)
    if (!image.fault.empty())
      problems.add(image.fault);
    else if (image.labelled)
      add_labelled(image, own.root, file, problems);
  file.problems = problems.lines();
  measure_images(file.images, own.root);
  drop_outside(file);
  ObjectPlace place{.kind = "labelme", .file = own.root, .images = own.root, .by_share = own.by_share};
  place.warnings = left_out_lines(own, images);
  return make_object_source(std::move(file), std::move(place), config, split);
}

}  // namespace tessera::data
