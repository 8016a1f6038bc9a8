// `tessera detect IMAGES… --weights FILE`: the objects in images, as lines, drawings or COCO's JSON.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <unordered_map>

#include "answer/pictures.h"
#include "cli/base/command.h"
#include "cli/base/common.h"
#include "cli/base/image_model.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "data/base/class_names.h"
#include "data/sources/annotated_source.h"
#include "data/sources/coco_file.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/images/image.h"
#include "report/grid.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
using tasks::FoundObject;

constexpr uint64_t kMostIdBytes = uint64_t{512} << 20;  // size limit for annotation files

struct DetectOptions : ComputeOptions, answer::ObjectViews {
  std::string weights, overlay, results, ids, classes;
  std::vector<std::string> images;
  std::optional<double> threshold;
  bool json = false, raw = false;

  template <class V>
  void visit(V& v) {
    v("weights", weights, {.names = "-w", .required = true},
      "weights of task detect: a file, a checkpoint or a run directory");
    v("images", images, {.argument = "IMAGES", .required = true},
      "images, folders of images, or - for standard input");
    v("classes", classes, "weights of task glip: file with a class name in a line, to find these");
    v("threshold", threshold, between(0, 1),
      "objects below this score are left out (default: 0.5; of --results the weights' own, as in an "
      "evaluation)");
    answer::ObjectViews::visit(v);
    v("overlay", overlay, {.writes = Writes::file},
      "write the image with its objects: a file, for several images a folder");
    v("results", results, {.writes = Writes::file}, "write results in COCO's format to this file");
    v("ids", ids, "--results: COCO annotation file with the id of each image by its file_name");
    v("json", json, "one JSON object for each image");
    v("raw", raw, "checkpoints: the raw weights instead of their moving average");
    ComputeOptions::visit(v);
  }
};

// The minimum score of a printed or drawn object.
double shown_score(const DetectOptions& options) { return options.threshold.value_or(0.5); }

// The minimum score of all objects that any output needs; below 0: that of the weights.
double found_score(const DetectOptions& options) {
  return options.threshold || options.results.empty() ? shown_score(options) : -1;
}

class Printer {
 public:
  Printer(const DetectOptions& options, const answer::ObjectSearch& search, int64_t images)
      : options_(options), search_(search), single_(images == 1) {}

  void print(const std::string& file, const std::vector<FoundObject>& found) const {
    if (options_.json) return print_json(file, found);
    if (!single_) std::cout << one_line(file) << "\n";
    for (const FoundObject& o : found)
      std::cout << fixed(100 * o.score, 1) << " %  " << one_line(name(o)) << "  at " << fixed(o.left, 0)
                << "," << fixed(o.top, 0) << " to " << fixed(o.right, 0) << "," << fixed(o.bottom, 0) << "\n";
    std::cout << counted(std::ssize(found), "object") << "\n";
  }

 private:
  const std::string& name(const FoundObject& o) const {
    return search_.classes()[static_cast<size_t>(o.label)];
  }
  void print_json(const std::string& file, const std::vector<FoundObject>& found) const {
    std::cout << json_text({{"file", file}, {"objects", answer::json_of(found, search_.classes())}}) << "\n";
  }
  const DetectOptions& options_;
  const answer::ObjectSearch& search_;
  bool single_;
};

// Returns the paths of the drawn images: the given file, or files with the images' names in the given
// folder; none without --overlay. Throws a usage error if they or the results would replace an image or each
// other.
std::vector<std::string> checked_overlays(const DetectOptions& options, const data::ImageFiles& images) {
  const bool file =
      names_output_file("--overlay", options.overlay, images.size(), {".png", ".jpg", ".jpeg", ".webp"});
  std::vector<std::string> overlays, inputs = images.paths();
  std::vector<OutputPlace> outputs;
  for (int64_t i = 0; i < images.size() && !options.overlay.empty(); ++i) {
    const std::string name = fs::path(images.name(i)).stem().string() + ".png";
    overlays.push_back(file ? options.overlay : (fs::path(options.overlay) / name).string());
    outputs.push_back({overlays.back(), "--overlay", images.name(i)});
  }
  if (!options.results.empty()) outputs.push_back({options.results, "--results"});
  if (!options.ids.empty()) inputs.push_back(options.ids);
  check_output_places(inputs, outputs);
  return overlays;
}

void write_overlay(const Image& image, const std::vector<FoundObject>& found,
                   const std::vector<std::string>& classes, const std::string& path) {
  std::vector<data::DrawnObject> drawn;
  std::vector<double> scores;
  for (const FoundObject& o : found) {
    drawn.push_back({o.left, o.top, o.right, o.bottom, o.label, o.mask.counts.empty() ? nullptr : &o.mask});
    scores.push_back(o.score);
  }
  write_file_atomic(path, encode_image(report::labelled_objects(image, drawn, scores, classes), path));
}

// The images of a COCO file, by the last part of their file_name.
class AnnotatedIds {
 public:
  explicit AnnotatedIds(std::string path) : path_(std::move(path)) {
    std::istringstream file(read_text(path_, kMostIdBytes));
    NumberLiterals literals(file);
    const std::string content{std::istreambuf_iterator<char>(&literals), {}};
    const nlohmann::json all = parse_json(content, path_, {.max_bytes = kMostIdBytes});
    if (!all.is_object() || !all.contains("images") || !all["images"].is_array())
      fail(path_, " has no list 'images', as COCO's files have");
    const nlohmann::json& images = all["images"];
    for (size_t i = 0; i < images.size(); ++i) add(images[i], text(path_, ": image ", i));
  }

  // Among several images of that name, the one with the longest file_name that the path ends in.
  int64_t id_of(const std::string& image) const {
    std::vector<Entry> found;
    const std::string whole = "/" + fs::path(image).lexically_normal().generic_string();
    const auto [first, last] = by_name_.equal_range(fs::path(image).filename().string());
    for (auto entry = first; entry != last; ++entry) found.push_back(entry->second);
    if (found.size() > 1) {
      std::erase_if(found, [&](const Entry& entry) { return !whole.ends_with("/" + entry.file); });
      size_t longest = 0;
      for (const Entry& entry : found) longest = std::max(longest, entry.file.size());
      std::erase_if(found, [&](const Entry& entry) { return entry.file.size() < longest; });
    }
    if (found.empty())
      fail_usage("--ids ", path_, " has no image of the name '", image,
                 "': give the file of annotations of these images");
    if (found.size() > 1)
      fail_usage("--ids ", path_, " has ", found.size(), " images of the name '", image, "', must have one");
    return found[0].id;
  }

 private:
  struct Entry {
    std::string file;
    int64_t id;
  };
  void add(const nlohmann::json& image, const std::string& where) {
    const auto id =
        image.is_object() && image.contains("id") ? data::whole_number(image["id"]) : std::nullopt;
    if (!id) fail(where, " has no whole number 'id'");
    if (!image.contains("file_name") || !image["file_name"].is_string())
      fail(where, " has no text 'file_name'");
    const fs::path file = fs::path(image["file_name"].get<std::string>()).lexically_normal();
    by_name_.emplace(file.filename().string(), Entry{file.generic_string(), *id});
  }

  std::string path_;
  std::unordered_multimap<std::string, Entry> by_name_;
};

// Returns the COCO id of each image: from --ids, else from a numeric file name, else its index in the list,
// with a note. None without results.
std::vector<int64_t> image_numbers(const DetectOptions& options, const data::ImageFiles& images) {
  std::vector<int64_t> numbers;
  if (options.results.empty()) return numbers;
  std::optional<AnnotatedIds> ids;
  if (!options.ids.empty()) ids.emplace(options.ids);
  std::unordered_map<int64_t, int64_t> places;
  std::vector<std::string> unnumbered;
  for (int64_t i = 0; i < images.size(); ++i) {
    const std::string& file = images.name(i);
    const auto own = ids ? ids->id_of(file) : parse_int(fs::path(file).stem().string());
    if (!own) unnumbered.push_back(file);
    numbers.push_back(own.value_or(i + 1));
    if (const auto [other, first] = places.try_emplace(numbers.back(), i); !first)
      fail_usage("--results: '", images.name(other->second), "' and '", file, "' would both be image ",
                 numbers.back(), ": ",
                 ids ? "give each image once"
                     : "name the id of each by --ids FILE, or give them names of other numbers");
  }
  if (!unnumbered.empty())
    std::cerr << one_line(text("--results: ", counted(std::ssize(unnumbered), "image"),
                               " without a number for a name (", some_of(unnumbered, 2),
                               "), whose id is the place in the list, from 1; --ids FILE ",
                               "gives the ids of an annotation file"))
              << "\n";
  return numbers;
}

void add_results(const answer::ObjectSearch& search, const std::vector<FoundObject>& found, int64_t image,
                 std::vector<data::CocoResult>& results) {
  for (const FoundObject& o : found)
    results.push_back({.image = image,
                       .category = search.class_number(o.label),
                       .score = o.score,
                       .box = {o.left, o.top, o.right - o.left, o.bottom - o.top},
                       .has_box = true,
                       .mask = o.mask});
}

void detect(const DetectOptions& options) {
  if (!options.ids.empty() && options.results.empty())
    fail_usage("--ids ", options.ids, " goes with --results FILE, which is missing");
  const data::ImageFiles images = given_images(options.images);
  const std::vector<std::string> overlays = checked_overlays(options, images);
  const std::vector<int64_t> numbers = image_numbers(options, images);
  require_described(options.weights, options.raw, "recipes/mask_rcnn/resnet50_torchvision.toml");
  const ImageModel model({.weights = options.weights, .how = {.raw = options.raw}, .compute = options});
  const answer::ObjectSearch search(model, "`tessera detect`", options);
  if (!options.classes.empty()) search.set_classes(data::read_class_names(options.classes));
  if (!overlays.empty() && overlays[0] != options.overlay) fs::create_directories(options.overlay);
  const Printer printer(options, search, images.size());
  std::vector<data::CocoResult> results;
  const int64_t broken = model.for_each_image(images, {}, [&](int64_t index, const Image& image) {
    std::vector<FoundObject> found = search.find(image, found_score(options));
    if (!numbers.empty()) add_results(search, found, numbers[static_cast<size_t>(index)], results);
    std::erase_if(found, [&](const FoundObject& one) { return one.score < shown_score(options); });
    printer.print(images.name(index), found);
    if (!overlays.empty())
      write_overlay(image, found, search.classes(), overlays[static_cast<size_t>(index)]);
  });
  if (!options.results.empty() && broken < images.size()) data::write_coco_results(options.results, results);
  fail_for_broken(broken, images.size());
}

}  // namespace

void add_detect(Arguments& command, Action& action) { action = with_options<DetectOptions>(command, detect); }

}  // namespace tessera::cli
