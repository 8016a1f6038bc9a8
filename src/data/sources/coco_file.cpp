#include "data/sources/coco_file.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "core/error.h"
#include "core/text.h"
#include "data/base/table_columns.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/files/path.h"

namespace tessera::data {
namespace {

using Json = nlohmann::json;

// Builds one element of a list at a time and passes it on. `section` is the key of the list, empty for a
// top-level list.
class ElementReader : public nlohmann::json_sax<Json> {
 public:
  using Take = std::function<void(const std::string& section, const Json& element)>;
  explicit ElementReader(Take take) : take_(std::move(take)) {}

  bool null() override { return value(Json()); }
  bool boolean(bool v) override { return value(v); }
  bool number_integer(number_integer_t v) override { return value(v); }
  bool number_unsigned(number_unsigned_t v) override { return value(v); }
  bool number_float(number_float_t v, const string_t&) override { return value(v); }
  bool string(string_t& v) override { return value(std::move(v)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (!stack_.empty())
      key_ = std::move(name);
    else if (depth_ == 1)
      section_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // After the position, nlohmann's message repeats it in words.
    const std::string what = error.what();
    const size_t mark = what.find("syntax error");
    error_ = text("is no JSON from byte ", position,
                  " on: ", mark == std::string::npos ? what : what.substr(mark));
    return false;
  }
  const std::string& error() const { return error_; }
  const std::set<std::string>& sections() const { return sections_; }

 private:
  static constexpr size_t kDeepest = 16;

  // True if an element of a list begins here.
  bool at_element() const { return stack_.empty() && in_list_ && depth_ == list_depth_; }

  bool open(Json empty) {
    const bool list = empty.is_array();
    if (!stack_.empty()) {
      if (stack_.size() >= kDeepest) {
        error_ = "is nested too deep";
        return false;
      }
      stack_.push_back(place(std::move(empty)));
    } else if (at_element()) {
      element_ = std::move(empty);
      stack_.push_back(&element_);
    } else if (list && !in_list_ && depth_ <= 1) {
      in_list_ = true, list_depth_ = depth_ + 1;
      sections_.insert(section_);
    }
    if (++depth_ > 64) {
      error_ = "is nested too deep";
      return false;
    }
    return true;
  }
  bool close() {
    --depth_;
    if (!stack_.empty()) {
      stack_.pop_back();
      if (stack_.empty()) take_(section_, element_);
    } else if (in_list_ && depth_ < list_depth_) {
      in_list_ = false;
    }
    return true;
  }
  bool value(Json v) {
    if (!stack_.empty()) place(std::move(v));
    return true;
  }
  Json* place(Json v) {
    Json& to = *stack_.back();
    if (to.is_array()) {
      to.push_back(std::move(v));
      return &to.back();
    }
    Json& entry = to[key_];
    entry = std::move(v);
    return &entry;
  }

  Take take_;
  Json element_;
  std::vector<Json*> stack_;
  std::string section_, key_, error_;
  std::set<std::string> sections_;
  size_t depth_ = 0, list_depth_ = 0;
  bool in_list_ = false;
};

std::set<std::string> read_elements(const std::string& path, const ElementReader::Take& take) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(path, ": cannot be opened");
  NumberLiterals literals(file);
  std::istream content(&literals);
  ElementReader reader(take);
  const bool whole = Json::sax_parse(content, &reader);
  if (!whole) fail(path, " ", reader.error());
  return reader.sections();
}

std::string shown(const Json& value) {
  return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace), 40);
}

int64_t number_at(const Json& element, const char* key, const std::string& where) {
  const auto found = element.find(key);
  const auto number = found == element.end() ? std::nullopt : whole_number(*found);
  check(number.has_value(), where, ": '", key, "' is ", found == element.end() ? "missing" : shown(*found),
        ", must be a whole number");
  return *number;
}

// Numbers for the ids of images, annotations or categories. Whole numbers, also as texts, are their own; other texts get
// numbers from 1 in the order of their first use, so ids are numbers or names in all elements of a file.
class IdNumbers {
 public:
  int64_t number_of(const Json& element, const char* key, const std::string& where) {
    const auto found = element.find(key);
    const auto number = found == element.end() ? std::nullopt : whole_number(*found);
    const bool name = found != element.end() && !number && found->is_string() &&
                      !found->get_ref<const std::string&>().empty();
    if (!name) {
      const int64_t own = number_at(element, key, where);
      check(names_.empty(), where, ": '", key, "' is the number ", own, ", others are names such as '",
            names_.empty() ? "" : printable(names_.begin()->first, 40), "'");
      numbers_ = true;
      return own;
    }
    const auto& word = found->get_ref<const std::string&>();
    check(!numbers_, where, ": '", key, "' is '", printable(word, 40), "', others are numbers");
    return names_.try_emplace(word, std::ssize(names_) + 1).first->second;
  }

  bool are_names() const { return !names_.empty(); }

 private:
  std::unordered_map<std::string, int64_t> names_;
  bool numbers_ = false;
};

// Returns a side in pixels, 0 if it is missing or null.
int64_t side_of(const Json& element, const char* key, const std::string& where) {
  const auto found = element.find(key);
  return found == element.end() || found->is_null() ? 0 : number_at(element, key, where);
}

// True for true, a number other than 0, and such a number as text. Nothing if it is something else.
std::optional<bool> flag_of(const Json& value) {
  if (value.is_null()) return false;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value != 0;
  if (!value.is_string()) return std::nullopt;
  const std::string word = lower(trim(value.get_ref<const std::string&>()));
  if (word == "true" || word == "false") return word == "true";
  const auto number = parse_int(word);
  return number ? std::optional(*number != 0) : std::nullopt;
}

// Returns the reason for dropping an annotation.
struct Dropped {
  std::string reason;
};

// Returns a number, also one that is written as text.
double number(const Json& value) {
  const auto number = value.is_number()   ? std::optional(value.get<double>())
                      : value.is_string() ? parse_double(trim(value.get_ref<const std::string&>()))
                                          : std::nullopt;
  if (!number || !std::isfinite(*number)) throw Dropped{"a box or polygon that is not of numbers"};
  return *number;
}

RunBox box_of(const Json& value) {
  if (!value.is_array() || value.size() != 4) throw Dropped{"a box that is not of 4 numbers"};
  return {number(value[0]), number(value[1]), number(value[2]), number(value[3])};
}

template <class Integer>
std::vector<Integer> integers_of(const Json& values) {
  constexpr auto most = static_cast<int64_t>(std::numeric_limits<Integer>::max());
  std::vector<Integer> out;
  for (const Json& value : values)
    out.push_back(static_cast<Integer>(json_integer(value, "a mask", "a number", 0, most)));
  return out;
}

RunLengths runs_of(const Json& value) {
  try {
    const std::vector<int64_t> size = integers_of<int64_t>(value.at("size"));
    check(size.size() == 2, "a mask's size is not of 2 numbers");
    const Json& counts = value.at("counts");
    if (counts.is_string()) return parse_runs(counts.get<std::string>(), size[0], size[1]);
    return checked_runs(integers_of<uint32_t>(counts), size[0], size[1]);
  } catch (const std::exception&) {
    throw Dropped{"runs that do not fill their mask"};
  }
}

std::vector<double> polygon_of(const Json& value) {
  if (!value.is_array() || value.size() < 6 || value.size() % 2 != 0)
    throw Dropped{"a polygon of fewer than 3 points"};
  std::vector<double> points;
  points.reserve(value.size());
  for (const Json& at : value) {
    points.push_back(number(at));
    if (std::abs(points.back()) > kFarthestPoint) throw Dropped{"a polygon far outside of its image"};
  }
  return points;
}

// Counts unreadable parts in `cut`: run lengths, or some of the polygons.
Outline outline_of(const Json& value, std::map<std::string, int64_t>& cut) {
  Outline outline;
  const auto take = [&](const auto& read) {
    try {
      read();
    } catch (const Dropped& dropped) {
      ++cut[dropped.reason];
    }
  };
  if (value.is_object()) {
    take([&] { outline.runs = runs_of(value); });
  } else if (value.is_array() && !value.empty() && value[0].is_number()) {  // one polygon without its list
    take([&] { outline.polygons.push_back(polygon_of(value)); });
  } else if (value.is_array()) {
    for (const Json& polygon : value) take([&] { outline.polygons.push_back(polygon_of(polygon)); });
  } else if (!value.is_null()) {
    ++cut["a 'segmentation' that is neither polygons nor runs"];
  }
  return outline;
}

// Returns the path of an image, of LVIS the end of its address: "http://…/train2017/1.jpg" is train2017/1.jpg.
std::string file_of(const Json& image) {
  for (const char* key : {"file_name", "coco_url"}) {
    const auto name = image.find(key);
    if (name == image.end() || !name->is_string() || name->get_ref<const std::string&>().empty()) continue;
    const std::string path = portable_path(name->get<std::string>());
    const size_t file = path.rfind('/');
    if (*key == 'f' || file == std::string::npos || file == 0) return path;
    return path.substr(path.rfind('/', file - 1) + 1);
  }
  return "";
}

constexpr const char* kOutside = "a box outside of its image";

bool is_outside(const RunBox& box, const CocoImage& of) {
  return box.left >= static_cast<double>(of.width) || box.top >= static_cast<double>(of.height) ||
         box.left + box.width <= 0 || box.top + box.height <= 0;
}

// The state of reading one file, where images and categories may follow the annotations.
class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {}

  void take(const std::string& section, const Json& element) {
    if (section == "images" && element.is_object()) add_image(element);
    if (section == "categories" && element.is_object()) add_category(element);
    if (section == "annotations" && element.is_object()) add_annotation(element);
  }

  CocoFile finish(const std::set<std::string>& sections, const MeasureImages& measure) {
    for (const char* name : {"images", "annotations", "categories"})
      if (!sections.contains(name))
        fail(path_, " has no list '", name, "'; COCO's files have images, annotations and categories");
    if (measure) measure(file_.images);
    if (category_ids_.are_names()) number_categories();
    if (image_ids_.are_names())
      file_.warnings.push_back(path_ + ": the ids of images are no numbers: results number them from 1");
    merge_repeated();
    if (repeated_ > 0)
      file_.warnings.push_back(text(path_, ": ", counted(repeated_, "image"),
                                    " listed more than once, merged with all annotations"));
    const int64_t count = std::ssize(file_.annotations);
    std::erase_if(file_.annotations, [&](CocoAnnotation& a) { return !belongs(a); });
    if (unlisted_ > 0 && unlisted_ == count)
      problem("no annotation is of an image in the list of images");
    else if (unlisted_ > 0)
      file_.warnings.push_back(text(path_, ": left out ", counted(unlisted_, "object"),
                                    " of images that are not in the list of images"));
    return std::move(file_);
  }

 private:
  template <class... Parts>
  void problem(const Parts&... parts) {
    constexpr size_t kMost = 1000;
    if (file_.problems.size() < kMost) file_.problems.push_back(text(path_, ": ", parts...));
  }

  void add_image(const Json& element) {
    CocoImage image;
    image.number = image_ids_.number_of(element, "id", text(path_, ": image ", file_.images.size()));
    const std::string where = text(path_, ": image ", image.number);
    image.file = file_of(element);
    image.width = side_of(element, "width", where), image.height = side_of(element, "height", where);
    if (const auto [other, is_new] = images_.emplace(image.number, file_.images.size()); !is_new) {
      if (file_.images[other->second].file == image.file) return void(++repeated_);
      problem("the image number ", image.number, " occurs twice");
    }
    file_.images.push_back(std::move(image));
  }

  void add_category(const Json& element) {
    CocoCategory category;
    category.number =
        category_ids_.number_of(element, "id", text(path_, ": category ", file_.categories.size()));
    const auto name = element.find("name");
    category.name = name != element.end() && name->is_string() ? name->get<std::string>()
                                                               : std::to_string(category.number);
    if (!categories_.insert(category.number).second)
      problem("the category number ", category.number, " occurs twice");
    file_.categories.push_back(std::move(category));
  }

  void add_annotation(const Json& element) {
    CocoAnnotation a;
    const std::string where = text(path_, ": annotation ", file_.annotations.size());
    if (element.contains("id")) a.number = annotation_ids_.number_of(element, "id", where);
    a.image = image_ids_.number_of(element, "image_id", where);
    a.category = category_ids_.number_of(element, "category_id", where);
    if (element.contains("id") && !numbers_.insert(a.number).second)
      problem("the annotation number ", a.number, " occurs twice");
    try {
      const auto crowd = element.find("iscrowd");
      const auto is_crowd = crowd == element.end() ? std::optional(false) : flag_of(*crowd);
      if (!is_crowd) problem("annotation ", a.number, ": 'iscrowd' is ", shown(*crowd), ", must be 0 or 1");
      a.crowd = is_crowd.value_or(false);
      const auto outline = element.find("segmentation");
      if (outline != element.end()) a.outline = outline_of(*outline, file_.cut);
      const auto box = element.find("bbox");
      if (box != element.end()) {
        a.box = box_of(*box);
      } else {
        if (a.outline.empty()) throw Dropped{"neither a box nor an outline"};
        const Rectangle around = box_of_outline(a.outline);
        a.box = {around.left, around.top, around.right - around.left, around.bottom - around.top};
      }
      if (!(a.box.width > 0 && a.box.height > 0)) throw Dropped{"a box without area"};
      const auto area = element.find("area");
      a.area = area != element.end() && area->is_number() ? area->get<double>() : a.box.width * a.box.height;
      file_.annotations.push_back(std::move(a));
    } catch (const Dropped& dropped) {
      ++file_.dropped[dropped.reason];
    }
  }

  // Numbers categories whose ids are names from 1, in the order of their list.
  void number_categories() {
    std::unordered_map<int64_t, int64_t> numbers;
    for (CocoCategory& category : file_.categories) {
      const int64_t number = std::ssize(numbers) + 1;
      category.number = numbers.try_emplace(category.number, number).first->second;
    }
    for (CocoAnnotation& a : file_.annotations) {
      const auto found = numbers.find(a.category);
      a.category = found == numbers.end() ? -1 : found->second;
    }
    categories_.clear();
    for (const CocoCategory& category : file_.categories) categories_.insert(category.number);
  }

  // Merges images with one file under several numbers into the first of them.
  void merge_repeated() {
    std::unordered_map<std::string, int64_t> first;
    std::unordered_map<int64_t, int64_t> merged;
    for (const CocoImage& image : file_.images)
      if (const auto [known, is_new] = first.try_emplace(image.file, image.number);
          !is_new && !image.file.empty())
        merged[image.number] = known->second;
    if (merged.empty()) return;
    repeated_ += std::ssize(merged);
    std::erase_if(file_.images, [&](const CocoImage& image) {
      const auto found = merged.find(image.number);
      return found != merged.end() && found->second != image.number;
    });
    images_.clear();
    for (size_t i = 0; i < file_.images.size(); ++i) images_[file_.images[i].number] = i;
    for (CocoAnnotation& a : file_.annotations)
      if (const auto found = merged.find(a.image); found != merged.end()) a.image = found->second;
  }

  bool belongs(CocoAnnotation& a) {
    const auto image = images_.find(a.image);
    if (image == images_.end()) {
      ++unlisted_;
      return false;
    }
    if (!categories_.contains(a.category)) {
      problem("annotation ", a.number, " is of the category ", a.category,
              ", which is not in the list of categories");
      return false;
    }
    const CocoImage& of = file_.images[image->second];
    if (of.width > 0 && of.height > 0) {
      if (is_outside(a.box, of)) {
        ++file_.dropped[kOutside];
        return false;
      }
      if (!of.measured && a.outline.has_runs() &&
          (a.outline.runs.width != of.width || a.outline.runs.height != of.height)) {
        ++file_.cut["a mask of another size than its image"];
        a.outline = {};
      }
    }
    return true;
  }

  std::string path_;
  CocoFile file_;
  std::unordered_map<int64_t, size_t> images_;
  std::unordered_set<int64_t> categories_, numbers_;
  IdNumbers image_ids_, category_ids_, annotation_ids_;
  int64_t repeated_ = 0;  // entries of images that are listed before
  int64_t unlisted_ = 0;  // annotations of images that are not listed
};

}  // namespace

void drop_outside(CocoFile& file) {
  std::unordered_map<int64_t, const CocoImage*> images;
  for (const CocoImage& image : file.images) images[image.number] = &image;
  const auto dropped = std::erase_if(file.annotations, [&](const CocoAnnotation& a) {
    const CocoImage& of = *images.at(a.image);
    return of.width > 0 && of.height > 0 && is_outside(a.box, of);
  });
  if (dropped > 0) file.dropped[kOutside] += static_cast<int64_t>(dropped);
}

CocoFile read_coco(const std::string& path, const MeasureImages& measure) {
  Reader reader(path);
  const auto sections = read_elements(
      path, [&](const std::string& section, const Json& element) { reader.take(section, element); });
  return reader.finish(sections, measure);
}

std::vector<CocoResult> read_coco_results(const std::string& path) {
  std::vector<CocoResult> results;
  read_elements(path, [&](const std::string& section, const Json& element) {
    if (!section.empty() || !element.is_object())
      fail(path, " is no list of results; COCO's result files are one list");
    const std::string where = text(path, ": result ", results.size());
    CocoResult result;
    result.image = number_at(element, "image_id", where);
    result.category = number_at(element, "category_id", where);
    const auto score = element.find("score");
    check(score != element.end() && score->is_number(), where, ": 'score' is missing or no number");
    result.score = score->get<double>();
    try {
      if (const auto mask = element.find("segmentation"); mask != element.end()) result.mask = runs_of(*mask);
      if (const auto box = element.find("bbox"); box != element.end())
        result.box = box_of(*box), result.has_box = true;
    } catch (const Dropped& dropped) {
      fail(where, " has ", dropped.reason);
    }
    if (!result.has_box && result.mask.counts.empty()) fail(where, " has neither a box nor a mask");
    if (!result.has_box) result.box = bounds_of(result.mask);
    results.push_back(std::move(result));
  });
  return results;
}

}  // namespace tessera::data
