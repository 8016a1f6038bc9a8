// Images with the class of every pixel in separate files, for semantic segmentation.
//
//   ADE20K, CamVid  DIR/images/training/a.jpg, DIR/annotations/training/a.png; also train, labels, masks
//   by splits       DIR/train/images/a.jpg, DIR/train/masks/a.png
//   SegNet          DIR/train/a.png, DIR/trainannot/a.png
//   Roboflow        DIR/train/a.jpg, DIR/train/a_mask.png, DIR/train/_classes.csv
//   Pascal VOC      DIR/JPEGImages/a.jpg, DIR/SegmentationClass/a.png, lists in DIR/ImageSets/Segmentation
//   Cityscapes      DIR/leftImg8bit/train/x/a_leftImg8bit.png, DIR/gtFine/train/x/a_gtFine_labelIds.png
//   others          set.toml: MaskSetConfig
#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "core/config.h"
#include "core/error.h"
#include "core/text.h"
#include "core/value.h"
#include "data/base/class_names.h"
#include "data/base/image_files.h"
#include "data/base/source_kinds.h"
#include "data/sources/annotated_source.h"
#include "data/transforms/transform.h"
#include "io/files/file.h"
#include "io/images/index_png.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

// A set with another layout. Paths are relative to the file's folder.
struct MaskSetConfig {
  std::string images = "images", masks = "annotations";
  std::string image_suffix, mask_suffix = ".png";
  std::string train, validation;  // folders in both `images` and `masks`; "" = usual names
  bool reduce_zero_label = false;
  int64_t ignore_index = 255;
  std::string class_names = "classes.txt";
  Value class_map = Value(Value::Table());

  template <class V>
  void visit(V& v) {
    v("images", images, "folder of the images");
    v("masks", masks, "folder of the masks");
    v("image_suffix", image_suffix, "suffix of the images' names; empty = any image");
    v("mask_suffix", mask_suffix, "suffix of the masks' names in its place");
    v("train", train, "folder of the training split in both");
    v("validation", validation, "folder of the validation split in both");
    v("reduce_zero_label", reduce_zero_label, "0 is no class, and classes are counted from 1 (ADE20K)");
    v("ignore_index", ignore_index, between(0, 65535), "value of pixels without a class");
    v("class_names", class_names, "file with one class name a line");
    v("class_map", class_map,
      "value in the file = class, or -1 for none; values that are not named have none");
  }
};

struct Layout {
  std::string shown, images, masks;  // folders of all splits
  bool splits_first = false;         // the folders below are inside that of each split
  std::string images_below = "", masks_below = "";
  std::string masks_after = "";  // follows the split's name in its folder of masks
  MaskSetConfig config;
  std::map<int64_t, int64_t> class_map;  // empty: values are classes
  std::vector<std::string> classes;
  std::string fixed_split;  // the split's folder if the path names it
  bool voc = false;         // lists name the images of each split
};

// Cityscapes' 19 evaluation classes, and their numbers in *_labelIds.png.
constexpr std::array<std::pair<int64_t, const char*>, 19> kCityscapes = {{{7, "road"},
                                                                          {8, "sidewalk"},
                                                                          {11, "building"},
                                                                          {12, "wall"},
                                                                          {13, "fence"},
                                                                          {17, "pole"},
                                                                          {19, "traffic light"},
                                                                          {20, "traffic sign"},
                                                                          {21, "vegetation"},
                                                                          {22, "terrain"},
                                                                          {23, "sky"},
                                                                          {24, "person"},
                                                                          {25, "rider"},
                                                                          {26, "car"},
                                                                          {27, "truck"},
                                                                          {28, "bus"},
                                                                          {31, "train"},
                                                                          {32, "motorcycle"},
                                                                          {33, "bicycle"}}};

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// Suffixes of masks, the usual one first.
constexpr std::array<std::string_view, 5> kMaskFiles = {".png", ".tif", ".tiff", ".bmp", ".gif"};

// True if the folder or its subfolders (two levels) contain a mask: annotations/ of COCO sets contains only
// JSON.
bool holds_masks(const fs::path& folder, int depth = 0) {
  std::error_code error;
  std::vector<fs::path> folders;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (std::ranges::count(kMaskFiles, lower(entry->path().extension().string())) > 0) return true;
    std::error_code ignored;
    if (entry->is_directory(ignored)) folders.push_back(entry->path());
  }
  return depth < 2 && std::any_of(folders.begin(), folders.end(),
                                  [&](const fs::path& inner) { return holds_masks(inner, depth + 1); });
}

// In lower case, in order of preference.
constexpr std::array<std::string_view, 7> kImageFolders = {"images",  "image",      "imgs",           "img",
                                                           "img_dir", "images_png", "original_images"};
constexpr std::array<std::string_view, 11> kMaskFolders = {
    "annotations",          "labels", "masks", "mask",    "label",
    "segmentations",        "gt",     "ann",   "ann_dir", "masks_png",
    "label_images_semantic"};
// Endings of the name of a folder of masks after that of its split: train, trainannot.
constexpr std::array kMasksAfter = {"annot", "_annot", "_annotations", "_masks", "_mask", "_labels", "_gt"};
// Endings of masks after the image's name.
constexpr std::array kMaskEndings = {"", "_mask", "_segmentation", "_seg", "_label", "_gt", "_L"};

std::vector<std::string> folders_in(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error, ignored;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error))
    if (entry->is_directory(ignored)) names.push_back(entry->path().filename().string());
  return names;
}

// Returns the folders of `root` with one of the names, in any case, the preferred one first.
std::vector<std::string> folders_named(const fs::path& root, std::span<const std::string_view> names) {
  const std::vector<std::string> all = folders_in(root.string());
  std::vector<std::string> found;
  for (const std::string_view name : names)
    std::ranges::copy_if(all, std::back_inserter(found),
                         [&](const std::string& folder) { return lower(folder) == name; });
  return found;
}

// Returns the folder of masks next to the images in `root` that contains `split`, or "".
std::string masks_beside_images(const fs::path& root, const fs::path& split = "") {
  for (const std::string& name : folders_named(root, kMaskFolders))
    if (is_folder(root / name / split) && holds_masks(root / name / split)) return (root / name).string();
  return "";
}

std::optional<Layout> ade_layout(const std::string& path) {
  const fs::path root = path;
  Layout layout;
  layout.shown = path;
  if (const auto named = folders_named(root, kImageFolders); !named.empty())
    if (layout.masks = masks_beside_images(root); !layout.masks.empty()) {
      layout.images = (root / named[0]).string();
      return layout;
    }
  // The path DIR/images/SPLIT fixes the split.
  const fs::path split = root.has_filename() ? root : root.parent_path(), images = split.parent_path();
  if (std::ranges::count(kImageFolders, lower(images.filename().string())) == 0) return std::nullopt;
  layout.masks = masks_beside_images(images.parent_path(), split.filename());
  if (layout.masks.empty()) return std::nullopt;
  layout.images = images.string(), layout.fixed_split = split.filename().string();
  return layout;
}

// Reads Roboflow's table of classes: "Pixel Value, Class", with the values 0, 1, ….
std::vector<std::string> roboflow_names(const std::string& path) {
  std::vector<std::string> names;
  const std::vector<CsvRow> rows = parse_csv(read_list_text(path), ',', path);
  for (size_t i = 1; i < rows.size(); ++i) {
    if (rows[i].fields.size() != 2 || parse_int(trim(rows[i].fields[0])) != std::ssize(names))
      fail(path, " line ", rows[i].line, " must be '", names.size(), ", CLASS'");
    names.emplace_back(trim(rows[i].fields[1]));
  }
  return names;
}

// Returns the layout of a set with a folder for each split, which contains its images and masks.
std::optional<Layout> split_layout(const std::string& path) {
  const std::string train = split_folder(folders_in(path), Split::train, path);
  if (train.empty()) return std::nullopt;
  const fs::path folder = fs::path(path) / train;
  Layout layout;
  layout.shown = layout.images = layout.masks = path;
  layout.splits_first = true;
  const std::string table = (folder / "_classes.csv").string();
  if (file_exists(table) && holds_masks(folder) && lower(read_list_text(table)).starts_with("pixel")) {
    layout.classes = roboflow_names(table);
    layout.config.mask_suffix = "_mask.png";
    return layout;
  }
  for (const char* after : kMasksAfter)
    if (const fs::path masks = folder.string() + after; is_folder(masks) && holds_masks(masks)) {
      layout.masks_after = after;
      return layout;
    }
  layout.masks_below = fs::path(masks_beside_images(folder)).filename().string();
  if (const auto named = folders_named(folder, kImageFolders); !named.empty()) layout.images_below = named[0];
  const bool both = !layout.masks_below.empty() && !layout.images_below.empty();
  return both ? std::optional(layout) : std::nullopt;
}

std::optional<Layout> cityscapes_layout(const std::string& path) {
  const fs::path root = path;
  if (!is_folder(root / "leftImg8bit") || !is_folder(root / "gtFine")) return std::nullopt;
  Layout layout;
  layout.shown = path;
  layout.images = (root / "leftImg8bit").string(), layout.masks = (root / "gtFine").string();
  layout.config.image_suffix = "_leftImg8bit.png", layout.config.mask_suffix = "_gtFine_labelIds.png";
  for (size_t i = 0; i < kCityscapes.size(); ++i) {
    layout.class_map[kCityscapes[i].first] = static_cast<int64_t>(i);
    layout.classes.emplace_back(kCityscapes[i].second);
  }
  return layout;
}

std::optional<Layout> voc_layout(const std::string& path) {
  Layout layout;
  layout.masks = voc_masks(path);
  if (layout.masks.empty()) return std::nullopt;
  layout.shown = path, layout.voc = true;
  layout.images = (fs::path(layout.masks).parent_path() / "JPEGImages").string();
  return layout;
}

std::optional<Layout> described_layout(const std::string& path) {
  if (!path.ends_with(".toml")) return std::nullopt;
  Layout layout;
  layout.shown = path;
  layout.config = read_config<MaskSetConfig>(parse_toml(read_text(path), path), path);
  const fs::path root = fs::path(path).parent_path();
  layout.images = (root / layout.config.images).string(),
  layout.masks = (root / layout.config.masks).string();
  for (const std::string* folder : {&layout.images, &layout.masks})
    if (!is_folder(*folder)) fail(path, ": there is no folder '", *folder, "'");
  if (!layout.config.class_map.is_table()) fail_usage(path, ": class_map must be a table of value = class");
  for (const auto& [from, to] : layout.config.class_map.as_table()) {
    const auto value = parse_int(from);
    if (!value || *value < 0 || *value > 65535 || !to.is_int())
      fail_usage(path, ": class_map: '", printable(from),
                 "' must be a value of 0 to 65535, and its class a number");
    layout.class_map[*value] = to.as_int();
  }
  return layout;
}

std::vector<std::string> class_names_of(const Layout& layout, const SourceConfig& config) {
  if (!config.class_names.empty()) return read_class_names(config.class_names);
  if (!layout.classes.empty()) return layout.classes;
  const fs::path root = layout.splits_first ? fs::path(layout.images) : fs::path(layout.images).parent_path();
  const bool described = layout.shown.ends_with(".toml");
  const std::string file =
      ((described ? fs::path(layout.shown).parent_path() : root) / layout.config.class_names).string();
  if (file_exists(file)) return read_class_names(file);
  if (const std::string ade = (root / "objectInfo150.txt").string(); file_exists(ade))
    return read_ade_names(ade);
  if (layout.voc) return voc_mask_classes();
  fail_usage(layout.shown, ": has no class names: put them, one a line, into '", file,
             "' or give data.class_names");
}

Layout layout_of(const SourceConfig& config, Split split) {
  const std::string& path = path_of(config, split);
  std::optional<Layout> layout = described_layout(path);
  if (!layout) layout = cityscapes_layout(path);
  if (!layout) layout = voc_layout(path);
  if (!layout) layout = ade_layout(path);
  if (!layout) layout = split_layout(path);
  check(layout.has_value(), path, ": holds no images with masks");
  layout->classes = class_names_of(*layout, config);
  const bool ade20k = file_exists((fs::path(layout->images).parent_path() / "objectInfo150.txt").string());
  if (ade20k && !layout->shown.ends_with(".toml")) layout->config.reduce_zero_label = true;
  if (layout->classes.empty() || layout->classes.size() > 255)
    fail_usage(path, ": has ", layout->classes.size(), " classes, masks may have 1 to 255");
  const auto classes = std::ssize(layout->classes);
  for (const auto& [value, to] : layout->class_map)
    if (to < -1 || to >= classes)
      fail_usage(path, ": class_map gives the value ", value, " the class ", to, ", must be -1 (none) to ",
                 classes - 1);
  return *layout;
}

struct SplitFolder {
  std::string name;  // folder below both; "" if the set has no splits
  bool by_share = false;
};

SplitFolder folder_of(const Layout& layout, const SourceConfig& config, Split split) {
  if (!layout.fixed_split.empty()) return {layout.fixed_split, false};
  if (layout.voc) return {"", voc_mask_list(layout.masks, split, !config.val_path.empty()).by_share};
  const std::vector<std::string> folders = folders_in(layout.images);
  const auto named = [&](const std::string& name, Split which) {
    return name.empty() ? split_folder(folders, which, layout.images) : name;
  };
  const std::string train = named(layout.config.train, Split::train),
                    held_out = named(layout.config.validation, Split::validation);
  if (split == Split::validation && !held_out.empty()) return {held_out, false};
  if (train.empty() && !held_out.empty())
    fail(layout.shown, ": has the folder ", held_out, " but none for training");
  return {train, held_out.empty() && config.val_path.empty()};
}

// Returns the files below a folder that end in `suffix` (any image if it is empty): sorted names without it,
// each with the full name.
std::map<std::string, std::string> named_files(const fs::path& folder, const std::string& suffix) {
  std::map<std::string, std::string> found;
  for (const std::string& file : files_below(folder.string())) {
    const std::string name = fs::path(file).lexically_relative(folder).generic_string();
    if (!suffix.empty() ? !lower(name).ends_with(lower(suffix)) : !is_image_file(file)) continue;
    const size_t ending = suffix.empty() ? fs::path(file).extension().string().size() : suffix.size();
    found.emplace(name.substr(0, name.size() - ending), name);
  }
  return found;
}

struct Pair {
  std::string image, mask;  // full paths
};

class MaskSource final : public MaskedSource {
 public:
  MaskSource(Layout layout, const SourceConfig& config, Split split)
      : layout_(std::move(layout)), table_(value_table()) {
    const SplitFolder folder = folder_of(layout_, config, split);
    const fs::path images = fs::path(layout_.images) / folder.name / layout_.images_below,
                   masks =
                       fs::path(layout_.masks) / (folder.name + layout_.masks_after) / layout_.masks_below;
    if (!is_folder(masks))
      fail(layout_.shown, ": has the images ", images.string(), " but no ", masks.string());
    auto images_by_name = named_files(images, layout_.config.image_suffix);
    if (images == masks)
      std::erase_if(images_by_name,
                    [&](const auto& one) { return one.second.ends_with(layout_.config.mask_suffix); });
    auto masks_by_name = masks_of(images_by_name, masks);
    if (layout_.voc)
      keep_listed(voc_mask_list(layout_.masks, split, !config.val_path.empty()), images_by_name,
                  masks_by_name);
    std::vector<std::string> names;
    for (const auto& [name, file] : images_by_name) {
      const auto mask = masks_by_name.find(name);
      if (mask == masks_by_name.end()) {
        problems_.add((images / file).string(), " has no mask ", (masks / name).string(),
                      layout_.config.mask_suffix);
        continue;
      }
      pairs_.push_back({(images / file).string(), (masks / mask->second).string()});
      names.push_back(name);
      masks_by_name.erase(mask);
    }
    for (const auto& [name, file] : masks_by_name)
      problems_.add((masks / file).string(), " is the mask of no image in ", images.string());
    if (folder.by_share) {
      std::vector<Pair> chosen;
      for (const int64_t i : select_split(config, split, names, std::vector<int64_t>(names.size(), -1)))
        chosen.push_back(pairs_[static_cast<size_t>(i)]);
      pairs_ = std::move(chosen);
    }
    place_ = folder.name;
  }

  int64_t size() const override { return std::ssize(pairs_); }
  const std::vector<std::string>& mask_classes() const override { return layout_.classes; }
  std::vector<std::string> problems() const override { return problems_.lines(); }

  RawSample read(int64_t index) const override {
    const Pair& pair = pairs_[static_cast<size_t>(index)];
    RawSample sample;
    sample.name = printable(pair.image, kMostNameBytes);
    std::vector<std::byte> bytes = read_file(pair.image, kMaxPictureBytes);
    const ImageInfo info = image_info(bytes, sample.name);
    const std::string mask_name = printable(pair.mask, kMostNameBytes);
    const IndexImage mask = decode_index_image(read_file(pair.mask, kMaxPictureBytes), mask_name);
    sample.annotation.mask = mask_as_shown(classes_of(mask, mask_name), info, mask_name, sample.name);
    sample.picture = std::move(bytes);
    return sample;
  }

  uint64_t fingerprint() const override {
    Fingerprint print;
    print.add("masks 1");
    print.add(layout_.classes);
    print.add(int64_t{layout_.config.reduce_zero_label});
    print.add(layout_.config.ignore_index);
    for (const auto& [from, to] : layout_.class_map) print.add(from), print.add(to);
    for (const Pair& pair : pairs_)
      for (const std::string* file : {&pair.image, &pair.mask}) {
        std::error_code error;
        print.add(fs::path(*file).filename().string());
        print.add(static_cast<int64_t>(fs::file_size(*file, error)));
      }
    return print.value();
  }

  std::string describe() const override {
    return text("masks ", layout_.shown,
                place_.empty() || !layout_.fixed_split.empty() ? "" : " (" + place_ + ")", ", ",
                counted(size(), "image"), ", ", layout_.classes.size(), " classes",
                layout_.config.reduce_zero_label ? ", 0 is none" : "");
  }

 private:
  using Files = std::map<std::string, std::string>;  // by name without suffix

  // Drops the images and masks that are in no line of a split's list, or the images without a mask if there is no list.
  void keep_listed(const VocMaskList& list, Files& images, Files& masks) {
    const std::set<std::string> names(list.names.begin(), list.names.end());
    const auto is_kept = [&](const std::string& name) {
      return list.file.empty() ? masks.contains(name) : names.contains(name);
    };
    for (const std::string& name : names)
      if (!images.contains(name))
        problems_.add(list.file, ": '", printable(name), "' has no image in JPEGImages");
    std::erase_if(images, [&](const auto& image) { return !is_kept(image.first); });
    std::erase_if(masks, [&](const auto& mask) { return !images.contains(mask.first); });
  }

  // Returns the masks by their image's name. If no image has a mask of its name, other endings are tried.
  std::map<std::string, std::string> masks_of(const std::map<std::string, std::string>& images,
                                              const fs::path& folder) {
    auto masks = named_files(folder, layout_.config.mask_suffix);
    const auto fits = [&](const auto& some) {
      return std::ranges::any_of(images, [&](const auto& image) { return some.contains(image.first); });
    };
    if (fits(masks) || layout_.shown.ends_with(".toml")) return masks;
    for (const std::string_view file : kMaskFiles)
      for (const std::string ending : kMaskEndings)
        if (auto others = named_files(folder, ending + std::string(file)); fits(others)) {
          layout_.config.mask_suffix = ending + std::string(file);
          return others;
        }
    return masks;
  }

  // Returns the class of each pixel, or kIgnoredPixel. Throws an error that lists invalid values.
  Image classes_of(const IndexImage& mask, const std::string& name) const {
    Image out(mask.width, mask.height, 1);
    std::map<int64_t, int64_t> strange;  // pixels by value
    for (size_t i = 0; i < mask.values.size(); ++i) {
      const uint16_t value = mask.values[i];
      const uint8_t to = table_[value];
      const bool none = value == layout_.config.ignore_index ||
                        (layout_.config.reduce_zero_label && value == 0) || !layout_.class_map.empty();
      out.pixels[i] = value == layout_.config.ignore_index ? kIgnoredPixel : to;
      if (to == kIgnoredPixel && !none) ++strange[value];
    }
    if (strange.empty()) return out;
    const auto classes = std::ssize(layout_.classes);
    const int64_t first = layout_.config.reduce_zero_label ? 1 : 0;
    refuse_values(name, strange,
                  text(first, " to ", classes - 1 + first, ", or ", layout_.config.ignore_index, " for none"),
                  strange.contains(classes) && first == 0
                      ? ": is reduce_zero_label meant (0 is no class, classes count from 1)?"
                      : "");
  }

  // Returns the class of each value, or kIgnoredPixel.
  std::vector<uint8_t> value_table() const {
    std::vector<uint8_t> table(65536, kIgnoredPixel);
    if (!layout_.class_map.empty()) {
      for (const auto& [from, to] : layout_.class_map)
        if (to >= 0) table[static_cast<size_t>(from)] = static_cast<uint8_t>(to);
      return table;
    }
    const size_t first = layout_.config.reduce_zero_label ? 1 : 0;
    for (size_t c = 0; c < layout_.classes.size(); ++c) table[c + first] = static_cast<uint8_t>(c);
    return table;
  }

  Layout layout_;
  std::vector<uint8_t> table_;
  std::string place_;
  std::vector<Pair> pairs_;
  ProblemList problems_;
};

}  // namespace

bool is_masks_path(const std::string& path) {
  std::error_code error;
  if (path.ends_with(".toml")) return fs::exists(path, error);
  return cityscapes_layout(path).has_value() || voc_layout(path).has_value() ||
         ade_layout(path).has_value() || split_layout(path).has_value();
}

std::unique_ptr<Source> open_masks(const SourceConfig& config, Split split) {
  return std::make_unique<MaskSource>(layout_of(config, split), config, split);
}

}  // namespace tessera::data
