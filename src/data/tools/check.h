// Reads a whole set before training and reports every problem.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/base/source.h"

namespace tessera::data {

// Called by one thread between pieces of work, with the number of finished images.
using Progress = std::function<void(int64_t done, int64_t total)>;

// Lines of one kind: counts all, keeps the first 1000.
struct Lines {
  int64_t count = 0;
  std::vector<std::string> lines;
  void add(std::string line);
  // Returns "TITLE: 3" and the first `show` lines; "" if there are none.
  std::string text(const std::string& title, int64_t show) const;
  nlohmann::ordered_json json() const { return {{"count", count}, {"lines", lines}}; }
};

struct SplitCheck {
  std::string name;         // "train" or "validation"
  std::string description;  // Source::describe()
  int64_t pictures = 0, readable = 0;
  std::vector<std::string> classes;
  std::vector<int64_t> class_counts;
  std::string counted = "images";          // by class_counts: images or objects
  std::map<std::string, int64_t> formats;  // "jpeg", "png", "webp", "pixels"
  // Readable images by shorter side: entry k counts those with 2^k to 2^(k+1)-1 pixels.
  std::map<int, int64_t> sides;
  int smallest_side = 0, largest_side = 0;  // shorter side, longer side
  int64_t oriented = 0;                     // images with an EXIF orientation, which is applied
};

struct CheckReport {
  std::vector<SplitCheck> splits;
  Lines set;         // cannot be opened, empty class, label out of range, image without a label, …
  Lines unreadable;  // missing, truncated, not an image, too many pixels
  Lines duplicates;  // the same bytes twice in a split
  Lines leaks;       // the same bytes in training and held-out images
  Lines captions;    // problems of captions: missing, empty, duplicate, truncated, …
  Lines warnings;    // not errors by themselves: nearly constant images
  int64_t problems() const {
    return set.count + unreadable.count + duplicates.count + leaks.count + captions.count;
  }
};

// Decodes every image of both splits on all compute threads. Skips a split that does not exist (val_share =
// 0). Throws only usage errors, and ErrorKind::interrupted after SIGINT.
CheckReport check_data(const SourceConfig& config, const Progress& progress = {});

// Opens the existing splits, including those with problems; the first is the training split.
struct OpenSplits {
  std::unique_ptr<Source> train, validation;  // null if it cannot be opened or is empty
  std::vector<std::string> errors;            // errors of splits that cannot be opened
  // Returns the errors and the sources' problems. Lines that both splits report from one file appear once.
  std::vector<std::string> problems() const;
};
OpenSplits open_splits(const SourceConfig& config);

// `data check` of sets without images: latents and plain texts.

struct CheckedSet {
  std::string text;  // readable text, with `show` lines of each kind of problem
  nlohmann::ordered_json json;
  int64_t problems = 0;
};

// Reads all latents of both splits. Throws if they belong to different VAEs.
CheckedSet check_latents(const SourceConfig& config, int64_t show);

// Reads all documents of both splits, and reports those that occur twice or in both.
CheckedSet check_texts(const SourceConfig& config, int64_t show);

// Samples for inspection: decoded, with their label as caption.

struct PreviewCell {
  Image picture;        // empty (no pixels) if the sample cannot be read
  std::string caption;  // class name; "a, b" for several; the first caption of a set without classes
  std::string numbers;  // the same with class numbers: "class 3", "classes 0, 3"
  std::string error;
};

// Returns `count` random samples (by seed) in order of class, shrunk to side x side if they are larger.
std::vector<PreviewCell> preview_cells(const Source& source, int64_t count, uint64_t seed, int side);

}  // namespace tessera::data
