// IDX files (MNIST and similar sets), gzipped or not: a big-endian magic 00 00 08 D (unsigned bytes, D
// dimensions), D sizes, the values. Images are [n, height, width] or [n, height, width, 3], labels [n].
//
// A folder, or one in it, with train-images-idx3-ubyte[.gz] and train-labels-idx1-ubyte[.gz] (held out: t10k-… or test-…),
// or one image file; its labels are found by the usual naming.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "data/base/source_kinds.h"
#include "data/base/source_records.h"
#include "io/files/file.h"
#include "io/files/gzip.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostSide = 65536;

bool is_pictures_name(const std::string& name) {
  return name.find("images") != std::string::npos && name.find("ubyte") != std::string::npos &&
         !name.starts_with('.');
}

// Returns the first image file in a folder with one of the words in its name, or "".
std::string find_pictures(const std::string& folder, std::initializer_list<const char*> words) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool wanted = std::any_of(words.begin(), words.end(),
                                    [&](const char* word) { return name.find(word) != std::string::npos; });
    if (is_pictures_name(name) && wanted) names.push_back(entry->path().string());
  }
  if (error) fail(folder, " cannot be listed: ", error.message());
  return names.empty() ? "" : *std::min_element(names.begin(), names.end());
}

struct Pictures {
  std::string path;
  bool by_share = false;
};

bool has_pictures(const std::string& folder) { return !find_pictures(folder, {""}).empty(); }

Pictures find_split(const SourceConfig& config, Split split) {
  const std::string& given = path_of(config, split);
  const bool own_path = !config.val_path.empty();
  if (!fs::is_directory(given)) return {given, !own_path};
  const std::string path = folder_below(given, has_pictures, true);
  const std::string train = find_pictures(path, {"train"}),
                    held_out = find_pictures(path, {"t10k", "test", "val"});
  if (train.empty() && held_out.empty()) return {find_pictures(path, {""}), !own_path};
  if (train.empty()) return {held_out, !own_path};
  if (split == Split::validation && !held_out.empty()) return {held_out, false};
  return {train, !own_path && held_out.empty()};
}

void replace_last(std::string& name, const std::string& from, const std::string& to) {
  const size_t at = name.rfind(from);
  if (at != std::string::npos) name.replace(at, from.size(), to);
}

// Returns …-labels-idx1-ubyte next to …-images-idx3-ubyte, with or without .gz.
std::string labels_path(const std::string& pictures) {
  std::string name = fs::path(pictures).filename().string();
  if (!is_pictures_name(name))
    fail(pictures,
         ": an IDX file of images is named as in train-images-idx3-ubyte, so that its labels are found");
  replace_last(name, "images", "labels");
  replace_last(name, "idx3", "idx1");
  replace_last(name, "idx4", "idx1");
  if (name.ends_with(".gz")) name.resize(name.size() - 3);
  const fs::path plain = fs::path(pictures).parent_path() / name;
  for (const char* ending : {"", ".gz"})
    if (fs::exists(plain.string() + ending)) return plain.string() + ending;
  fail(pictures, " has no labels next to it: ", plain.string(), "[.gz] does not exist");
}

struct Idx {
  std::string path;
  std::vector<std::byte> unpacked;  // if gzipped
  std::optional<MappedFile> map;    // if not gzipped
  std::vector<int64_t> shape;
  std::span<const std::byte> values;
};

std::shared_ptr<const Idx> read_idx(const std::string& path) {
  auto idx = std::make_shared<Idx>();
  idx->path = path;
  idx->map.emplace(path);
  auto bytes = idx->map->bytes();
  if (is_gzip(bytes)) {
    idx->unpacked = inflate_gzip(bytes, path);
    idx->map.reset();
    bytes = idx->unpacked;
  }
  const auto at = [&](size_t i) { return std::to_integer<uint64_t>(bytes[i]); };
  if (bytes.size() < 4 || at(0) != 0 || at(1) != 0)
    fail(path, " is no IDX file: it does not start with two zero bytes");
  if (at(2) != 8) fail(path, " holds IDX values of type ", at(2), ", must be 8 (unsigned bytes)");
  const size_t dimensions = at(3), header = 4 + 4 * dimensions;
  if (dimensions < 1 || dimensions > 4) fail(path, " has ", dimensions, " dimensions, must be 1 to 4");
  if (bytes.size() < header)
    fail(path, " is truncated: its header has ", header, " bytes, the file ", bytes.size());
  uint64_t values = 1;
  for (size_t d = 0; d < dimensions; ++d) {
    const size_t place = 4 + 4 * d;
    const uint64_t extent = at(place) << 24 | at(place + 1) << 16 | at(place + 2) << 8 | at(place + 3);
    if (extent != 0 && values > bytes.size() / extent)
      values = UINT64_MAX / 2;  // more values than the file can contain
    else
      values *= extent;
    idx->shape.push_back(static_cast<int64_t>(extent));
  }
  if (values != bytes.size() - header) {
    std::string shape;
    for (const int64_t extent : idx->shape) shape += (shape.empty() ? "" : "x") + std::to_string(extent);
    fail(path, " has ", bytes.size() - header, " bytes of values, its header requires ", shape);
  }
  idx->values = bytes.subspan(header);
  return idx;
}

Image picture_of(const Idx& idx, int64_t number) {
  const int64_t height = idx.shape[1], width = idx.shape[2],
                channels = idx.shape.size() == 4 ? idx.shape[3] : 1;
  const auto* in = reinterpret_cast<const uint8_t*>(idx.values.data()) + number * height * width * channels;
  Image image(static_cast<int>(width), static_cast<int>(height), 3);
  if (channels == 3) {
    std::copy_n(in, image.pixels.size(), image.pixels.begin());
  } else {
    for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = in[i / 3];
  }
  return image;
}

}  // namespace

bool is_idx_path(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return !folder_below(path, has_pictures, true).empty();
  return fs::is_regular_file(path, error) && is_pictures_name(fs::path(path).filename().string());
}

std::unique_ptr<Source> open_idx(const SourceConfig& config, Split split) {
  const Pictures place = find_split(config, split);
  const auto pictures = read_idx(place.path), labels = read_idx(labels_path(place.path));
  const auto& shape = pictures->shape;
  if (shape.size() < 3 || (shape.size() == 4 && shape[3] != 1 && shape[3] != 3))
    fail(pictures->path, " must hold images: 3 dimensions (n, height, width), or 4 with 1 or 3 channels");
  if (shape[1] > 0 && shape[2] > DecodeOptions().max_pixels / shape[1])
    fail(pictures->path, " holds images of ", shape[2], "x", shape[1], ", at most ",
         DecodeOptions().max_pixels, " pixels are taken");
  if (shape[1] < 1 || shape[2] < 1 || shape[1] > kMostSide || shape[2] > kMostSide)
    fail(pictures->path, " holds images of ", shape[2], "x", shape[1], ", must be 1 to ", kMostSide,
         " a side");
  if (labels->shape.size() != 1)
    fail(labels->path, " has ", labels->shape.size(), " dimensions, labels must have 1");
  if (labels->shape[0] != shape[0])
    fail(labels->path, " holds ", labels->shape[0], " labels, but ", pictures->path, " ", shape[0],
         " images");
  RecordSet set;
  set.kind = "IDX";
  set.shown = place.path;
  set.files = {{pictures->path, pictures->values}};
  for (int64_t i = 0; i < shape[0]; ++i)
    set.records.push_back({0, i, std::to_integer<int64_t>(labels->values[static_cast<size_t>(i)])});
  set.picture = [pictures](const Record& record) { return picture_of(*pictures, record.number); };
  return make_record_source(std::move(set), config, split, place.by_share);
}

}  // namespace tessera::data
