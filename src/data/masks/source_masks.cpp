// Images with the class of every pixel in separate files, for semantic segmentation, in the layouts of mask_layout.cpp.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/base/image_files.h"
#include "data/base/source_kinds.h"
#include "data/masks/mask_layout.h"
#include "data/sources/annotated_source.h"
#include "data/transforms/transform.h"
#include "io/files/file.h"
#include "io/images/index_png.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

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

enum class PixelForm { numbers, palette, colours };

bool is_gray(const Image& rgb) {
  for (size_t i = 0; i < rgb.pixels.size(); i += 3)
    if (rgb.pixels[i] != rgb.pixels[i + 1] || rgb.pixels[i] != rgb.pixels[i + 2]) return false;
  return true;
}

// Returns the form of a mask's pixels, by the header of a PNG, or by the pixels of other files.
PixelForm form_of(const std::vector<std::byte>& bytes, const Image& rgb, const std::string& name) {
  constexpr size_t kColourType = 25;
  constexpr auto kPalette = std::byte{3}, kColours = std::byte{2};  // 6 with alpha
  if (image_info(bytes, name).format == "png" && bytes.size() > kColourType)
    return bytes[kColourType] == kPalette                    ? PixelForm::palette
           : (bytes[kColourType] & kColours) != std::byte{0} ? PixelForm::colours
                                                             : PixelForm::numbers;
  if (is_gray(rgb)) return PixelForm::numbers;
  try {
    decode_index_image(bytes, name);
    return PixelForm::palette;
  } catch (const Error&) {
    return PixelForm::colours;
  }
}

class MaskSource final : public MaskedSource {
 public:
  MaskSource(MaskLayout layout, const SourceConfig& config, Split split)
      : layout_(std::move(layout)), table_(value_table()) {
    const SplitFolder folder = mask_folder(layout_, config, split);
    const fs::path images =
                       fs::path(layout_.images) / (folder.name + layout_.images_after) / layout_.images_below,
                   masks =
                       fs::path(layout_.masks) / (folder.name + layout_.masks_after) / layout_.masks_below;
    if (!is_folder_path(masks))
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
    find_colours();
  }

  int64_t size() const override { return std::ssize(pairs_); }
  const std::vector<std::string>& mask_classes() const override { return layout_.classes; }
  std::vector<std::string> problems() const override { return problems_.lines(); }
  std::vector<std::string> warnings() const override {
    if (!layout_.assumes_voc || all_of_voc()) return {};
    return {text(layout_.shown, " names no classes: Pascal VOC's 21 are assumed; other names belong in ",
                 class_folders(layout_)[0], "/class_names.txt, one a line, the background first")};
  }

  RawSample read(int64_t index) const override {
    const Pair& pair = pairs_[static_cast<size_t>(index)];
    RawSample sample;
    sample.name = printable(pair.image, kMostNameBytes);
    std::vector<std::byte> bytes = read_file(pair.image, kMaxPictureBytes);
    const ImageInfo info = image_info(bytes, sample.name);
    const std::string mask_name = printable(pair.mask, kMostNameBytes);
    Image mask = mask_of(read_file(pair.mask, kMaxPictureBytes), mask_name);
    sample.annotation.mask = mask_as_shown(std::move(mask), info, mask_name, sample.name);
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
    if (!layout_.colours.empty())
      for (const MaskColour& colour : layout_.coloured.colours)
        for (const uint8_t part : colour) print.add(int64_t{part});
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
      for (const std::string_view ending : kMaskEndings)
        if (auto others = named_files(folder, text(ending, file)); fits(others)) {
          layout_.config.mask_suffix = text(ending, file);
          return others;
        }
    return masks;
  }

  // True if all images have the names of Pascal VOC's, "2007_000032" or "000032".
  bool all_of_voc() const {
    return std::ranges::all_of(pairs_, [](const Pair& pair) {
      const std::string name = fs::path(pair.image).stem().string();
      const bool year = name.size() == 11 && name[4] == '_';
      return (year || name.size() == 6) && parse_int(name.substr(name.size() - 6)).has_value();
    });
  }

  // Returns the class of each pixel of a mask. A palette of the classes' colours counts instead of its indices, and so do
  // gray pixels if all classes have gray colours.
  Image mask_of(const std::vector<std::byte>& bytes, const std::string& name) const {
    if (image_info(bytes, name).format == "jpeg" || layout_.colours.empty()) return numbers_of(bytes, name);
    const Image rgb = decode_image(bytes, name);
    const PixelForm form = form_of(bytes, rgb, name);
    if (form == PixelForm::numbers && !layout_.colours.is_gray()) return numbers_of(bytes, name);
    std::map<MaskColour, int64_t> strange;
    Image mask = layout_.colours.classes_of(rgb, strange);
    if (!strange.empty() && form != PixelForm::colours) return numbers_of(bytes, name);
    if (!strange.empty())
      fail(name, ": ", layout_.coloured.file, " has no class of the colour ", listed_colours(strange));
    return mask;
  }

  // Returns the class of each pixel of a mask with a number in each. Throws if it has colours.
  Image numbers_of(const std::vector<std::byte>& bytes, const std::string& name) const {
    IndexImage numbers;
    try {
      numbers = decode_index_image(bytes, name);
    } catch (const Error&) {
      if (image_info(bytes, name).format == "jpeg" || is_gray(decode_image(bytes, name))) throw;
      fail(colours_refused(name));
    }
    return classes_of(numbers, name);
  }

  // Returns why a mask with colours is not read, and what would be right.
  std::string colours_refused(const std::string& name) const {
    if (!layout_.colour_fault.empty())
      return text(name, ": has colours, which are not read: ", layout_.colour_fault);
    return text(name, ": has colours, must have one number a pixel, or the colour of each class in ",
                class_folders(layout_)[0],
                "/labelmap.txt ('cat:128,0,0::' a line) or class_dict.csv (name,r,g,b)");
  }

  // Adds a problem if the first mask has colours without classes: so do the others. A broken mask is none here.
  void find_colours() {
    if (pairs_.empty() || !layout_.colours.empty()) return;
    const std::string name = printable(pairs_[0].mask, kMostNameBytes);
    try {
      const std::vector<std::byte> bytes = read_file(pairs_[0].mask, kMaxPictureBytes);
      const Image rgb = decode_image(bytes, name);
      if (image_info(bytes, name).format != "jpeg" && form_of(bytes, rgb, name) == PixelForm::colours &&
          !is_gray(rgb))
        problems_.add(colours_refused(name));
    } catch (const Error&) {
    }
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

  MaskLayout layout_;
  std::vector<uint8_t> table_;
  std::string place_;
  std::vector<Pair> pairs_;
  ProblemList problems_;
};

}  // namespace

bool is_masks_path(const std::string& path) {
  std::error_code error;
  if (path.ends_with(".toml")) return fs::exists(path, error);
  return has_mask_layout(path);
}

std::unique_ptr<Source> open_masks(const SourceConfig& config, Split split) {
  return std::make_unique<MaskSource>(mask_layout(config, split), config, split);
}

}  // namespace tessera::data
