// Images with objects in COCO's layout: a folder with annotations/instances_*.json and images next to it, or
// such a JSON file. Other programs write one such file by another name, or train/_annotations.coco.json next to the
// images of each split. Images may be in tar shards, as `data pack` writes them: "file_name": "train-000.tar/a.jpg".
#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "core/error.h"
#include "core/text.h"
#include "core/threads.h"
#include "data/base/image_files.h"
#include "data/base/objects.h"
#include "data/base/source_kinds.h"
#include "data/base/table_columns.h"
#include "data/sources/annotated_source.h"
#include "data/sources/coco_file.h"
#include "data/sources/shard_files.h"
#include "io/files/json.h"
#include "io/images/image.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

// Returns annotations/instances_WORD….json of a folder for the first word that matches, or "".
std::string instances_file(const std::string& folder, const std::vector<std::string>& words) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(fs::path(folder) / "annotations", error))
    found.push_back(entry.path().filename().string());
  std::sort(found.begin(), found.end());
  for (const std::string& word : words)
    for (const std::string& name : found)
      if (name.starts_with("instances_" + word) && name.ends_with(".json"))
        return (fs::path(folder) / "annotations" / name).string();
  return "";
}

// Returns the first and the last bytes of a file, which overlap if it is short.
std::pair<std::string, std::string> ends_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string head(1 << 16, '\0'), tail(1 << 16, '\0');
  file.read(head.data(), std::ssize(head));
  head.resize(static_cast<size_t>(file.gcount()));
  file.clear();
  file.seekg(0, std::ios::end);
  const auto size = static_cast<int64_t>(file.tellg());
  file.seekg(std::max<int64_t>(size - std::ssize(tail), 0));
  file.read(tail.data(), std::ssize(tail));
  tail.resize(static_cast<size_t>(file.gcount()));
  return {head, tail};
}

// True if a JSON file begins or ends like a COCO file with objects.
bool looks_like_coco(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  if (name.starts_with("instances")) return true;
  const auto [head, tail] = ends_of(path);
  const std::string both = head + tail;
  const size_t first = head.find_first_not_of(" \t\r\n");
  return first != std::string::npos && head[first] == '{' &&
         both.find("\"categories\"") != std::string::npos &&
         (both.find("\"bbox\"") != std::string::npos || both.find("\"segmentation\"") != std::string::npos);
}

// Returns the list of categories in a piece of a file, "" if the piece does not contain all of it.
std::string_view categories_in(std::string_view piece) {
  const size_t key = piece.find("\"categories\""), begin = piece.find('[', key);
  int depth = 0;
  bool quoted = false;
  for (size_t i = begin; i < piece.size(); ++i) {
    const char c = piece[i];
    if (quoted && c == '\\')
      ++i;
    else if (c == '"')
      quoted = !quoted;
    else if (!quoted && (c == '[' || c == '{'))
      ++depth;
    else if (!quoted && (c == ']' || c == '}') && --depth == 0)
      return piece.substr(begin, i - begin + 1);
  }
  return {};
}

// Returns the categories of a file. They are usually near one of its ends, so that the rest need not be read.
std::vector<CocoCategory> categories_of(const std::string& path) {
  const auto [head, tail] = ends_of(path);
  std::string_view list = categories_in(head);
  if (list.empty()) list = categories_in(tail);
  if (list.empty()) return read_coco(path).categories;
  std::vector<CocoCategory> categories;
  for (const nlohmann::json& one : parse_json(list, path)) {
    const auto number = one.is_object() && one.contains("id") ? whole_number(one["id"]) : std::nullopt;
    if (!number || !one.contains("name") || !one["name"].is_string()) return read_coco(path).categories;
    categories.push_back({*number, one["name"].get<std::string>()});
  }
  return categories;
}

// Returns SPLIT/_annotations.coco.json of a folder, as Roboflow writes them, or "".
std::string file_beside_images(const std::string& folder, Split split) {
  constexpr const char* kName = "_annotations.coco.json";
  std::vector<std::string> names;
  std::error_code error, ignored;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->is_directory(ignored) && fs::is_regular_file(entry->path() / kName, ignored))
      names.push_back(entry->path().filename().string());
  const std::string name = split_folder(names, split, folder);
  return name.empty() ? "" : (fs::path(folder) / name / kName).string();
}

// True for a JSON file in COCO's form with that split in its name, or with none. If `beside_images`, it must be next to a
// folder images/ or one by its own name.
bool is_file_of(const fs::path& file, std::optional<Split> split, bool beside_images) {
  const std::string name = file.filename().string(), stem = file.stem().string();
  if (!lower(name).ends_with(".json") || is_hidden(name) || split_of_name(stem) != split) return false;
  std::error_code error;
  const fs::path folder = file.parent_path();
  if (beside_images && !fs::is_directory(folder / "images", error) && !fs::is_directory(folder / stem, error))
    return false;
  return fs::is_regular_file(file, error) && looks_like_coco(file.string());
}

// Returns the only file of a split in a folder or its annotations/, that of test data only if there is no other.
std::string only_file(const std::string& folder, std::optional<Split> split) {
  std::vector<std::string> found, tests;
  for (const bool inside : {true, false}) {
    const fs::path place = inside ? fs::path(folder) / "annotations" : fs::path(folder);
    std::error_code error;
    for (fs::directory_iterator entry(place, error), end; !error && entry != end; entry.increment(error))
      if (is_file_of(entry->path(), split, !inside))
        (is_test_name(entry->path().stem().string()) ? tests : found).push_back(entry->path().string());
  }
  if (found.empty()) found = tests;
  return found.size() == 1 ? found[0] : "";
}

// Returns the annotation file of a split in a folder, "" if there is none. A file without a split in its name is that
// of the training set.
std::string file_of_split(const std::string& folder, Split split) {
  const bool train = split == Split::train;
  const std::vector<std::string> all = {"train", "val", "minival", "test"};
  if (!instances_file(folder, all).empty())
    return instances_file(folder, train ? std::vector<std::string>{"train"}
                                        : std::vector<std::string>(all.begin() + 1, all.end()));
  if (std::string beside = file_beside_images(folder, split); !beside.empty()) return beside;
  std::string named = only_file(folder, split);
  return named.empty() && train ? only_file(folder, std::nullopt) : named;
}

ObjectPlace find_place(const SourceConfig& config, Split split) {
  const std::string& path = path_of(config, split);
  const bool own_path = !config.val_path.empty();
  ObjectPlace place{.file = path};
  std::error_code error;
  if (fs::is_directory(path, error)) {
    const std::string train = file_of_split(path, Split::train),
                      held_out = file_of_split(path, Split::validation);
    if (split == Split::validation) {
      place.file = !held_out.empty() ? held_out : train;
      place.by_share = held_out.empty() && !own_path;
    } else {
      if (train.empty()) fail(path, " has no annotations/instances_train*.json");
      place.file = train;
      place.by_share = held_out.empty() && !own_path;
    }
  } else {
    place.by_share = !own_path;
  }
  return place;
}

// Counts objects with the class and box of another in their image, which sets merged from several exports have.
int64_t repeated_objects(const std::vector<ObjectAnnotation>& objects) {
  std::vector<std::array<double, 5>> boxes;
  for (const ObjectAnnotation& object : objects)
    if (const Instance& box = object.box; !object.crowd)
      boxes.push_back({box.left, box.top, box.right, box.bottom, static_cast<double>(box.label)});
  std::sort(boxes.begin(), boxes.end());
  return boxes.end() - std::unique(boxes.begin(), boxes.end());
}

class CocoSource final : public ObjectSource {
 public:
  CocoSource(CocoFile file, ObjectPlace place, const std::vector<int64_t>& chosen)
      : place_(std::move(place)) {
    std::sort(file.categories.begin(), file.categories.end(),
              [](const CocoCategory& a, const CocoCategory& b) { return a.number < b.number; });
    std::unordered_map<int64_t, int64_t> labels, images;
    for (const CocoCategory& category : file.categories) {
      labels[category.number] = std::ssize(classes_);
      classes_.push_back(category.name);
      numbers_.push_back(category.number);
    }
    for (const int64_t i : chosen) {
      images[file.images[static_cast<size_t>(i)].number] = std::ssize(images_);
      images_.push_back(std::move(file.images[static_cast<size_t>(i)]));
    }
    objects_.resize(images_.size());
    for (CocoAnnotation& a : file.annotations) {
      const auto image = images.find(a.image);
      if (image == images.end()) continue;
      ObjectAnnotation object{.box = {a.box.left, a.box.top, a.box.left + a.box.width,
                                      a.box.top + a.box.height, labels.at(a.category)},
                              .crowd = a.crowd,
                              .area = a.area,
                              .outline = std::move(a.outline),
                              .number = a.number};
      ++(object.outline.empty() ? without_outline_ : outlined_);
      objects_[static_cast<size_t>(image->second)].push_back(std::move(object));
    }
    warn_of_repeats();
    problems_ = std::move(file.problems);
    for (const auto& [reason, count] : file.dropped)
      left_out_.push_back(text(counted(count, "object"), " with ", reason));
    for (const auto& [reason, count] : file.cut)
      left_out_.push_back(text("of masks: ", count, " x ", reason));
    if (outlined_ > 0 && without_outline_ > 0)
      left_out_.push_back(text("of masks: ", counted(without_outline_, "object"), " without one"));
    for (int64_t i = 0; i < size(); ++i) by_name_[full_path(i)] = i;
    turns_ = std::vector<std::atomic<Turns>>(images_.size());
  }

  int64_t size() const override { return std::ssize(images_); }
  RawSample read(int64_t index) const override {
    RawSample sample = image_of(full_path(index));
    turns_[static_cast<size_t>(index)] = turns_of(index, sample);
    for (const ObjectAnnotation& object : seen(index, {}).objects)
      if (!object.crowd) sample.annotation.instances.push_back(object.box);
    return sample;
  }
  uint64_t fingerprint() const override {
    Fingerprint print;
    print.add("coco 1");
    print.add(classes_);
    for (int64_t i = 0; i < size(); ++i) {
      print.add(images_[static_cast<size_t>(i)].file);
      for (const ObjectAnnotation& object : objects(i)) {
        print.add(object.box.label);
        print.add(static_cast<int64_t>(object.crowd));
        for (const double side : {object.box.left, object.box.top, object.box.right, object.box.bottom})
          print.add(static_cast<int64_t>(side * 1000));
      }
    }
    return print.value();
  }
  std::string describe() const override {
    return text(place_.kind, " ", place_.file, ", ", counted(size(), "image"), ", ",
                counted(outlined_ + without_outline_, "object"), " of ",
                counted(std::ssize(classes_), "class", "classes"), has_outlines() ? " with masks" : "",
                left_out_.empty() ? "" : "; left out: ", join(left_out_, ", "));
  }
  std::vector<std::string> left_out() const override {
    std::vector<std::string> lines;
    for (const std::string& line : left_out_) lines.push_back(place_.file + ": left out " + line);
    return lines;
  }
  std::vector<std::string> problems() const override { return problems_; }
  std::vector<std::string> warnings() const override { return place_.warnings; }

  const std::vector<std::string>& object_classes() const override { return classes_; }
  bool has_outlines() const override { return outlined_ > 0; }
  const std::vector<ObjectAnnotation>& objects(int64_t index) const override {
    return objects_[static_cast<size_t>(index)];
  }
  int64_t index_of(const std::string& name) const override {
    const auto found = by_name_.find(name);
    check(found != by_name_.end(), name, ": is no image of ", place_.file);
    return found->second;
  }
  SeenObjects seen(int64_t index, const DecodeOptions& decode) const override {
    const Extent annotated = annotated_extent(index);
    if (annotated.width == annotated.height) return {objects(index), annotated};  // 0 if it is unknown
    std::atomic<Turns>& known = turns_[static_cast<size_t>(index)];
    if (known.load().shown == 0) known = turns_of(index, image_of(full_path(index)));
    const Turns turns = known;
    const int turn = decode.apply_exif ? turns.shown : turns.stored;
    if (turn == 1) return {objects(index), annotated};
    static thread_local std::vector<ObjectAnnotation> last;
    last.clear();
    for (const ObjectAnnotation& object : objects(index)) last.push_back(oriented(object, turn, annotated));
    return {last, {annotated.width, annotated.height}};
  }
  int64_t image_number(int64_t index) const override { return images_[static_cast<size_t>(index)].number; }
  int64_t class_number(int64_t label) const override { return numbers_[static_cast<size_t>(label)]; }
  Extent image_extent(int64_t index) const override {
    const CocoImage& image = images_[static_cast<size_t>(index)];
    return {static_cast<int>(image.height), static_cast<int>(image.width)};
  }

 private:
  void warn_of_repeats() {
    int64_t repeated = 0;
    for (const auto& some : objects_) repeated += repeated_objects(some);
    if (repeated > 0)
      place_.warnings.push_back(text(place_.file, ": ", counted(repeated, "object"),
                                     " with the class and box of another in the image"));
  }

  // The EXIF orientations that map an image's objects to the image as displayed and as stored; 0 until its
  // file is read.
  struct Turns {
    uint8_t shown = 0, stored = 0;
  };

  // Returns the image size that annotations refer to: from the image's entry, else from a mask, else zeros.
  Extent annotated_extent(int64_t index) const {
    if (const Extent extent = image_extent(index); extent.width > 0 && extent.height > 0) return extent;
    for (const ObjectAnnotation& object : objects(index))
      if (const RunLengths& runs = object.outline.runs; object.outline.has_runs())
        return {static_cast<int>(runs.height), static_cast<int>(runs.width)};
    return {};
  }

  // Boxes and masks are in pixels of the displayed or the stored image; with any other size they are wrong.
  Turns turns_of(int64_t index, const RawSample& sample) const {
    const ImageInfo info = image_info(std::get<std::vector<std::byte>>(sample.picture), sample.name);
    const Extent annotated = annotated_extent(index);
    const Extent as_shown = shown_size(info);
    const bool swapped = info.orientation >= 5, stored = fits(annotated, info.width, info.height),
               shown = fits(annotated, as_shown.width, as_shown.height);
    const auto require = [&](bool fitting, int64_t width, int64_t height, const auto&... what) {
      if (!fitting)
        fail(place_.file, ": ", what..., " ", width, "x", height, " pixels, its image ", sample.name, " has ",
             info.width, "x", info.height);
    };
    const CocoImage& image = images_[static_cast<size_t>(index)];
    require(stored || shown, annotated.width, annotated.height, "image ", image.number,
            ": 'width' and 'height' are");
    for (const ObjectAnnotation& object : objects(index))
      if (const RunLengths& runs = object.outline.runs; object.outline.has_runs())
        require(runs.width == annotated.width && runs.height == annotated.height, runs.width, runs.height,
                "annotation ", object.number, ": the mask has");
    if (!swapped || (stored && shown)) return {1, 1};
    const auto turn = static_cast<uint8_t>(info.orientation);
    const Turns turns =
        stored ? Turns{turn, 1} : Turns{1, static_cast<uint8_t>(inverse_orientation(info.orientation))};
    const bool always = applied_orientation(info, {.apply_exif = false}) != 1;
    return always ? Turns{turns.shown, turns.shown} : turns;
  }
  static bool fits(Extent annotated, int width, int height) {
    return annotated == Extent{} || annotated == Extent{height, width};
  }
  RawSample image_of(const std::string& path) const {
    if (!ShardFiles::inside_shard(path)) return read_image_file(path);
    return {printable(path, kMostNameBytes), files_.read(path, kMaxPictureBytes)};
  }
  std::string full_path(int64_t index) const {
    return (fs::path(place_.images) / images_[static_cast<size_t>(index)].file).string();
  }

  ObjectPlace place_;
  ShardFiles files_;
  std::vector<CocoImage> images_;
  std::vector<std::string> classes_;
  std::vector<int64_t> numbers_;
  std::vector<std::vector<ObjectAnnotation>> objects_;
  std::unordered_map<std::string, int64_t> by_name_;
  std::vector<std::string> problems_, left_out_;
  int64_t outlined_ = 0, without_outline_ = 0;     // objects
  mutable std::vector<std::atomic<Turns>> turns_;  // by image
};

}  // namespace

bool is_coco_path(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error))
    return !file_of_split(path, Split::train).empty() || !file_of_split(path, Split::validation).empty();
  return lower(path).ends_with(".json") && fs::is_regular_file(path, error) && looks_like_coco(path);
}

namespace {

// Returns a line if boxes end outside of their image, or if they do not have COCO's form [left, top, width, height] in
// pixels. The other forms are fractions of the image, two corners, and pixels of the image in another size.
std::vector<std::string> box_warnings(const CocoFile& file, const ObjectPlace& place) {
  std::unordered_map<int64_t, const CocoImage*> images;
  for (const CocoImage& image : file.images)
    if (image.width > 0 && image.height > 0) images[image.number] = &image;
  int64_t known = 0, fractions = 0, corners = 0, beyond = 0;
  for (const CocoAnnotation& a : file.annotations) {
    const auto found = images.find(a.image);
    if (found == images.end()) continue;
    const auto width = static_cast<double>(found->second->width),
               height = static_cast<double>(found->second->height);
    const double right = a.box.left + a.box.width, bottom = a.box.top + a.box.height;
    ++known;
    fractions += right <= 1.5 && bottom <= 1.5;
    corners += a.box.width > a.box.left && a.box.height > a.box.top && a.box.width <= width &&
               a.box.height <= height;
    beyond += right > width + 1 || bottom > height + 1 || a.box.left < -1 || a.box.top < -1;
  }
  constexpr int64_t kFewest = 4;  // fewer boxes may have such numbers by chance
  const auto boxes = counted(known, "box", "boxes");
  const bool coco = (place.kind == "COCO" || place.kind == "metadata") && known >= kFewest;
  if (coco && fractions == known)
    return {text(place.file, ": all ", boxes,
                 " are at most a pixel: they look like fractions of their images, must be pixels")};
  if (coco && corners == known && 4 * beyond >= known)
    return {text(place.file, ": ", beyond, " of ", boxes,
                 " end outside of their image: they look like [left, top, right, bottom], must be [left, "
                 "top, width, height]")};
  if (beyond == 0) return {};
  return {
      text(place.file, ": ", beyond, " of ", boxes, beyond == 1 ? " ends" : " end", " outside of the image")};
}

}  // namespace

std::unique_ptr<Source> make_object_source(CocoFile file, ObjectPlace place, const SourceConfig& config,
                                           Split split) {
  std::vector<std::string> names;
  for (const CocoImage& image : file.images) {
    if (image.file.empty()) fail(place.file, ": image ", image.number, " has no 'file_name'");
    names.push_back(image.file);
  }
  std::vector<int64_t> chosen(names.size());
  for (size_t i = 0; i < chosen.size(); ++i) chosen[i] = static_cast<int64_t>(i);
  if (place.by_share) chosen = select_split(config, split, names, std::vector<int64_t>(names.size(), 0));
  std::ranges::move(file.warnings, std::back_inserter(place.warnings));
  std::ranges::move(box_warnings(file, place), std::back_inserter(place.warnings));
  return std::make_unique<CocoSource>(std::move(file), std::move(place), chosen);
}

namespace {

// Gives a validation file that lacks categories those of the training file, if it has no others.
void add_training_categories(CocoFile& file, const SourceConfig& config) {
  if (config.path.empty() || !is_coco_path(config.path)) return;
  const bool folder = is_folder_path(config.path);
  const std::string train = folder ? file_of_split(config.path, Split::train) : config.path;
  if (train.empty()) return;
  std::vector<CocoCategory> theirs = categories_of(train);
  const auto has = [&](const CocoCategory& own) {
    return std::ranges::any_of(
        theirs, [&](const CocoCategory& one) { return one.number == own.number && one.name == own.name; });
  };
  if (theirs.size() > file.categories.size() && std::ranges::all_of(file.categories, has))
    file.categories = std::move(theirs);
}

}  // namespace

std::unique_ptr<Source> open_coco(const SourceConfig& config, Split split) {
  ObjectPlace place = find_place(config, split);
  CocoFile file = read_coco(place.file, [&](std::vector<CocoImage>& images) {
    const std::string first = images.empty() ? "" : images[0].file;
    place.images = config.image_root.empty() ? coco_image_folder(place.file, first) : config.image_root;
    std::vector<std::string*> files;
    for (CocoImage& image : images) files.push_back(&image.file);
    if (std::string line = find_coco_images(files, place.images, place.file); !line.empty())
      place.warnings.push_back(std::move(line));
    measure_images(images, place.images);
  });
  if (split == Split::validation) add_training_categories(file, config);
  return make_object_source(std::move(file), std::move(place), config, split);
}

}  // namespace tessera::data
