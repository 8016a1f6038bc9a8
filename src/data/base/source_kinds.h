// Shared code of the source kinds, and the openers in the table of source.cpp. Internal to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "data/base/class_names.h"
#include "data/base/source.h"

namespace tessera::data {

struct CheckedSet;

// One row of the table in source.cpp.
struct SourceKind {
  const char* name;     // "ImageFolder"
  const char* example;  // an example of such a path, for the error about an unknown kind
  bool (*matches)(const std::string& path);
  std::unique_ptr<Source> (*open)(const SourceConfig& config, Split split);
  // For kinds without images: their content, and their own `data check`.
  const char* without_images = nullptr;
  CheckedSet (*check)(const SourceConfig& config, int64_t show) = nullptr;
};

// Returns the kind of the source at a path. Throws a usage error if no kind fits.
const SourceKind& find_source_kind(const std::string& path);
// Adds a custom kind, which precedes those of the table.
void add_source_kind(const SourceKind& kind);

bool is_shapes_objects_path(const std::string& path);
bool is_coco_path(const std::string& path);
bool is_voc_path(const std::string& path);
bool is_yolo_path(const std::string& path);
bool is_labelme_path(const std::string& path);
bool is_mask_files_path(const std::string& path);
bool is_shapes_path(const std::string& path);
bool is_folder_path(const std::string& path);
bool is_metadata_path(const std::string& path);
bool is_metadata_objects_path(const std::string& path);
bool is_webdataset_path(const std::string& path);
bool is_table_path(const std::string& path);
bool is_coco_captions_path(const std::string& path);
bool is_cifar_path(const std::string& path);
bool is_idx_path(const std::string& path);
bool is_npz_path(const std::string& path);
bool is_latents_path(const std::string& path);
bool is_named_path(const std::string& path);
bool is_masks_path(const std::string& path);
bool is_text_path(const std::string& path);
bool is_mask_shards_path(const std::string& path);
std::unique_ptr<Source> open_shapes_objects(const SourceConfig& config, Split split);
std::unique_ptr<Source> open_coco(const SourceConfig& config, Split split);
std::unique_ptr<Source> open_voc(const SourceConfig& config, Split split);
std::unique_ptr<Source> open_yolo(const SourceConfig& config, Split split);
std::unique_ptr<Source> open_labelme(const SourceConfig& config, Split split);
std::unique_ptr<Source> open_mask_files(const SourceConfig& config, Split split);
std::unique_ptr<Source> open_shapes(const SourceConfig& config, Split split);
std::unique_ptr<Source> open_folder(const SourceConfig& config, Split split);
std::unique_ptr<Source> open_metadata(const SourceConfig& config, Split split);
std::unique_ptr<Source> open_metadata_objects(const SourceConfig& config, Split split);
std::unique_ptr<Source> open_webdataset(const SourceConfig& config, Split split);
std::unique_ptr<Source> open_table(const SourceConfig& config, Split split);
std::unique_ptr<Source> open_coco_captions(const SourceConfig& config, Split split);
std::unique_ptr<Source> open_cifar(const SourceConfig& config, Split split);
std::unique_ptr<Source> open_idx(const SourceConfig& config, Split split);
std::unique_ptr<Source> open_npz(const SourceConfig& config, Split split);
std::unique_ptr<Source> open_latents(const SourceConfig& config, Split split);
std::unique_ptr<Source> open_named(const SourceConfig& config, Split split);
std::unique_ptr<Source> open_masks(const SourceConfig& config, Split split);
std::unique_ptr<Source> open_text(const SourceConfig& config, Split split);
std::unique_ptr<Source> open_mask_shards(const SourceConfig& config, Split split);
// File next to shards of images with masks: {"classes": [names]}.
inline constexpr const char* kMaskMarker = "masks.json";

// Returns the folder of masks of a set in Pascal VOC's layout: the path, if it is SegmentationClass next to JPEGImages, or
// SegmentationClass in it, if it has no boxes or `over_boxes`. "" for other sets.
std::string voc_masks(const std::string& path, bool over_boxes = false);
// Returns the table of the images in a folder of metadata, of a split folder's images or of all; "" without one.
std::string metadata_file(const std::string& path, Split split);
// Returns annotations/captions_train2017.json of a folder by its split; "" without one.
std::string coco_captions_file(const std::string& folder, Split split);
// The images with masks of a split by ImageSets/Segmentation next to that folder.
struct VocMaskList {
  std::string file;                // "" without lists: all images with masks
  std::vector<std::string> names;  // without suffix
  bool by_share = false;           // without a list for validation
};
VocMaskList voc_mask_list(const std::string& masks, Split split, bool own_path);

// Returns the path of this split; for the held-out split it is val_path, if set.
const std::string& path_of(const SourceConfig& config, Split split);

// Returns the samples of a split if the source defines no split of its own. If the other split has its own
// path: all samples. Otherwise, of each class with n names, the round(val_share * n) with the lowest hashes
// are held out (at least one of a class with two or more, if val_share > 0). Samples with the same name stay
// together, in the share of their lowest label. The choice depends only on names and split_seed. `labels` may
// contain -1 (multi-label), which counts as one more class.
std::vector<int64_t> select_split(const SourceConfig& config, Split split,
                                  const std::vector<std::string>& names, const std::vector<int64_t>& labels);

// Expands "train-{000..004}.tar" and "{a,b}.tar" in order; at most 100,000 paths.
std::vector<std::string> expand_braces(const std::string& path);

// Hides the classes of a source whose only class has no name, because its images have no labels.
std::unique_ptr<Source> without_labels(std::unique_ptr<Source> one_class);

// Returns "0", "1", … for sets without class names.
std::vector<std::string> numbered_classes(int64_t count);

// Collects lines about a set. Stores the first million and counts all.
class ProblemList {
 public:
  template <class... Parts>
  void add(const Parts&... parts) {
    if (++count_ <= kMost) lines_.push_back(text(parts...));
  }
  void add(const ProblemList& others);
  std::vector<std::string> lines() const;

 private:
  static constexpr int64_t kMost = 1'000'000;
  int64_t count_ = 0;
  std::vector<std::string> lines_;
};

// Returns a line for a file of labels in the own form of a labelling tool, which is not read; "" for other files.
std::string unread_labels(const std::string& path);
// Throws a usage error for such a file, and for a container of images that is not read, by its suffix (.parquet, .h5, .zip).
void refuse_foreign_file(const std::string& path);
// The same for a folder without images that has such files.
void refuse_foreign_files(const std::string& folder);

// Returns the folder that fits: the one given, `raw` in it if `prefers_raw`, or that of the only folder in it. "" if none
// does.
std::string folder_below(const std::string& path, bool (*fits)(const std::string& folder), bool prefers_raw);

// The largest encoded image that is read into memory.
inline constexpr uint64_t kMaxPictureBytes = uint64_t{256} << 20;
// A sample's name is made printable and truncated to this length, to fit on an error line.
inline constexpr size_t kMostNameBytes = 4096;

// True if the held-out set has a separate path; it then takes its classes from the training set.
bool has_training_path(const SourceConfig& config);

// Returns the class names of the training split, for a held-out set without its own. Empty if the training
// split has no classes (documents, unlabelled images); then the held-out set uses its own.
std::vector<std::string> training_classes(const SourceConfig& config);

// Sorts class names as config.class_order requires; it throws a usage error for an unknown order. The natural
// order is timm's: numbers in names by their value, letters without case.
void order_classes(std::vector<std::string>& names, const SourceConfig& config);

// Returns class names for numeric labels: "0" to the largest. If they count from 1, or if fewer than half of
// these numbers occur, as in years, the names are the numbers that do occur. Negative numbers are left out.
std::vector<std::string> classes_of_numbers(std::vector<int64_t> labels);
// True if class names are numbers other than "0", "1", …; labels then refer to these names.
bool are_chosen_numbers(const std::vector<std::string>& classes);
// Returns the class of a numeric label, -1 if there is none.
int64_t class_of_number(int64_t number, const std::vector<std::string>& classes, bool chosen);
// Returns a line about classes of chosen numbers.
std::string chosen_numbers_line(const std::string& where, const std::vector<std::string>& classes);

// Adds a line for each class without samples.
void find_empty_classes(const std::string& where, const std::vector<std::string>& classes,
                        const std::vector<int64_t>& counts, ProblemList& problems);

// XXH3 over everything in a set that a run depends on.
class Fingerprint {
 public:
  Fingerprint();
  ~Fingerprint();
  Fingerprint(const Fingerprint&) = delete;
  Fingerprint& operator=(const Fingerprint&) = delete;
  void add(std::string_view part);  // length and bytes, so that adjacent parts cannot be confused
  void add(int64_t number);
  void add(const std::vector<std::string>& parts);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Comma- or tab-separated text by RFC 4180. Internal to this folder.

struct CsvRow {
  int64_t line = 0;  // first line of the row, counted from 1
  std::vector<std::string> fields;
};

// Parses CSV. Quoted fields may contain separators, line ends and doubled quotes. Lines end in LF or CRLF.
// Blank lines, lines of separators alone, comments (#) before the first row and a byte order mark are skipped.
// If tabs or bars separate, a quote inside a field is part of the text.
// Throws an Error with `name` and the line for a quote inside an unquoted field otherwise, text after a closing
// quote, or a missing closing quote.
std::vector<CsvRow> parse_csv(std::string_view content, char separator, const std::string& name);

// Returns the rows of a table in words after their number, as CelebA writes its attributes: "202599", the titles without
// that of the images, and a line for each image. Returns none for other texts.
std::vector<CsvRow> counted_rows(const std::string& content);

// The usual names of training and held-out data, in folders, shards and tables.

// Returns the split of a usual name, in any case: train, training, trn; val, valid, validation, dev, eval,
// evaluation, holdout, test, testing, tst; also as a part of the name ("seg_train", "train2017", "TestSet").
std::optional<Split> split_of_name(std::string_view name);

// True for a name of test data (test, testing, tst), which is held out only if there is none for validation.
bool is_test_name(std::string_view name);

// Returns the name of a split's folder among `folders`, "" if there is none. Full names take precedence over
// names with such a part, and validation over test. Throws if several parts fit; `where` names their folder.
std::string split_folder(const std::vector<std::string>& folders, Split split, const std::string& where);

}  // namespace tessera::data
