// The binary files of CIFAR-10 and CIFAR-100 (Krizhevsky, "Learning Multiple Layers of Features from Tiny
// Images", 2009). A record contains one label byte (CIFAR-100: coarse, then fine; the fine one is the class)
// and 32x32 red, green, blue planes.
//
// A folder: data_batch_1.bin … and test_batch.bin with batches.meta.txt, or train.bin and test.bin with
// fine_label_names.txt; or one such file. A folder may also have the Python form, as torchvision downloads it:
// data_batch_1 … and test_batch with batches.meta, or train and test with meta. These are pickles of the same
// planes (`data`), with `labels` or `fine_labels`. The files may be in a folder inside the one given.
//
// STL-10 (Coates et al., "An Analysis of Single-Layer Networks", 2011) is a folder with train_X.bin and train_y.bin, test_X.bin
// and test_y.bin, and class_names.txt: 96x96 planes stored column by column, and labels from 1.
#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>

#include "core/error.h"
#include "data/base/source_kinds.h"
#include "data/base/source_records.h"
#include "io/files/file.h"
#include "io/weights/numpy_pickle.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSide = 32, kPlane = kSide * kSide;

struct Layout {
  const char* kind;
  size_t label_bytes, classes;
  const char *names_file, *python_names_file, *names_key;
  size_t record_bytes() const { return label_bytes + 3 * kPlane; }
};
constexpr Layout kCifar10 = {"CIFAR-10", 1, 10, "batches.meta.txt", "batches.meta", "label_names"};
constexpr Layout kCifar100 = {"CIFAR-100", 2, 100, "fine_label_names.txt", "meta", "fine_label_names"};

struct Files {
  std::vector<std::string> paths;
  bool by_share = false;
};

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// Returns the batches by their numbers. `ending` is ".bin", or "" for the Python form.
std::vector<std::string> numbered_batches(const fs::path& folder, const std::string& ending) {
  std::vector<std::string> train;
  constexpr int kMostBatches = 100;
  const auto batch = [&](int64_t i) { return folder / text("data_batch_", i, ending); };
  for (int i = 1; i <= kMostBatches; ++i) {
    if (!is_file(batch(i))) continue;
    if (std::ssize(train) + 1 < i)
      fail(batch(std::ssize(train) + 1).string(), " is missing: ", batch(i).string(), " exists");
    train.push_back(batch(i).string());
  }
  return train;
}

bool has_binary(const fs::path& folder) {
  constexpr std::array kNames = {"data_batch_1.bin", "train.bin", "test_batch.bin", "test.bin"};
  return std::ranges::any_of(kNames, [&](const char* name) { return is_file(folder / name); });
}

bool has_python(const fs::path& folder) {
  const auto has = [&](const char* name) { return is_file(folder / name); };
  return (has("batches.meta") && (has("data_batch_1") || has("test_batch"))) ||
         (has("meta") && (has("train") || has("test")));
}

bool has_stl(const std::string& folder) {
  return is_file(folder + "/train_X.bin") || is_file(folder + "/test_X.bin");
}

bool has_files(const std::string& folder) {
  return has_binary(folder) || has_python(folder) || has_stl(folder);
}

Files find_files(const SourceConfig& config, Split split) {
  const std::string& path = path_of(config, split);
  const bool own_path = !config.val_path.empty();
  if (!fs::is_directory(path)) return {{path}, !own_path};
  const fs::path folder = folder_below(path, has_files, true);
  const std::string ending = has_binary(folder) ? ".bin" : "";
  std::vector<std::string> train = numbered_batches(folder, ending);
  if (train.empty() && is_file(folder / ("train" + ending)))
    train.push_back((folder / ("train" + ending)).string());
  for (const std::string& name : {"test_batch" + ending, "test" + ending}) {
    if (!is_file(folder / name)) continue;
    if (split == Split::validation) return {{(folder / name).string()}, false};
    if (train.empty())
      fail(path, " has ", name, " but no data_batch_1", ending, " or train", ending, " to train on");
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

// One file: its records' planes and labels.
struct PlaneFile {
  std::shared_ptr<const MappedFile> map;
  std::span<const std::byte> planes;  // of the first record
  size_t stride = 0;                  // from one record to the next
  std::vector<int64_t> labels;
};

PlaneFile read_binary(const std::string& path, const Layout& layout, ProblemList& problems) {
  PlaneFile batch{std::make_shared<const MappedFile>(path), {}, layout.record_bytes(), {}};
  const auto bytes = batch.map->bytes();
  if (bytes.size() % batch.stride != 0)
    problems.add(path, " has ", bytes.size(), " bytes, not a whole number of ", layout.kind, " records of ",
                 batch.stride);
  for (size_t i = 0; i < bytes.size() / batch.stride; ++i)
    batch.labels.push_back(std::to_integer<int64_t>(bytes[i * batch.stride + layout.label_bytes - 1]));
  batch.planes = bytes.subspan(std::min(layout.label_bytes, bytes.size()));
  return batch;
}

// --- The Python form

std::string_view word(const PickleNode& node) {
  return node.kind == PickleNode::Kind::bytes ? node.raw : node.text;
}

Pickle read_python(const MappedFile& map, const std::string& path) {
  constexpr std::array<std::string_view, 5> kAllowed = {"numpy.core.multiarray._reconstruct",
                                                        "numpy._core.multiarray._reconstruct",
                                                        "numpy.ndarray", "numpy.dtype", "_codecs.encode"};
  Pickle pickle = read_pickle(map.bytes(), path, kAllowed);
  if (pickle.at(pickle.root).kind != PickleNode::Kind::dict) fail(path, " is no dictionary of CIFAR");
  return pickle;
}

// Returns the value of a key, or nothing.
std::optional<uint32_t> value_of(const Pickle& pickle, std::string_view key) {
  const std::vector<uint32_t>& items = pickle.at(pickle.root).items;
  for (size_t i = 0; i + 1 < items.size(); i += 2)
    if (word(pickle.at(items[i])) == key) return items[i + 1];
  return std::nullopt;
}

PlaneFile read_python_batch(const std::string& path, const Layout& layout) {
  PlaneFile batch{std::make_shared<const MappedFile>(path), {}, 3 * kPlane, {}};
  const Pickle pickle = read_python(*batch.map, path);
  const auto data = value_of(pickle, "data");
  const auto labels = value_of(pickle, layout.classes == 100 ? "fine_labels" : "labels");
  if (!data || !is_numpy_array(pickle, *data) || !labels) fail(path, " has no 'data' and labels of CIFAR");
  const NumpyArray array = read_numpy_array(pickle, *data, path + ": data");
  for (const uint32_t item : pickle.at(*labels).items) batch.labels.push_back(pickle.at(item).integer);
  const auto count = std::ssize(batch.labels);
  if (array.dtype != DType::u8 || array.column_major ||
      array.shape != std::vector<int64_t>{count, static_cast<int64_t>(batch.stride)})
    fail(path, ": data must hold bytes [", count, ", ", batch.stride, "], one row for each label");
  batch.planes = array.bytes;
  return batch;
}

std::vector<std::string> python_names(const std::string& path, const Layout& layout) {
  const MappedFile map(path);
  const Pickle pickle = read_python(map, path);
  std::vector<std::string> names;
  if (const auto list = value_of(pickle, layout.names_key))
    for (const uint32_t item : pickle.at(*list).items) names.emplace_back(word(pickle.at(item)));
  return names;
}

// --- STL-10

constexpr size_t kStlSide = 96, kStlPlane = kStlSide * kStlSide, kStlClasses = 10;

// Reads a split's images and labels, which count from 1.
PlaneFile read_stl(const std::string& folder, const std::string& name) {
  const std::string images = folder + "/" + name + "_X.bin", labels = folder + "/" + name + "_y.bin";
  PlaneFile batch{std::make_shared<const MappedFile>(images), {}, 3 * kStlPlane, {}};
  batch.planes = batch.map->bytes();
  const MappedFile numbers(labels);
  if (batch.planes.size() != numbers.bytes().size() * batch.stride)
    fail(images, " has ", batch.planes.size(), " bytes, must have ", batch.stride, " for each of the ",
         numbers.bytes().size(), " labels in ", labels);
  for (const std::byte label : numbers.bytes()) batch.labels.push_back(std::to_integer<int64_t>(label));
  return batch;
}

std::unique_ptr<Source> open_stl(const SourceConfig& config, Split split, const std::string& folder) {
  const bool has_test = is_file(folder + "/test_X.bin");
  const std::string name = split == Split::validation && has_test ? "test" : "train";
  const auto batch = std::make_shared<PlaneFile>(read_stl(folder, name));
  RecordSet set;
  set.kind = "STL-10", set.shown = path_of(config, split), set.first = 1;
  set.files.push_back({folder + "/" + name + "_X.bin", batch->map->bytes()});
  for (size_t i = 0; i < batch->labels.size(); ++i)
    set.records.push_back({0, static_cast<int64_t>(i), batch->labels[i]});
  set.picture = [batch](const Record& record) {
    const auto* planes = reinterpret_cast<const uint8_t*>(batch->planes.data()) +
                         static_cast<size_t>(record.number) * batch->stride;
    Image image(kStlSide, kStlSide, 3);
    for (size_t i = 0; i < kStlPlane; ++i)
      for (size_t c = 0; c < 3; ++c)
        image.pixels[3 * i + c] = planes[c * kStlPlane + i % kStlSide * kStlSide + i / kStlSide];
    return image;
  };
  const std::string names = folder + "/class_names.txt";
  set.classes = is_file(names) ? read_class_names(names) : numbered_classes(kStlClasses);
  return make_record_source(std::move(set), config, split, !has_test && config.val_path.empty());
}

}  // namespace

bool is_cifar_path(const std::string& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) return path.ends_with(".bin");
  return fs::is_directory(path, error) && !folder_below(path, has_files, true).empty();
}

std::unique_ptr<Source> open_cifar(const SourceConfig& config, Split split) {
  if (const std::string folder = folder_below(path_of(config, split), has_files, true);
      !folder.empty() && has_stl(folder))
    return open_stl(config, split, folder);
  const Files files = find_files(config, split);
  const bool python = !files.paths[0].ends_with(".bin");
  const fs::path folder = fs::path(files.paths[0]).parent_path();
  const Layout& layout = python ? is_file(folder / kCifar10.python_names_file) ? kCifar10 : kCifar100
                                : layout_of(files.paths[0], fs::file_size(files.paths[0]));
  RecordSet set;
  set.kind = layout.kind;
  set.shown = path_of(config, split);
  const auto batches = std::make_shared<std::vector<PlaneFile>>();
  for (const std::string& path : files.paths)
    batches->push_back(python ? read_python_batch(path, layout) : read_binary(path, layout, set.problems));
  set.picture = [batches](const Record& record) {
    const PlaneFile& batch = (*batches)[record.file];
    const auto* planes = reinterpret_cast<const uint8_t*>(batch.planes.data()) +
                         static_cast<size_t>(record.number) * batch.stride;
    Image image(kSide, kSide, 3);
    for (size_t i = 0; i < kPlane; ++i)
      for (size_t c = 0; c < 3; ++c) image.pixels[3 * i + c] = planes[c * kPlane + i];
    return image;
  };
  for (size_t f = 0; f < batches->size(); ++f) {
    const PlaneFile& batch = (*batches)[f];
    set.files.push_back({files.paths[f], batch.map->bytes()});
    for (size_t i = 0; i < batch.labels.size(); ++i)
      set.records.push_back({f, static_cast<int64_t>(i), batch.labels[i]});
  }
  const fs::path names = folder / (python ? layout.python_names_file : layout.names_file);
  set.classes = !fs::exists(names) ? numbered_classes(static_cast<int64_t>(layout.classes))
                : python           ? python_names(names.string(), layout)
                                   : read_class_names(names.string());
  if (set.classes.size() != layout.classes)
    fail(names.string(), " holds ", set.classes.size(), " class names, ", layout.kind, " has ",
         layout.classes);
  return make_record_source(std::move(set), config, split, files.by_share);
}

}  // namespace tessera::data
