// The images of COCO's sets: their folder, their paths in it, and their sizes by the headers of their files.
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/threads.h"
#include "data/base/source_kinds.h"
#include "data/base/table_columns.h"
#include "data/sources/annotated_source.h"
#include "data/sources/coco_file.h"
#include "data/sources/shard_files.h"
#include "io/images/image.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

// Returns the size of an image as displayed, from its header; zeros if it cannot be read.
Extent size_of_image(const ShardFiles& shards, const std::string& path) {
  constexpr std::streamsize kHead = 1 << 16;
  if (!ShardFiles::inside_shard(path)) try {
      std::ifstream file(path, std::ios::binary);
      std::vector<std::byte> head(kHead);
      file.read(reinterpret_cast<char*>(head.data()), kHead);
      head.resize(static_cast<size_t>(file.gcount()));
      const ImageInfo info = image_info(head, path);  // WebP may have EXIF at its end
      if (info.format != "webp" || std::ssize(head) < kHead) return shown_size(info);
    } catch (const Error&) {  // a longer header
    }
  try {
    return shown_size(image_info(shards.read(path, kMaxPictureBytes), path));
  } catch (const Error&) {
    return {};
  }
}

// Returns the path of an image in a folder, with the suffix of the file there if that is another.
std::string existing_path(const std::string& folder, const std::string& file) {
  const std::string path = with_suffix(folder, file);
  std::error_code error;
  if (!has_picture_extension(path) || fs::exists(fs::path(folder) / path, error)) return path;
  const std::string stem = fs::path(path).replace_extension().string(), found = with_suffix(folder, stem);
  return found == stem ? path : found;
}

}  // namespace

Extent shown_size(const ImageInfo& info) {
  return info.orientation >= 5 ? Extent{info.width, info.height} : Extent{info.height, info.width};
}

void measure_images(std::vector<CocoImage>& images, const std::string& folder) {
  const ShardFiles shards;
  parallel_for(std::ssize(images), 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      CocoImage& image = images[static_cast<size_t>(i)];
      if ((image.width > 0 && image.height > 0) || image.file.empty()) continue;
      const Extent size = size_of_image(shards, (fs::path(folder) / image.file).string());
      image.width = size.width, image.height = size.height, image.measured = true;
    }
  });
}

std::string coco_image_folder(const std::string& file, const std::string& first_image) {
  const fs::path path(file), folder = path.parent_path();
  std::string split = path.stem().string();
  if (const size_t mark = split.rfind('_'); mark != std::string::npos) split = split.substr(mark + 1);
  std::vector<fs::path> folders;
  for (const fs::path& base : {folder.parent_path(), folder})
    for (const std::string& name : {split, std::string("images"), "images/" + split})
      if (std::error_code error; fs::is_directory(base / name, error)) folders.push_back(base / name);
  folders.push_back(folder), folders.push_back(folder.parent_path());
  for (const fs::path& one : folders)
    if (std::error_code error;
        !first_image.empty() && fs::is_regular_file(one / with_suffix(one.string(), first_image), error))
      return one.string();
  return folders.front().string();
}

std::string find_coco_images(std::span<std::string* const> files, const std::string& folder,
                             const std::string& shown) {
  if (files.empty()) return "";
  const std::string first = *files[0];
  const auto is_elsewhere = [](const std::string& file) {
    return is_absolute_path(file) || file.starts_with("../");
  };
  const bool renamed = existing_path(folder, first) != first;
  for (std::string* file : files)
    if (renamed || is_elsewhere(*file)) *file = existing_path(folder, *file);
  if (!renamed || is_elsewhere(first) || !has_picture_extension(first)) return "";
  return text(shown, ": the image '", printable(first, 60), "' does not exist; '", *files[0], "' of ", folder,
              " is read instead, and others likewise");
}

}  // namespace tessera::data
