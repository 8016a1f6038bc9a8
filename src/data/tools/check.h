// Reads a whole set before anything is trained on it and reports all that is wrong.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "data/base/source.h"

namespace tessera::data {

// Called between pieces of work, from one thread: how many of how many pictures are done.
using Progress = std::function<void(int64_t done, int64_t total)>;

// Lines of one kind: all counted, the first 1000 kept.
struct Lines {
  int64_t count = 0;
  std::vector<std::string> lines;
  void add(std::string line);
};

struct SplitCheck {
  std::string name;         // "train" or "validation"
  std::string description;  // Source::describe()
  int64_t pictures = 0, readable = 0;
  std::vector<std::string> classes;
  std::vector<int64_t> class_counts;
  bool counts_objects = false;             // class_counts are those of objects, not of images
  std::map<std::string, int64_t> formats;  // "jpeg", "png", "webp", "pixels"
  // Readable pictures by their shorter side: the number of those from 2^k to 2^(k+1)-1 pixels.
  std::map<int, int64_t> sides;
  int smallest_side = 0, largest_side = 0;  // shorter side, longer side
};

struct CheckReport {
  std::vector<SplitCheck> splits;
  Lines set;         // cannot be opened, empty class, label out of range, picture without a label, …
  Lines unreadable;  // missing, truncated, not an image, too many pixels
  Lines duplicates;  // the same bytes twice in a split
  Lines leaks;       // the same bytes in training and held-out pictures
  Lines
      captions;  // of sets with captions: none, an empty one, one twice, one that was cut, control characters
  int64_t problems() const {
    return set.count + unreadable.count + duplicates.count + leaks.count + captions.count;
  }
};

// Decodes every picture of both splits on all compute threads. A split that does not exist (val_share = 0) is
// left out. Throws only for usage errors, and with ErrorKind::interrupted after SIGINT.
CheckReport check_data(const SourceConfig& config, const Progress& progress = {});

// Opens the splits that exist, with their problems; the first is the training split.
struct OpenSplits {
  std::unique_ptr<Source> train, validation;  // null where it cannot be opened or holds nothing
  std::vector<std::string> errors;            // of what cannot be opened
  // Errors and the problems of the sources; what both splits report, as they come from one file, stands once.
  std::vector<std::string> problems() const;
};
OpenSplits open_splits(const SourceConfig& config);

}  // namespace tessera::data
