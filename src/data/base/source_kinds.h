// What the kinds of sources share, and the openers that the table in source.cpp lists. Internal to this
// folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "data/base/class_names.h"
#include "data/base/source.h"

namespace tessera::data {

// One row of the table in source.cpp.
struct SourceKind {
  const char* name;     // "ImageFolder"
  const char* example;  // what such a path looks like, for the line about an unknown kind
  bool (*matches)(const std::string& path);
  std::unique_ptr<Source> (*open)(const SourceConfig& config, Split split);
};

bool is_shapes_objects_path(const std::string& path);
bool is_coco_path(const std::string& path);
bool is_shapes_path(const std::string& path);
bool is_folder_path(const std::string& path);
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
std::unique_ptr<Source> open_shapes(const SourceConfig& config, Split split);
std::unique_ptr<Source> open_folder(const SourceConfig& config, Split split);
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
// Beside shards of images with masks: {"classes": [names]}.
inline constexpr const char* kMaskMarker = "masks.json";

// The path that holds this split: val_path for the held-out one where it is given.
const std::string& path_of(const SourceConfig& config, Split split);

// Which samples belong to a split where the source names no split of its own: all of them if the other split
// has a path of its own, otherwise per class the round(val_share * n) of n names that hash lowest are held
// out (at least one of a class with two or more, if val_share > 0). Samples of one name stay together, in the
// share of the lowest of their labels. The choice depends on names and split_seed only. `labels` may hold -1
// (multi-label), which counts as one more class.
std::vector<int64_t> select_split(const SourceConfig& config, Split split,
                                  const std::vector<std::string>& names, const std::vector<int64_t>& labels);

// "train-{000..004}.tar" and "{a,b}.tar" spelled out, in order; at most 100,000 paths.
std::vector<std::string> expand_braces(const std::string& path);

// A set whose pictures have no labels, opened as one of a single class without a name: that class is hidden.
std::unique_ptr<Source> without_labels(std::unique_ptr<Source> one_class);

// "0", "1", … for sets that name their classes nowhere.
std::vector<std::string> numbered_classes(int64_t count);

// Collects lines about a set, the first million of them; all are counted.
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

// The longest encoded picture that is read into memory.
inline constexpr uint64_t kMaxPictureBytes = uint64_t{256} << 20;
// A sample's name is printable and no longer, so that it stays on the line of an error.
inline constexpr size_t kMostNameBytes = 4096;

// True if the held-out set is another path than the training set, so that its classes are those of that one.
bool has_training_path(const SourceConfig& config);

// The class names of the training split, for a held-out set that does not name its own; empty where the training split
// has no classes (documents, images alone), so that the held-out set has its own.
std::vector<std::string> training_classes(const SourceConfig& config);

// Adds a line for each class that no sample has.
void find_empty_classes(const std::string& where, const std::vector<std::string>& classes,
                        const std::vector<int64_t>& counts, ProblemList& problems);

// XXH3 over what a run depends on.
class Fingerprint {
 public:
  Fingerprint();
  ~Fingerprint();
  Fingerprint(const Fingerprint&) = delete;
  Fingerprint& operator=(const Fingerprint&) = delete;
  void add(std::string_view part);  // length and bytes, so that parts cannot run into each other
  void add(int64_t number);
  void add(const std::vector<std::string>& parts);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::data
