// Class names: a user's own list, and ImageNet's for published heads without names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::data {

// Reads one name per line and drops trailing blank lines. Throws if a name is blank, repeated or not UTF-8.
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

// Returns names that a text can use: for synsets of ImageNet their first words ("tench" of n01440764), the whole
// name if two classes share them. Other lists are returned unchanged.
std::vector<std::string> spoken_names(const std::vector<std::string>& classes);

// True if two lists contain the same classes in the same order: equal, or ImageNet's by synset in one and by
// name in the other.
bool same_classes(const std::vector<std::string>& one, const std::vector<std::string>& other);

}  // namespace tessera::data
