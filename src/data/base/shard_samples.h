// The samples of a WebDataset shard: members of a tar archive with one key. Internal to the room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/base/source_kinds.h"
#include "data/base/source_labels.h"
#include "io/files/tar.h"

namespace tessera::data {

// The members of one sample, as indices into those of the archive.
struct ShardParts {
  static constexpr size_t kNone = SIZE_MAX;
  size_t picture = kNone, number = kNone, json = kNone, text = kNone;
};
using ShardSamples = std::vector<std::pair<std::string_view, ShardParts>>;  // by key, in archive order

// Splits a member's name at the first dot of its last path component, or at its last dot.
std::pair<std::string_view, std::string> split_member_name(std::string_view name, bool at_last = false);

// True for the ending of an image (".jpg").
bool is_image_ending(const std::string& ending);

// Groups an archive's members by their keys. A second member of the same kind is a problem.
ShardSamples samples_of(const TarArchive& archive, const std::string& path, ProblemList& problems);

// Takes the .txt files as labels if all of them are whole numbers and nothing else labels the images.
void take_numbers_as_labels(const TarArchive& archive, ShardSamples& samples);

// Returns the name of a member for error lines.
std::string name_of(const TarArchive& archive, size_t part);

// True if a sample has a .cls, or a .json that holds more than captions.
bool has_label(const TarArchive& archive, const ShardParts& parts);

// Returns the labels in the .json of a sample; none if it is broken.
std::vector<JsonLabel> labels_in_json(const TarArchive& archive, const ShardParts& parts);

// Samples with one label in .cls and another in .json.
class UnequalLabels {
 public:
  // Adds a sample unless its labels are equal, or cannot be compared: a name that is no class next to a number.
  void add(const TarArchive& archive, const ShardParts& parts, const ClassNames& names);
  void add(const UnequalLabels& others);
  // Returns a line with their number and the labels of the first; "" if there are none.
  std::string line(const std::string& set) const;

 private:
  int64_t count_ = 0;
  std::string first_;
};

}  // namespace tessera::data
