#include "data/detection/yolo_labels.h"

#include <algorithm>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "core/threads.h"
#include "data/base/image_files.h"
#include "data/base/source_kinds.h"
#include "data/base/source_labels.h"
#include "io/files/file.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

constexpr double kRounding = 0.01;  // tolerance for rounded fractions, as in other programs

// Returns the words of a line, separated by blanks or tabs.
std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  for (const std::string& word : tessera::split(line, ' '))
    for (const std::string& part : tessera::split(word, '\t'))
      if (!trim(part).empty()) words.emplace_back(trim(part));
  return words;
}

// Returns a number, also with a decimal comma, which programs write in some languages.
std::optional<double> decimal(std::string word) {
  if (std::ranges::count(word, ',') == 1 && word.find('.') == std::string::npos)
    std::ranges::replace(word, ',', '.');
  return parse_double(word);
}

// Returns "a number from 0 to 8", or the numbers of classes with gaps.
std::string numbers_of(const std::vector<CocoCategory>& classes) {
  const int64_t last = classes.back().number;
  if (last + 1 == std::ssize(classes)) return text("a number from 0 to ", last);
  std::vector<std::string> numbers;
  for (const CocoCategory& one : classes) numbers.push_back(std::to_string(one.number));
  return "one of the numbers " + some_of(numbers);
}

// Reads the lines of one label file, in pixels.
class LabelReader {
 public:
  LabelReader(std::string path, const CocoImage& image, const std::vector<CocoCategory>& classes,
              bool keypoints)
      : path_(std::move(path)), image_(image), classes_(classes), keypoints_(keypoints) {}

  void read() {
    try {
      const std::vector<std::string> lines = tessera::split(read_list_text(path_), '\n');
      for (size_t i = 0; i < lines.size(); ++i)
        if (const std::string_view line = trim(lines[i]); !line.empty()) add(line, i + 1);
    } catch (const Error& error) {  // of the whole file
      problems_.add(error.what());
    }
  }
  std::vector<CocoAnnotation>& objects() { return objects_; }
  const ProblemList& problems() const { return problems_; }

 private:
  void add(std::string_view line, size_t number) {
    try {
      objects_.push_back(object(line));
    } catch (const Error& error) {
      problems_.add(path_, " line ", number, ": ", error.what());
    }
  }
  CocoAnnotation object(std::string_view line) const {
    std::vector<std::string> words = words_of(line);
    if (keypoints_ && words.size() > 5) words.resize(5);
    const bool polygon = words.size() >= 7 && words.size() % 2 == 1;
    if (words.size() != 5 && !polygon)
      fail("has ", counted(std::ssize(words), "number"),
           ", must be 5: class, centre x, centre y, width, height; or a class and 3 or more points");
    const auto label = class_number(words[0]);
    if (!label || !std::ranges::binary_search(classes_, *label, {}, &CocoCategory::number))
      fail("the class is '", printable(words[0], 40), "', must be ", numbers_of(classes_));
    std::vector<double> shares;
    for (size_t i = 1; i < words.size(); ++i) shares.push_back(share(words[i]));
    CocoAnnotation made{.image = image_.number, .category = *label};
    const auto width = static_cast<double>(image_.width), height = static_cast<double>(image_.height);
    if (polygon) {
      for (size_t i = 0; i < shares.size(); ++i) shares[i] *= i % 2 == 0 ? width : height;
      made.outline.polygons.push_back(std::move(shares));
      const Rectangle around = box_of_outline(made.outline);
      made.box = {around.left, around.top, around.right - around.left, around.bottom - around.top};
    } else {
      made.box = {(shares[0] - shares[2] / 2) * width, (shares[1] - shares[3] / 2) * height,
                  shares[2] * width, shares[3] * height};
    }
    if (image_.width > 0 && !(made.box.width > 0 && made.box.height > 0)) fail("the box has no area");
    made.area = made.box.width * made.box.height;
    return made;
  }
  static double share(const std::string& word) {
    const auto value = decimal(word);
    if (!value || !(*value >= -kRounding && *value <= 1 + kRounding))
      fail("'", printable(word, 40), "' must be a share of the image's width or height, from 0 to 1");
    return *value;
  }

  std::string path_;
  const CocoImage& image_;
  const std::vector<CocoCategory>& classes_;  // in the order of their numbers
  bool keypoints_;
  std::vector<CocoAnnotation> objects_;
  ProblemList problems_;
};

}  // namespace

bool is_label_file(const fs::path& file) {
  return file.extension() == ".txt" && file.filename() != "classes.txt";
}

bool begins_as_labels(const fs::path& file) {
  constexpr uint64_t kMostBytes = uint64_t{4} << 20;
  try {
    const std::vector<std::string> lines = tessera::split(read_list_text(file.string(), kMostBytes), '\n');
    const auto first = std::ranges::find_if(lines, [](const auto& line) { return !trim(line).empty(); });
    if (first == lines.end()) return false;
    const std::vector<std::string> words = words_of(*first);
    return words.size() >= 5 && class_number(words[0]) &&
           std::all_of(words.begin() + 1, words.end(), [](const std::string& word) {
             const auto value = decimal(word);
             return value && *value >= -kRounding && *value <= 1 + kRounding;
           });
  } catch (const Error&) {
    return false;
  }
}

std::string labels_of(const std::string& image) {
  const fs::path path = fs::path(image).replace_extension(".txt");
  const std::string name = path.generic_string();
  const size_t at = name.rfind("/images/");
  return at == std::string::npos ? name : name.substr(0, at) + "/labels/" + name.substr(at + 8);
}

NumberedClasses classes_of_labels(const std::string& folder) {
  std::set<int64_t> numbers;
  for (const std::string& file : files_below(folder)) {
    if (!is_label_file(file) || file.find("/labels/") == std::string::npos) continue;
    for (const std::string& line : tessera::split(read_list_text(file), '\n'))
      if (const std::vector<std::string> words = words_of(line); !words.empty())
        if (const auto number = class_number(words[0]); number && *number >= 0 && *number < kMostClasses)
          numbers.insert(*number);
  }
  if (numbers.empty()) fail(folder, " has no label with a class number");
  NumberedClasses classes;
  for (const int64_t number : numbers)
    classes.numbers.push_back(number), classes.names.push_back(std::to_string(number));
  return classes;
}

std::vector<std::string> add_labels(CocoFile& file, const std::vector<std::string>& paths, bool keypoints) {
  std::vector<std::optional<LabelReader>> readers(paths.size());
  parallel_for(std::ssize(paths), 16, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const std::string labels = labels_of(paths[i]);
      if (!file_exists(labels)) continue;
      readers[i].emplace(labels, file.images[i], file.categories, keypoints);
      readers[i]->read();
    }
  });
  ProblemList problems;
  std::vector<std::string> missing;
  for (size_t i = 0; i < paths.size(); ++i) {
    if (!readers[i]) {
      missing.push_back(labels_of(paths[i]));
      continue;
    }
    problems.add(readers[i]->problems());
    for (CocoAnnotation& object : readers[i]->objects()) {
      object.number = std::ssize(file.annotations) + 1;
      // If an image cannot be read, its size is unknown; its own read() reports it.
      if (object.box.width > 0 && object.box.height > 0) file.annotations.push_back(std::move(object));
    }
  }
  file.problems = problems.lines();
  return missing;
}

}  // namespace tessera::data
