// The folders, files and classes of a set of images with masks, in the layouts of its programs.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/value.h"
#include "data/base/source.h"
#include "data/base/source_files.h"
#include "data/masks/mask_classes.h"

namespace tessera::data {

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

struct MaskLayout {
  std::string shown, images, masks;  // folders of all splits
  bool splits_first = false;         // the folders below are inside that of each split
  std::string images_below = "", masks_below = "";
  std::string images_after = "",
              masks_after = "";  // follow the split's name in its folders: train_images, train_masks
  MaskSetConfig config;
  std::map<int64_t, int64_t> class_map;  // empty: values are classes
  std::vector<std::string> classes;
  std::string fixed_split;   // the split's folder if the path names it
  bool voc = false;          // lists name the images of each split
  bool assumes_voc = false;  // no file names the classes: they are Pascal VOC's
  MaskClasses coloured;      // the file of the classes' colours
  ColourTable colours;
  std::string colour_fault;  // why the file is not used
};

// Suffixes of masks, the usual one first.
inline constexpr std::array<std::string_view, 5> kMaskFiles = {".png", ".tif", ".tiff", ".bmp", ".gif"};

struct SplitFolder {
  std::string name;  // folder below both; "" if the set has no splits
  bool by_share = false;
};

// Returns the layout of the set of a split, with its classes. Throws an error for a path without one.
MaskLayout mask_layout(const SourceConfig& config, Split split);
// True if a path is a set of images with masks.
bool has_mask_layout(const std::string& path);
// Returns the folder of a split.
SplitFolder mask_folder(const MaskLayout& layout, const SourceConfig& config, Split split);
// Returns the folders that may have files of classes: the set's, those of the masks, and that of training.
std::vector<std::string> class_folders(const MaskLayout& layout);

}  // namespace tessera::data
