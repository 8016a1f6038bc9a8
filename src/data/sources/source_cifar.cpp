// The binary files of CIFAR-10 and CIFAR-100 (Krizhevsky, "Learning Multiple Layers of Features from Tiny
// Images", 2009). A record contains one label byte (CIFAR-100: coarse, then fine; the fine one is the class)
// and 32x32 red, green, blue planes.
//
// A folder: data_batch_1.bin … and test_batch.bin with batches.meta.txt, or train.bin and test.bin with
// fine_label_names.txt; or one such file.
#include <algorithm>
#include <filesystem>
#include <memory>

#include "core/error.h"
#include "data/base/source_kinds.h"
#include "data/base/source_records.h"
#include "io/files/file.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSide = 32, kPlane = kSide * kSide;

struct Layout {
  const char* kind;
  size_t label_bytes, classes;
  const char* names_file;
  size_t record_bytes() const { return label_bytes + 3 * kPlane; }
};
constexpr Layout kCifar10 = {"CIFAR-10", 1, 10, "batches.meta.txt"};
constexpr Layout kCifar100 = {"CIFAR-100", 2, 100, "fine_label_names.txt"};

struct Files {
  std::vector<std::string> paths;
  bool by_share = false;
};

Files find_files(const SourceConfig& config, Split split) {
  const std::string& path = path_of(config, split);
  const bool own_path = !config.val_path.empty();
  if (!fs::is_directory(path)) return {{path}, !own_path};
  const fs::path folder = path;
  std::vector<std::string> train;
  constexpr int kMostBatches = 100;
  const auto batch = [&](int i) { return folder / text("data_batch_", i, ".bin"); };
  for (int i = 1; i <= kMostBatches; ++i) {
    if (!fs::exists(batch(i))) continue;
    if (std::ssize(train) + 1 < i)
      fail(batch(std::ssize(train) + 1).string(), " is missing: ", batch(i).string(), " exists");
    train.push_back(batch(i).string());
  }
  if (train.empty() && fs::exists(folder / "train.bin")) train.push_back((folder / "train.bin").string());
  for (const char* name : {"test_batch.bin", "test.bin"}) {
    if (!fs::exists(folder / name)) continue;
    if (split == Split::validation) return {{(folder / name).string()}, false};
    if (train.empty()) fail(path, " has ", name, " but no data_batch_1.bin or train.bin to train on");
    return {train, false};
  }
  return {train, !own_path};
}

// Recognises CIFAR-100's files by name, or by a size that is a multiple of only its record size.
const Layout& layout_of(const std::string& path, size_t bytes) {
  const std::string name = fs::path(path).filename().string();
  if (name == "train.bin" || name == "test.bin") return kCifar100;
  return bytes % kCifar10.record_bytes() != 0 && bytes % kCifar100.record_bytes() == 0 ? kCifar100 : kCifar10;
}

}  // namespace

bool is_cifar_path(const std::string& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) return path.ends_with(".bin");
  for (const char* name : {"data_batch_1.bin", "train.bin", "test_batch.bin", "test.bin"})
    if (fs::is_regular_file(fs::path(path) / name, error)) return true;
  return false;
}

std::unique_ptr<Source> open_cifar(const SourceConfig& config, Split split) {
  const Files files = find_files(config, split);
  const auto maps = std::make_shared<std::vector<MappedFile>>();
  for (const std::string& path : files.paths) maps->emplace_back(path);
  const Layout& layout = layout_of(files.paths[0], (*maps)[0].bytes().size());
  const size_t record_bytes = layout.record_bytes();

  RecordSet set;
  set.kind = layout.kind;
  set.shown = path_of(config, split);
  set.picture = [maps, &layout, record_bytes](const Record& record) {
    const auto* planes = reinterpret_cast<const uint8_t*>((*maps)[record.file].bytes().data()) +
                         static_cast<size_t>(record.number) * record_bytes + layout.label_bytes;
    Image image(kSide, kSide, 3);
    for (size_t i = 0; i < kPlane; ++i)
      for (size_t c = 0; c < 3; ++c) image.pixels[3 * i + c] = planes[c * kPlane + i];
    return image;
  };
  for (size_t f = 0; f < maps->size(); ++f) {
    const auto bytes = (*maps)[f].bytes();
    set.files.push_back({files.paths[f], bytes});
    if (bytes.size() % record_bytes != 0)
      set.problems.add(files.paths[f], " has ", bytes.size(), " bytes, not a whole number of ", layout.kind,
                       " records of ", record_bytes);
    for (size_t i = 0; i < bytes.size() / record_bytes; ++i)
      set.records.push_back({f, static_cast<int64_t>(i),
                             std::to_integer<int64_t>(bytes[i * record_bytes + layout.label_bytes - 1])});
  }
  const fs::path names = fs::path(files.paths[0]).parent_path() / layout.names_file;
  set.classes = fs::exists(names) ? read_class_names(names.string())
                                  : numbered_classes(static_cast<int64_t>(layout.classes));
  if (set.classes.size() != layout.classes)
    fail(names.string(), " holds ", set.classes.size(), " class names, ", layout.kind, " has ",
         layout.classes);
  return make_record_source(std::move(set), config, split, files.by_share);
}

}  // namespace tessera::data
