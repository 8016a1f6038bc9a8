// What classes are called: a user's own list, and ImageNet's for published heads that do not say.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::data {

// One name a line; trailing blank lines are dropped, a blank, repeated or non-UTF-8 name is an error.
std::vector<std::string> read_class_names(const std::string& path);

// The classes of a published head in its order, which is that of the synsets' numbers. A name is the synset's
// words in WordNet 3.0 ("tench, Tinca tinca"), with the synset behind it where two classes share them.
struct ImageNetClasses {
  std::vector<std::string> synsets;  // "n01440764"
  std::vector<std::string> names;
};
// Of a head with so many outputs: 1000 (ImageNet-1k), 21841 and 21843 (two forms of ImageNet-21k), 11221 (its
// cleaned form, Ridnik et al. 2021). Null for other numbers.
const ImageNetClasses* imagenet_classes(int64_t count);

// Whether two lists are the same classes in the same order: equal, or ImageNet's, by synset in one of them and
// by name in the other.
bool same_classes(const std::vector<std::string>& one, const std::vector<std::string>& other);

}  // namespace tessera::data
