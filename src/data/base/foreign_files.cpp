// Containers of images and files of labels that other programs write and no kind of source reads, with the way to use them.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "core/error.h"
#include "core/text.h"
#include "data/base/image_files.h"
#include "data/base/source_kinds.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

struct Foreign {
  std::string_view suffix;
  const char* name;
  const char* remedy;
};

constexpr const char* kUnpack = "unpack it and give the folder";
constexpr const char* kSave = "save its images as files with a table of their labels, or as tar shards";

constexpr Foreign kForeign[] = {{".zip", "a zip archive", kUnpack},
                                {".7z", "a 7-Zip archive", kUnpack},
                                {".rar", "a RAR archive", kUnpack},
                                {".tar.bz2", "a tar archive with bzip2", kUnpack},
                                {".tar.xz", "a tar archive with xz", kUnpack},
                                {".tar.zst", "a tar archive with zstd", kUnpack},
                                {".parquet", "a Parquet file", kSave},
                                {".arrow", "an Arrow file", kSave},
                                {".feather", "an Arrow file", kSave},
                                {".h5", "an HDF5 file", kSave},
                                {".hdf5", "an HDF5 file", kSave},
                                {".mat", "a MATLAB file", kSave},
                                {".mdb", "an LMDB database", kSave},
                                {".tfrecord", "a TFRecord file", kSave},
                                {".tfrecords", "a TFRecord file", kSave},
                                {".rec", "a RecordIO file", kSave},
                                {".beton", "a file of FFCV", kSave},
                                {".pkl", "a Python pickle", kSave},
                                {".pickle", "a Python pickle", kSave},
                                {".npy", "a NumPy array", "save it as .npz with `arr_0`, and labels `arr_1`"},
                                {".xlsx", "an Excel workbook", "save it as CSV"},
                                {".xls", "an Excel workbook", "save it as CSV"},
                                {".mp4", "a video", "save its frames as images"},
                                {".mov", "a video", "save its frames as images"},
                                {".avi", "a video", "save its frames as images"},
                                {".mkv", "a video", "save its frames as images"},
                                {".webm", "a video", "save its frames as images"}};

// Labels in the own forms of labelling tools, by a word that their first bytes contain.
struct ForeignLabels {
  std::string_view suffix, word;
  const char* name;
};

constexpr ForeignLabels kForeignLabels[] = {
    {".json", "\"from_name\"", "Label Studio's own JSON"},
    {".json", "\"region_attributes\"", "a file of the VGG Image Annotator"},
    {".json", "\"_via_settings\"", "a file of the VGG Image Annotator"},
    {".json", "\"classTitle\"", "a file of Supervisely"},
    {".json", "\"data_row\"", "a file of Labelbox"},
    {".ndjson", "\"data_row\"", "a file of Labelbox"},
    {".xml", "<annotations>", "CVAT's own XML"}};

constexpr const char* kExport =
    "export objects as COCO, Pascal VOC or YOLO, and classes of images as CSV with columns `path` and "
    "`label`";

const Foreign* foreign_kind(const std::string& path) {
  const std::string name = lower(path);
  for (const Foreign& kind : kForeign)
    if (name.ends_with(kind.suffix)) return &kind;
  return nullptr;
}

// Returns the name of the form of a file of labels that is not read, null for other files.
const char* foreign_labels(const std::string& path) {
  const std::string name = lower(path);
  const auto is_of = [&](const ForeignLabels& one) { return name.ends_with(one.suffix); };
  std::error_code error;
  if (std::ranges::none_of(kForeignLabels, is_of) || !fs::is_regular_file(path, error)) return nullptr;
  std::ifstream file(path, std::ios::binary);
  std::string head(1 << 16, '\0');
  file.read(head.data(), std::ssize(head));
  head.resize(static_cast<size_t>(file.gcount()));
  for (const ForeignLabels& one : kForeignLabels)
    if (is_of(one) && head.find(one.word) != std::string::npos) return one.name;
  return nullptr;
}

}  // namespace

std::string unread_labels(const std::string& path) {
  const char* name = foreign_labels(path);
  return name ? text(path, " is ", name, ", which is not read: ", kExport) : "";
}

void refuse_foreign_file(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return;
  if (const std::string line = unread_labels(path); !line.empty()) fail_usage(line);
  if (const Foreign* kind = foreign_kind(path))
    fail_usage("data path '", path, "' is ", kind->name, ", which is not read: ", kind->remedy);
}

void refuse_foreign_files(const std::string& folder) {
  for (const std::string& path : files_below(folder))
    if (const Foreign* kind = foreign_kind(path))
      fail_usage("data path '", folder, "' has no images; '", path, "' is ", kind->name,
                 ", which is not read: ", kind->remedy);
}

}  // namespace tessera::data
