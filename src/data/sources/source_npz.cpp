// A batch of generated images in the exchange format of ADM's evaluation (Dhariwal & Nichol 2021): NumPy's
// .npz with `arr_0`, bytes [n, height, width, 3], and for class-conditional samples their labels `arr_1` [n].
#include <algorithm>
#include <filesystem>
#include <memory>

#include "core/error.h"
#include "data/base/source_kinds.h"
#include "data/base/source_records.h"
#include "io/files/zip.h"

namespace tessera::data {
namespace {

constexpr int64_t kMostSide = 65536;

std::vector<int64_t> labels_in(const NpzFile& file, int64_t images) {
  if (!file.holds("arr_1")) return {};
  std::vector<int64_t> shape, labels;
  for (const double label : file.read_doubles("arr_1", shape)) labels.push_back(static_cast<int64_t>(label));
  check(shape.size() == 1 && shape[0] == images, "'", file.path(), "': arr_1 holds ", labels.size(),
        " labels, arr_0 ", images, " images");
  return labels;
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
  const auto images = std::make_shared<const NpzArray>(file.read("arr_0"));
  const auto& shape = images->shape;
  if (images->dtype != DType::u8 || shape.size() != 4 || shape[3] != 3)
    fail("'", path, "': arr_0 must hold images, bytes [n, height, width, 3]");
  if (shape[1] < 1 || shape[2] < 1 || shape[1] > kMostSide || shape[2] > kMostSide ||
      shape[1] * shape[2] > DecodeOptions().max_pixels)
    fail("'", path, "': images of ", shape[2], "x", shape[1], ", must have 1 to ", kMostSide,
         " pixels a side");
  const std::vector<int64_t> labels = labels_in(file, shape[0]);
  RecordSet set;
  set.kind = "npz";
  set.shown = path;
  set.files = {{path, images->bytes}};
  for (int64_t i = 0; i < shape[0]; ++i)
    set.records.push_back({0, i, labels.empty() ? 0 : labels[static_cast<size_t>(i)]});
  set.picture = [images](const Record& record) {
    const int64_t height = images->shape[1], width = images->shape[2];
    Image image(static_cast<int>(width), static_cast<int>(height), 3);
    const auto* from =
        reinterpret_cast<const uint8_t*>(images->bytes.data()) + record.number * height * width * 3;
    std::copy_n(from, image.pixels.size(), image.pixels.begin());
    return image;
  };
  auto source = make_record_source(std::move(set), config, split, config.val_path.empty());
  return labels.empty() ? without_labels(std::move(source)) : std::move(source);
}

}  // namespace tessera::data
