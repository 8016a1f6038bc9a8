// Images with the class of every pixel in separate files, for semantic segmentation.
//
//   ADE20K, CamVid  DIR/images/training/a.jpg, DIR/annotations/training/a.png; also train, labels, masks
//   by splits       DIR/train/images/a.jpg, DIR/train/masks/a.png
//   SegNet          DIR/train/a.png, DIR/trainannot/a.png; also train_images, train_masks
//   in pairs        DIR/a.jpg, DIR/a_mask.png; also by splits, as Roboflow's with DIR/train/_classes.csv
//   Pascal VOC      DIR/JPEGImages/a.jpg, DIR/SegmentationClass/a.png, lists in DIR/ImageSets/Segmentation
//   Cityscapes      DIR/leftImg8bit/train/x/a_leftImg8bit.png, DIR/gtFine/train/x/a_gtFine_labelIds.png
//   others          set.toml: MaskSetConfig
#include "data/masks/mask_layout.h"

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
#include "data/masks/mask_classes.h"
#include "data/sources/annotated_source.h"
#include "data/transforms/transform.h"
#include "io/files/file.h"
#include "io/images/index_png.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

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
// Likewise of images, next to one of masks: train_images, train_masks.
constexpr std::array<std::string_view, 4> kImagesAfter = {"_images", "_image", "_imgs", "_img"};

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
    if (is_folder_path(root / name / split) && holds_masks(root / name / split))
      return (root / name).string();
  return "";
}

std::optional<MaskLayout> ade_layout(const std::string& path) {
  const fs::path root = path;
  MaskLayout layout;
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

// Returns the ending of masks next to their images in one folder, "_mask.png", or "". Looks at the first files alone, for sets
// of millions.
std::string mask_suffix_in(const fs::path& folder) {
  constexpr int kMostFiles = 20'000;
  const auto has_image = [&](const std::string& name) {
    return std::ranges::any_of(std::array{".jpg", ".jpeg", ".png", ".JPG", ".PNG", ".tif", ".bmp"},
                               [&](const char* suffix) { return fs::exists(folder / (name + suffix)); });
  };
  std::error_code error;
  int seen = 0;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end && seen < kMostFiles;
       entry.increment(error), ++seen) {
    const fs::path name = entry->path().filename();
    const std::string stem = name.stem().string(), suffix = name.extension().string();
    if (std::ranges::count(kMaskFiles, lower(suffix)) == 0) continue;
    for (const std::string_view ending : kMaskEndings)
      if (!ending.empty() && stem.ends_with(ending) && has_image(stem.substr(0, stem.size() - ending.size())))
        return text(ending, suffix);
  }
  return "";
}

// Returns the layout of a folder with images and their masks.
std::optional<MaskLayout> pairs_layout(const std::string& path) {
  MaskLayout layout;
  layout.shown = layout.images = layout.masks = path;
  layout.splits_first = true;
  layout.config.mask_suffix = mask_suffix_in(path);
  return layout.config.mask_suffix.empty() ? std::nullopt : std::optional(layout);
}

// Returns the names of the splits that have a folder of images: "train" of train_images with that ending.
std::vector<std::string> splits_in(const MaskLayout& layout) {
  std::vector<std::string> names = folders_in(layout.images);
  if (layout.images_after.empty()) return names;
  std::erase_if(names, [&](const std::string& name) { return !name.ends_with(layout.images_after); });
  for (std::string& name : names) name.resize(name.size() - layout.images_after.size());
  return names;
}

// Returns the layout of folders train_images and train_masks.
std::optional<MaskLayout> named_splits_layout(const std::string& path) {
  MaskLayout layout;
  layout.shown = layout.images = layout.masks = path;
  layout.splits_first = true;
  for (const std::string_view images : kImagesAfter)
    for (const char* masks : kMasksAfter) {
      layout.images_after = images, layout.masks_after = masks;
      const std::string train = split_folder(splits_in(layout), Split::train, path);
      if (!train.empty() && holds_masks(fs::path(path) / (train + masks))) return layout;
    }
  return std::nullopt;
}

// Returns the layout of a set with a folder for each split, which contains its images and masks.
std::optional<MaskLayout> split_layout(const std::string& path) {
  const std::string train = split_folder(folders_in(path), Split::train, path);
  if (train.empty()) return std::nullopt;
  const fs::path folder = fs::path(path) / train;
  MaskLayout layout;
  layout.shown = layout.images = layout.masks = path;
  layout.splits_first = true;
  const std::string table = (folder / "_classes.csv").string();
  if (file_exists(table) && holds_masks(folder) && lower(read_list_text(table)).starts_with("pixel")) {
    layout.classes = roboflow_names(table);
    layout.config.mask_suffix = "_mask.png";
    return layout;
  }
  if (const std::string suffix = mask_suffix_in(folder); !suffix.empty()) {
    layout.config.mask_suffix = suffix;
    return layout;
  }
  for (const char* after : kMasksAfter)
    if (const fs::path masks = folder.string() + after; is_folder_path(masks) && holds_masks(masks)) {
      layout.masks_after = after;
      return layout;
    }
  layout.masks_below = fs::path(masks_beside_images(folder)).filename().string();
  if (const auto named = folders_named(folder, kImageFolders); !named.empty()) layout.images_below = named[0];
  const bool both = !layout.masks_below.empty() && !layout.images_below.empty();
  return both ? std::optional(layout) : std::nullopt;
}

std::optional<MaskLayout> cityscapes_layout(const std::string& path) {
  const fs::path root = path;
  if (!is_folder_path(root / "leftImg8bit") || !is_folder_path(root / "gtFine")) return std::nullopt;
  MaskLayout layout;
  layout.shown = path;
  layout.images = (root / "leftImg8bit").string(), layout.masks = (root / "gtFine").string();
  layout.config.image_suffix = "_leftImg8bit.png", layout.config.mask_suffix = "_gtFine_labelIds.png";
  for (size_t i = 0; i < kCityscapes.size(); ++i) {
    layout.class_map[kCityscapes[i].first] = static_cast<int64_t>(i);
    layout.classes.emplace_back(kCityscapes[i].second);
  }
  return layout;
}

std::optional<MaskLayout> voc_layout(const std::string& path) {
  MaskLayout layout;
  layout.masks = voc_masks(path);
  if (layout.masks.empty()) return std::nullopt;
  layout.shown = path, layout.voc = true;
  layout.images = (fs::path(layout.masks).parent_path() / "JPEGImages").string();
  return layout;
}

std::optional<MaskLayout> described_layout(const std::string& path) {
  if (!path.ends_with(".toml")) return std::nullopt;
  MaskLayout layout;
  layout.shown = path;
  layout.config = read_config<MaskSetConfig>(parse_toml(read_text(path), path), path);
  const fs::path root = fs::path(path).parent_path();
  layout.images = (root / layout.config.images).string(),
  layout.masks = (root / layout.config.masks).string();
  for (const std::string* folder : {&layout.images, &layout.masks})
    if (!is_folder_path(*folder)) fail(path, ": there is no folder '", *folder, "'");
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

// Takes the colours of classes, in the order of the classes' names. Other names leave them unused.
void take_colours(MaskLayout& layout) {
  MaskClasses& table = layout.coloured;
  if (table.colours.empty()) return;
  MaskClasses ordered{.file = table.file, .names = layout.classes, .colours = {}};
  for (const std::string& name : layout.classes)
    if (const auto found = std::ranges::find(table.names, name); found != table.names.end())
      ordered.colours.push_back(table.colours[static_cast<size_t>(found - table.names.begin())]);
  if (ordered.colours.size() != layout.classes.size() || table.names.size() != layout.classes.size()) {
    layout.colour_fault =
        text(table.file, " has the classes ", some_of(table.names), ", not ", some_of(layout.classes));
    return;
  }
  try {
    layout.colours = ColourTable(ordered);
  } catch (const Error& error) {
    layout.colour_fault = error.what();
  }
  constexpr MaskColour kBorder = {224, 224, 192};  // of Pascal VOC's objects
  if (layout.voc && !layout.colours.empty()) layout.colours.ignore(kBorder);
}

std::vector<std::string> class_names_of(MaskLayout& layout, const SourceConfig& config) {
  if (!config.class_names.empty()) return read_class_names(config.class_names);
  if (!layout.classes.empty()) return layout.classes;
  const fs::path root = layout.splits_first ? fs::path(layout.images) : fs::path(layout.images).parent_path();
  const std::string file = (fs::path(class_folders(layout)[0]) / layout.config.class_names).string();
  if (file_exists(file)) return read_class_names(file);
  if (!layout.coloured.names.empty()) return layout.coloured.names;
  if (const std::string names = mask_names_in(class_folders(layout)); !names.empty())
    return read_mask_names(names);
  if (const std::string ade = (root / "objectInfo150.txt").string(); file_exists(ade))
    return read_ade_names(ade);
  if (layout.assumes_voc = layout.voc; layout.voc) return voc_mask_classes();
  fail_usage(
      layout.shown, ": has no class names: put them, one a line, into '", file,
      "' or give data.class_names; names and colours belong in labelmap.txt or class_dict.csv next to it");
}

}  // namespace

std::vector<std::string> class_folders(const MaskLayout& layout) {
  if (layout.shown.ends_with(".toml")) return {fs::path(layout.shown).parent_path().string()};
  const fs::path images = layout.images, masks = layout.masks;
  std::vector<std::string> folders = {(layout.splits_first ? images : images.parent_path()).string(),
                                      masks.string(), masks.parent_path().string()};
  if (layout.splits_first)
    folders.push_back(
        (images / (split_folder(splits_in(layout), Split::train, layout.shown) + layout.images_after))
            .string());
  return folders;
}

MaskLayout mask_layout(const SourceConfig& config, Split split) {
  const std::string& path = path_of(config, split);
  std::optional<MaskLayout> layout = described_layout(path);
  if (!layout) layout = cityscapes_layout(path);
  if (!layout) layout = voc_layout(path);
  if (!layout) layout = ade_layout(path);
  if (!layout) layout = named_splits_layout(path);
  if (!layout) layout = split_layout(path);
  if (!layout) layout = pairs_layout(path);
  check(layout.has_value(), path, ": holds no images with masks");
  if (layout->class_map.empty()) layout->coloured = mask_colours_in(class_folders(*layout));
  layout->classes = class_names_of(*layout, config);
  const bool ade20k = file_exists((fs::path(layout->images).parent_path() / "objectInfo150.txt").string());
  if (ade20k && !layout->shown.ends_with(".toml")) layout->config.reduce_zero_label = true;
  if (layout->classes.empty() || layout->classes.size() > 255)
    fail_usage(path, ": has ", layout->classes.size(), " classes, masks may have 1 to 255");
  take_colours(*layout);
  const auto classes = std::ssize(layout->classes);
  for (const auto& [value, to] : layout->class_map)
    if (to < -1 || to >= classes)
      fail_usage(path, ": class_map gives the value ", value, " the class ", to, ", must be -1 (none) to ",
                 classes - 1);
  return *layout;
}

SplitFolder mask_folder(const MaskLayout& layout, const SourceConfig& config, Split split) {
  if (!layout.fixed_split.empty()) return {layout.fixed_split, false};
  if (layout.voc) return {"", voc_mask_list(layout.masks, split, !config.val_path.empty()).by_share};
  const std::vector<std::string> folders = splits_in(layout);
  const auto named = [&](const std::string& name, Split which) {
    return name.empty() ? split_folder(folders, which, layout.images) : name;
  };
  const std::string train = named(layout.config.train, Split::train);
  std::string held_out = named(layout.config.validation, Split::validation);
  // A test folder without masks, as of a competition, holds no validation images.
  const fs::path masks = fs::path(layout.masks) / (held_out + layout.masks_after) / layout.masks_below;
  if (is_test_name(held_out) && layout.config.validation.empty() && !holds_masks(masks)) held_out.clear();
  if (split == Split::validation && !held_out.empty()) return {held_out, false};
  if (train.empty() && !held_out.empty())
    fail(layout.shown, ": has the folder ", held_out, " but none for training");
  return {train, held_out.empty() && config.val_path.empty()};
}

bool has_mask_layout(const std::string& path) {
  return cityscapes_layout(path).has_value() || voc_layout(path).has_value() ||
         ade_layout(path).has_value() || named_splits_layout(path).has_value() ||
         split_layout(path).has_value() || pairs_layout(path).has_value();
}

}  // namespace tessera::data
