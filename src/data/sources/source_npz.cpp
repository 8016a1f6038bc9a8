// NumPy's .npz with images: bytes [n, height, width, 3], [n, height, width, 1] or [n, height, width].
//
// `arr_0` is a batch of generated images in the exchange format of ADM's evaluation (Dhariwal & Nichol 2021), with
// labels `arr_1` [n] for class-conditional samples. Data sets have a pair of arrays for each split, as MedMNIST
// (`train_images`, `train_labels`, …) and Keras (`x_train`, `y_train`, …) write them.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "data/base/source_kinds.h"
#include "data/base/source_records.h"
#include "io/files/zip.h"

namespace tessera::data {
namespace {

constexpr int64_t kMostSide = 65536;

struct Arrays {
  const char *images, *labels;
  std::optional<Split> split;  // none: both; the first that fits counts, so validation precedes test
};
constexpr Arrays kArrays[] = {{"arr_0", "arr_1", {}},
                              {"train_images", "train_labels", Split::train},
                              {"x_train", "y_train", Split::train},
                              {"X_train", "y_train", Split::train},
                              {"val_images", "val_labels", Split::validation},
                              {"x_val", "y_val", Split::validation},
                              {"X_val", "y_val", Split::validation},
                              {"test_images", "test_labels", Split::validation},
                              {"x_test", "y_test", Split::validation},
                              {"X_test", "y_test", Split::validation},
                              {"images", "labels", {}}};

// Returns the arrays of a split; those of both splits if the file has none for it.
Arrays arrays_of(const NpzFile& file, Split split) {
  const auto first = [&](const auto& fits) -> const Arrays* {
    for (const Arrays& arrays : kArrays)
      if (file.holds(arrays.images) && fits(arrays)) return &arrays;
    return nullptr;
  };
  if (const Arrays* all = first([](const Arrays& one) { return !one.split; })) return *all;
  if (const Arrays* own = first([&](const Arrays& one) { return one.split == split; })) return *own;
  const Arrays* any = first([](const Arrays&) { return true; });
  return any ? Arrays{any->images, any->labels, {}} : kArrays[0];
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> extents;
  for (const int64_t extent : shape) extents.push_back(std::to_string(extent));
  return "[" + join(extents, ", ") + "]";
}

std::vector<int64_t> labels_in(const NpzFile& file, const Arrays& arrays, int64_t images) {
  if (!file.holds(arrays.labels)) return {};
  std::vector<int64_t> shape, labels;
  for (const double label : file.read_doubles(arrays.labels, shape))
    labels.push_back(static_cast<int64_t>(label));
  const bool column = shape.size() == 2 && shape[1] == 1;  // MedMNIST's
  check((shape.size() == 1 || column) && shape[0] == images, "'", file.path(), "': ", arrays.labels, " is ",
        shape_text(shape), ", must have one label for each of the ", images, " images of ", arrays.images);
  return labels;
}

// Throws unless the array holds images of a size that is read.
void check_images(const NpzArray& images, const std::string& name, const std::string& path) {
  const auto& shape = images.shape;
  const bool channels = shape.size() == 3 || (shape.size() == 4 && (shape[3] == 3 || shape[3] == 1));
  if (images.dtype != DType::u8 || !channels)
    fail("'", path, "': ", name, " is ", shape_text(shape), images.dtype == DType::u8 ? "" : ", not of bytes",
         ", must hold images, bytes [n, height, width, 3]");
  if (shape[1] < 1 || shape[2] < 1 || shape[1] > kMostSide || shape[2] > kMostSide ||
      shape[1] * shape[2] > DecodeOptions().max_pixels)
    fail("'", path, "': images of ", shape[2], "x", shape[1], ", must have 1 to ", kMostSide,
         " pixels a side");
}

Image picture_of(const NpzArray& images, int64_t number) {
  const int64_t height = images.shape[1], width = images.shape[2];
  const int64_t channels = images.shape.size() == 4 ? images.shape[3] : 1;
  Image image(static_cast<int>(width), static_cast<int>(height), 3);
  const auto* from =
      reinterpret_cast<const uint8_t*>(images.bytes.data()) + number * height * width * channels;
  if (channels == 3)
    std::copy_n(from, image.pixels.size(), image.pixels.begin());
  else
    for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = from[i / 3];
  return image;
}

}  // namespace

bool is_npz_path(const std::string& path) {
  std::error_code error;
  return path.ends_with(".npz") && std::filesystem::is_regular_file(path, error);
}

std::unique_ptr<Source> open_npz(const SourceConfig& config, Split split) {
  const std::string path = path_of(config, split);
  const NpzFile file(path);
  if (!file.holds("arr_0") && file.holds("mu"))
    fail("'", path, "' holds statistics of features, no images: it is a reference for `tessera fid` alone");
  const Arrays arrays = arrays_of(file, split);
  const auto images = std::make_shared<const NpzArray>(file.read(arrays.images));
  check_images(*images, arrays.images, path);
  const std::vector<int64_t> labels = labels_in(file, arrays, images->shape[0]);
  RecordSet set;
  set.kind = "npz";
  set.shown = path;
  set.files = {{path, images->bytes}};
  for (int64_t i = 0; i < images->shape[0]; ++i)
    set.records.push_back({0, i, labels.empty() ? 0 : labels[static_cast<size_t>(i)]});
  set.picture = [images](const Record& record) { return picture_of(*images, record.number); };
  const bool held_out = arrays_of(file, Split::validation).split.has_value();
  auto source = make_record_source(std::move(set), config, split, config.val_path.empty() && !held_out);
  return labels.empty() ? without_labels(std::move(source)) : std::move(source);
}

}  // namespace tessera::data
