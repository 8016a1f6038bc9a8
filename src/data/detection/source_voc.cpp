// Images with boxes in Pascal VOC's layout: Annotations/NAME.xml, JPEGImages/NAME.jpg, and the names of each split in
// ImageSets/Main/train.txt and val.txt. Other programs write annotations/ and images/, or both kinds of files into one
// folder, or into one folder per split.
//
// Corners are pixel numbers from 1, and both belong to the box: it becomes [xmin - 1, xmax). Objects marked
// `difficult` are handled as crowds: they are not trained on, and evaluation counts neither them nor
// detections of them, as in the VOC devkit.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "core/threads.h"
#include "data/base/class_names.h"
#include "data/base/image_files.h"
#include "data/base/source_kinds.h"
#include "data/detection/label_parsers.h"
#include "data/sources/annotated_source.h"
#include "data/sources/coco_file.h"
#include "io/files/file.h"
#include "io/files/path.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// The folders of annotation files and of images; both are "" in a folder without them.
struct VocFolders {
  fs::path annotations, images;
  bool found() const { return !annotations.empty(); }
};

// Returns the sorted names of the annotation files directly in a folder, without their suffix.
std::vector<std::string> annotated_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& file = entry->path();
    if (lower(file.extension().string()) == ".xml" && !is_hidden(file.filename().string()))
      names.push_back(file.stem().string());
  }
  std::ranges::sort(names);
  return names;
}

bool holds_image(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (has_picture_extension(entry->path().string())) return true;
  return false;
}

// Returns the path of an image in its folder. If the file is missing, its own read() throws.
std::string file_of(const fs::path& folder, const std::string& name, const std::string& other_name) {
  for (const char* suffix :
       {".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG", ".webp", ".bmp", ".tif", ".tiff"})
    if (is_file(folder / (name + suffix))) return name + suffix;
  if (!other_name.empty() && is_file(folder / other_name)) return other_name;
  return name + ".jpg";
}

VocFolders folders_of(const fs::path& root) {
  if (is_folder_path(root / "Annotations") && is_folder_path(root / "JPEGImages"))
    return {root / "Annotations", root / "JPEGImages"};
  for (const char* annotations : {"Annotations", "annotations", "labels"})
    for (const char* images : {"JPEGImages", "images", "Images"})
      if (is_folder_path(root / images) && !annotated_names(root / annotations).empty())
        return {root / annotations, root / images};
  const std::vector<std::string> names = annotated_names(root);
  const auto has_image = [&](const std::string& name) { return is_file(root / file_of(root, name, "")); };
  return std::ranges::any_of(names, has_image) ? VocFolders{root, root} : VocFolders{};
}

// One image, as named by its annotation file and by the list of its split.
struct VocImage {
  struct Object {
    std::string name = {};
    RunBox box = {};
    bool difficult = false;
    std::string place = {};  // file and line
  };
  std::string name, place;        // place: the line of the list
  std::string file = {};          // as in the annotations
  int64_t width = 0, height = 0;  // 0 if the file lacks them
  std::vector<Object> objects = {};
  ProblemList problems = {};
};

// Returns the encoding that an XML file's first line declares, in lower case; "" without one.
std::string declared_encoding(std::string_view content) {
  constexpr std::string_view kKey = "encoding=";
  const std::string_view line = content.substr(0, content.find("?>"));
  const size_t at = line.find(kKey);
  if (!content.starts_with("<?xml") || line.size() == content.size() || at == std::string_view::npos)
    return "";
  const std::string_view quoted = line.substr(at + kKey.size());
  if (quoted.empty()) return "";
  return lower(quoted.substr(1, quoted.find(quoted.substr(0, 1), 1) - 1));
}

// Returns an XML file as UTF-8. Files of Latin-1 are converted unless they are UTF-8 in spite of their declaration. Other
// encodings are refused by name: their bytes may be other names in UTF-8.
std::string xml_text(const std::string& path) {
  std::string content = read_text(path, kMostXmlBytes);
  const std::string encoding = declared_encoding(content);
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 128; };
  constexpr std::array<std::string_view, 5> kLatin = {"iso-8859-1", "iso8859-1", "latin-1", "latin1",
                                                      "windows-1252"};
  const bool latin = std::ranges::find(kLatin, encoding) != kLatin.end();
  const bool usual = encoding.empty() || encoding.starts_with("utf") || encoding.ends_with("ascii");
  if (usual || (latin && is_utf8(content)) || std::ranges::all_of(content, is_ascii))
    return read_list_text(path, kMostXmlBytes);
  std::string out;
  for (const char c : content) {
    const auto byte = static_cast<unsigned char>(c);
    if (!latin || (byte >= 0x80 && byte < 0xA0))
      fail(path, " is text in ", printable(encoding, 40), ", must be UTF-8, UTF-16 or ISO-8859-1");
    if (byte < 0x80)
      out += c;
    else
      out += {static_cast<char>(0xC0 | byte >> 6), static_cast<char>(0x80 | (byte & 0x3F))};
  }
  return out;
}

class VocReader {
 public:
  VocReader(std::string path, VocImage& image) : path_(std::move(path)), image_(image) {}

  void read() {
    const XmlElement root = parse_xml(xml_text(path_), path_);
    if (root.name != "annotation")
      fail(path_, " line ", root.line, ": the root is <", printable(root.name, 40),
           ">, must be <annotation>");
    if (const XmlElement* file = root.find("filename")) image_.file = file->text;
    if (const XmlElement* size = root.find("size"))
      image_.width = side(*size, "width"), image_.height = side(*size, "height");
    for (const XmlElement& child : root.children)
      if (child.name == "object") try {
          image_.objects.push_back(object(child));
        } catch (const Error& error) {
          image_.problems.add(error.what());
        }
  }

 private:
  std::string at(const XmlElement& element) const { return text(path_, " line ", element.line); }
  const XmlElement& child(const XmlElement& element, const char* name) const {
    const XmlElement* found = element.find(name);
    if (!found) fail(at(element), ": <", element.name, "> has no <", name, ">");
    return *found;
  }
  // Reads 3.5, and 3,5 of a program that writes decimals so.
  double number(const XmlElement& element) const {
    std::string digits = element.text;
    if (std::ranges::count(digits, ',') == 1) digits[digits.find(',')] = '.';
    const auto found = parse_double(digits);
    if (!found || !std::isfinite(*found))
      fail(at(element), ": <", element.name, "> is '", printable(element.text, 40), "', must be a number");
    return *found;
  }
  // Reads a number, true, false or Unspecified.
  bool is_marked(const XmlElement& element) const {
    const std::string word = lower(element.text);
    if (word == "true") return true;
    return word != "false" && word != "unspecified" && number(element) != 0;
  }
  // Tools that do not measure an image write 0, or leave the element empty.
  int64_t side(const XmlElement& size, const char* name) const {
    const XmlElement* found = size.find(name);
    if (!found || found->text.empty()) return 0;
    const double value = number(*found);
    if (value < 0 || value > 1e6 || value != std::trunc(value))
      fail(at(*found), ": <", name, "> is '", printable(found->text, 40), "', must be a number of pixels");
    return static_cast<int64_t>(value);
  }
  VocImage::Object object(const XmlElement& element) const {
    VocImage::Object made;
    const XmlElement& name = child(element, "name");
    if (name.text.empty()) fail(at(name), ": <name> is empty, must be the class of an object");
    made.name = name.text, made.place = at(name);
    const XmlElement& box = child(element, "bndbox");
    const double left = number(child(box, "xmin")) - 1, top = number(child(box, "ymin")) - 1;
    made.box = {left, top, number(child(box, "xmax")) - left, number(child(box, "ymax")) - top};
    if (!(made.box.width > 0 && made.box.height > 0))
      fail(at(box), ": <bndbox> has no pixel: xmax and ymax must be at least xmin and ymin");
    if (const XmlElement* difficult = element.find("difficult"); difficult && !difficult->text.empty())
      made.difficult = is_marked(*difficult);
    return made;
  }

  std::string path_;
  VocImage& image_;
};

// Returns the names in a split: those of its list, or of all annotation files if the split is "".
struct VocSplit {
  std::string root, list;
};

// The lists of a set's splits in a folder of ImageSets; "" for a missing one. trainval.txt also contains the images of
// val.txt.
struct VocLists {
  std::string train, held_out;
};

VocLists lists_of(const std::string& root, const char* kind, std::initializer_list<const char*> trains = {}) {
  const auto list_of = [&](const char* name) {
    const fs::path file = fs::path(root) / "ImageSets" / kind / name;
    return is_file(file) ? file.string() : "";
  };
  VocLists lists{"", list_of("val.txt")};
  for (const char* name : trains)
    if (lists.train.empty()) lists.train = list_of(name);
  if (lists.train.empty()) lists.train = list_of("train.txt");
  if (lists.train.empty()) lists = {list_of("trainval.txt"), ""};
  if (lists.held_out.empty()) lists.held_out = list_of("test.txt");
  return lists;
}

// The split of a set with a folder for each, and whether it is a share of the other.
std::pair<VocSplit, bool> split_of_folders(const std::string& path, Split split, bool own_path) {
  std::vector<std::string> names;
  std::error_code error, ignored;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error))
    if (entry->is_directory(ignored) && folders_of(entry->path()).found())
      names.push_back(entry->path().filename().string());
  const std::string train = split_folder(names, Split::train, path),
                    held_out = split_folder(names, Split::validation, path);
  const bool held = !held_out.empty() && (split == Split::validation || train.empty());
  const std::string root = (fs::path(path) / (held ? held_out : train)).string();
  return {{root, ""}, (held_out.empty() || train.empty()) && !own_path};
}

// The split of a path, and whether it is a share of its list.
std::pair<VocSplit, bool> split_of(const SourceConfig& config, Split split) {
  const std::string& root = path_of(config, split);
  if (!folders_of(root).found()) return split_of_folders(root, split, !config.val_path.empty());
  const auto [train, held_out] = lists_of(root, "Main");
  const bool own_path = !config.val_path.empty();
  if (split == Split::validation && !held_out.empty()) return {{root, held_out}, false};
  return {{root, train}, held_out.empty() && !own_path};
}

// Returns the name of an image in a line of a list: the line, or without folder and image suffix, if there are annotations
// of that name. Else its first word: lists for one class have a second column, 1, -1 or 0, which repeats the annotation files.
std::string name_in_line(std::string_view line, const fs::path& annotations) {
  const std::string whole = portable_path(std::string(line)), file = fs::path(whole).filename().string();
  const std::string stem = has_picture_extension(file) ? fs::path(file).stem().string() : file;
  for (const std::string& name : {whole, stem})
    if (!name.empty() && is_file(annotations / (name + ".xml"))) return name;
  return std::string(line.substr(0, line.find_first_of(" \t")));
}

std::vector<VocImage> images_of(const VocSplit& split, ProblemList& problems) {
  std::vector<VocImage> images;
  const fs::path folder = folders_of(split.root).annotations;
  if (split.list.empty()) {
    for (const std::string& name : annotated_names(folder))
      images.push_back({.name = name, .place = (folder / (name + ".xml")).string()});
    return images;
  }
  std::set<std::string> seen;
  const std::vector<std::string> lines = tessera::split(read_list_text(split.list), '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string name = name_in_line(trim(lines[i]), folder);
    if (name.empty()) continue;
    const std::string place = text(split.list, " line ", i + 1);
    if (!seen.insert(name).second)
      problems.add(place, ": repeats the image '", printable(name), "'");
    else
      images.push_back({.name = name, .place = place});
  }
  return images;
}

// Reads the annotations of all images; errors become problems of their image.
std::vector<VocImage> read_images(const VocSplit& split, ProblemList& problems) {
  std::vector<VocImage> images = images_of(split, problems);
  const fs::path folder = folders_of(split.root).annotations;
  parallel_for(std::ssize(images), 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      VocImage& image = images[static_cast<size_t>(i)];
      const std::string file = (folder / (image.name + ".xml")).string();
      try {
        if (!is_file(file)) fail(image.place, ": the image has no file of annotations ", file);
        VocReader(file, image).read();
      } catch (const Error& error) {
        image.objects.clear();
        image.problems.add(error.what());
      }
    }
  });
  return images;
}

// Returns the list of classes that CVAT or labelme writes next to the folders; "" without one.
std::string class_list_in(const std::string& root) {
  for (const char* name : {"labelmap.txt", "class_names.txt"})
    if (const fs::path file = fs::path(root) / name; is_file(file)) return file.string();
  return "";
}

// Returns the classes of a list without the background and labelme's class of pixels without one.
std::vector<std::string> listed_classes(const std::string& file) {
  std::vector<std::string> names = read_class_names(file);
  std::erase_if(names, [](const std::string& name) {
    return name == "background" || name == "_background_" || name == "__ignore__";
  });
  return names;
}

// Returns the classes of a list, or the union of those of both splits, so that they agree.
std::vector<std::string> classes_of(const SourceConfig& config, Split split, const VocSplit& own,
                                    const std::vector<VocImage>& images, const std::string& list) {
  if (!config.class_names.empty()) return read_class_names(list);
  if (!list.empty()) return listed_classes(list);
  std::set<std::string> names;
  const auto add = [&](const std::vector<VocImage>& some) {
    for (const VocImage& image : some)
      for (const VocImage::Object& object : image.objects) names.insert(object.name);
  };
  add(images);
  const Split other = split == Split::train ? Split::validation : Split::train;
  const auto [held, by_share] = split_of(config, other);
  ProblemList theirs;  // reported when that split is opened
  if ((held.root != own.root || held.list != own.list) && !held.root.empty() && is_voc_path(held.root))
    add(read_images(held, theirs));
  std::vector<std::string> classes(names.begin(), names.end());
  order_classes(classes, config);
  return classes;
}

// Adds the objects of the image `number`. `numbers` has the classes; other classes are problems.
void add_objects(const VocImage& image, int64_t number, const std::map<std::string, int64_t>& numbers,
                 const std::string& class_names, CocoFile& file, ProblemList& problems) {
  for (const VocImage::Object& object : image.objects) {
    const auto category = numbers.find(object.name);
    if (category == numbers.end()) {
      problems.add(object.place, ": the class '", printable(object.name), "' is not in ", class_names);
      continue;
    }
    file.annotations.push_back({.number = std::ssize(file.annotations) + 1,
                                .image = number,
                                .category = category->second,
                                .box = object.box,
                                .area = object.box.width * object.box.height,
                                .crowd = object.difficult});
  }
}

}  // namespace

bool is_voc_path(const std::string& path) {
  if (folders_of(path).found()) return true;
  std::error_code error, ignored;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error))
    if (entry->is_directory(ignored) && split_of_name(entry->path().filename().string()) &&
        folders_of(entry->path()).found())
      return true;
  return false;
}

std::string voc_masks(const std::string& path, bool over_boxes) {
  constexpr const char* kMasks = "SegmentationClass";
  const fs::path given = fs::path(path).has_filename() ? fs::path(path) : fs::path(path).parent_path();
  const bool named = given.filename().string().starts_with(kMasks);
  const fs::path root = named ? given.parent_path() : given;
  if (!is_folder_path(root / "JPEGImages") || (!named && !over_boxes && is_voc_path(path))) return "";
  for (const fs::path& masks : {named ? given : root / kMasks, root / "SegmentationClassPNG"})
    if (holds_image(masks)) return masks.string();
  return "";
}

VocMaskList voc_mask_list(const std::string& masks, Split split, bool own_path) {
  const fs::path folder = masks;
  const bool augmented = folder.filename() == "SegmentationClassAug";
  const std::string root = folder.parent_path().string();
  const auto [train, held_out] = augmented ? lists_of(root, "Segmentation", {"trainaug.txt", "train_aug.txt"})
                                           : lists_of(root, "Segmentation");
  const bool held = split == Split::validation && !held_out.empty();
  VocMaskList list{held ? held_out : train, {}, held_out.empty() && !own_path};
  if (list.file.empty()) return list;
  for (const std::string& line : tessera::split(read_list_text(list.file), '\n'))
    if (const std::string_view name = trim(line); !name.empty()) {
      const std::string first = fs::path(name.substr(0, name.find_first_of(" \t"))).filename().string();
      list.names.push_back(has_picture_extension(first) ? fs::path(first).stem().string() : first);
    }
  return list;
}

std::unique_ptr<Source> open_voc(const SourceConfig& config, Split split) {
  const auto [own, by_share] = split_of(config, split);
  ProblemList problems;
  const std::vector<VocImage> images = read_images(own, problems);
  const std::string list = config.class_names.empty() ? class_list_in(own.root) : config.class_names;
  const std::vector<std::string> classes = classes_of(config, split, own, images, list);
  CocoFile file;
  std::map<std::string, int64_t> numbers;
  for (const std::string& name : classes) {
    file.categories.push_back({std::ssize(file.categories) + 1, name});
    numbers[name] = file.categories.back().number;
  }
  ObjectPlace place{.kind = "Pascal VOC",
                    .file = own.list.empty() ? own.root : own.list,
                    .images = folders_of(own.root).images.string(),
                    .by_share = by_share};
  for (const VocImage& image : images) {
    const int64_t number = std::ssize(file.images) + 1;
    file.images.push_back({number, image.height, image.width, file_of(place.images, image.name, image.file)});
    problems.add(image.problems);
    add_objects(image, number, numbers, list, file, problems);
  }
  file.problems = problems.lines();
  measure_images(file.images, place.images);
  drop_outside(file);
  return make_object_source(std::move(file), std::move(place), config, split);
}

}  // namespace tessera::data
