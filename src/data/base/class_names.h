// Class names: a user's own list, and ImageNet's for published heads without names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::data {

// Reads a text file without its byte order mark, which Windows editors write. Throws if it is not UTF-8.
std::string read_list_text(const std::string& path, uint64_t max_bytes = uint64_t{16} << 20);

// Reads one name per line and drops trailing blank lines. A name that repeats is followed by its class number,
// or by its synset if the list is as long as one of ImageNet's: "crane (134)". Throws if a name is blank.
std::vector<std::string> read_class_names(const std::string& path);

// The classes of a published head, ordered by synset number. A name is the synset's words in WordNet 3.0
// ("tench, Tinca tinca"), followed by the synset if two classes share them.
struct ImageNetClasses {
  std::vector<std::string> synsets;  // "n01440764"
  std::vector<std::string> names;
};
// Returns the classes of a head with `count` outputs: 1000 (ImageNet-1k), 21841 and 21843 (two forms of
// ImageNet-21k), 11221 (its cleaned form, Ridnik et al. 2021). Returns null for other counts.
const ImageNetClasses* imagenet_classes(int64_t count);

// True if two lists contain the same classes in the same order: equal, or ImageNet's by synset in one and by
// name in the other.
bool same_classes(const std::vector<std::string>& one, const std::vector<std::string>& other);

}  // namespace tessera::data
