// Images with a file for the mask of each object, as the 2018 Data Science Bowl has them: ID/images/ID.png and ID/masks/*.png. All
// objects are of one class.
#include <algorithm>
#include <filesystem>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "core/threads.h"
#include "data/base/image_files.h"
#include "data/base/source_kinds.h"
#include "data/sources/annotated_source.h"
#include "data/sources/coco_file.h"
#include "io/files/file.h"
#include "io/images/image.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error, ignored;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->is_directory(ignored) && !is_hidden(entry->path().filename().string()))
      found.push_back(entry->path());
  std::ranges::sort(found);
  return found;
}

std::vector<std::string> images_in(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return {};
  std::vector<std::string> files = files_below(folder.string());
  std::erase_if(files, [](const std::string& file) { return !is_image_file(file); });
  return files;
}

// True for the folder of one image: images/ with one file, and masks/. The folder of a split is none.
bool is_sample(const fs::path& folder) {
  std::error_code error;
  return !split_of_name(folder.filename().string()) && fs::is_directory(folder / "masks", error) &&
         images_in(folder / "images").size() == 1;
}

// True if a folder has only the folders of images; a few are looked at.
bool holds_samples(const fs::path& folder) {
  constexpr size_t kLooked = 3;
  std::vector<fs::path> samples = folders_in(folder);
  samples.resize(std::min(samples.size(), kLooked));
  return !samples.empty() && std::ranges::all_of(samples, is_sample);
}

struct MaskFilesSplit {
  std::string folder;
  bool by_share = false;
};

// Returns the folder of a split: stage1_train in the set's, or the one given. A folder without masks (stage1_test) is none.
MaskFilesSplit mask_files_split(const SourceConfig& config, Split split) {
  const std::string& root = path_of(config, split);
  if (holds_samples(root)) return {root, config.val_path.empty()};
  std::vector<std::string> folders;
  for (const fs::path& folder : folders_in(root))
    if (holds_samples(folder)) folders.push_back(folder.filename().string());
  const std::string train = split_folder(folders, Split::train, root),
                    held_out = split_folder(folders, Split::validation, root),
                    own = split == Split::validation && !held_out.empty() ? held_out : train;
  return {(fs::path(root) / (own.empty() ? folders.at(0) : own)).string(),
          (train.empty() || held_out.empty()) && config.val_path.empty()};
}

// The objects of one image.
struct Masks {
  std::vector<RunLengths> objects;
  ProblemList problems;
  int64_t empty = 0;
};

Masks read_masks(const fs::path& sample, int64_t height, int64_t width) {
  Masks out;
  for (const std::string& file : images_in(sample / "masks")) try {
      const Image mask = decode_image(read_file(file, kMaxPictureBytes), file);
      if (mask.height != height || mask.width != width)
        fail(file, ": the mask has ", mask.width, "x", mask.height, " pixels, its image ", width, "x",
             height);
      std::vector<uint8_t> inside(mask.pixels.size() / 3);
      for (size_t i = 0; i < inside.size(); ++i)
        inside[i] = mask.pixels[3 * i] > 0 || mask.pixels[3 * i + 1] > 0 || mask.pixels[3 * i + 2] > 0;
      RunLengths runs = runs_of_mask(inside, height, width);
      if (area_of(runs) > 0)
        out.objects.push_back(std::move(runs));
      else
        ++out.empty;
    } catch (const Error& error) {
      out.problems.add(error.what());
    }
  return out;
}

// Adds the objects of all images, whose sizes are known.
void add_mask_objects(const std::vector<fs::path>& samples, CocoFile& file) {
  std::vector<Masks> all(samples.size());
  parallel_for(std::ssize(samples), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      if (const CocoImage& image = file.images[i]; image.width > 0)  // else its own read() reports it
        all[i] = read_masks(samples[i], image.height, image.width);
  });
  ProblemList problems;
  for (size_t i = 0; i < all.size(); ++i) {
    problems.add(all[i].problems);
    if (all[i].empty > 0) file.dropped["an empty mask"] += all[i].empty;
    for (RunLengths& runs : all[i].objects) {
      CocoAnnotation made{.number = std::ssize(file.annotations) + 1, .image = file.images[i].number};
      made.box = bounds_of(runs), made.area = static_cast<double>(area_of(runs));
      made.outline.runs = std::move(runs);
      file.annotations.push_back(std::move(made));
    }
  }
  file.problems = problems.lines();
}

}  // namespace

bool is_mask_files_path(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return false;
  if (holds_samples(path)) return true;
  return std::ranges::any_of(folders_in(path), [](const fs::path& folder) {
    return split_of_name(folder.filename().string()).has_value() && holds_samples(folder);
  });
}

std::unique_ptr<Source> open_mask_files(const SourceConfig& config, Split split) {
  const MaskFilesSplit own = mask_files_split(config, split);
  CocoFile file;
  const std::vector<std::string> names =
      config.class_names.empty() ? std::vector<std::string>{"object"} : read_class_names(config.class_names);
  if (names.size() != 1)
    fail_usage(own.folder, ": a set with a mask file for each object has one class, not the ", names.size(),
               " of ", config.class_names);
  file.categories.push_back({.number = 0, .name = names[0]});
  std::vector<fs::path> samples;
  std::vector<std::string> warnings;
  for (const fs::path& sample : folders_in(own.folder))
    if (const auto images = images_in(sample / "images"); images.size() == 1) {
      samples.push_back(sample);
      file.images.push_back({.number = std::ssize(samples),
                             .file = fs::path(images[0]).lexically_relative(own.folder).string()});
    } else {
      warnings.push_back(text(sample.string(), ": left out, it has ", counted(std::ssize(images), "image"),
                              " in images/, must be one"));
    }
  measure_images(file.images, own.folder);
  add_mask_objects(samples, file);
  return make_object_source(std::move(file),
                            {.kind = "mask files",
                             .file = own.folder,
                             .images = own.folder,
                             .by_share = own.by_share,
                             .warnings = std::move(warnings)},
                            config, split);
}

}  // namespace tessera::data
