// Class names: a user's own list, and ImageNet's for published heads without names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {
class YamlFile;
}

namespace tessera::data {

// Reads a text file of UTF-8, or of UTF-16 with its byte order mark, as UTF-8 without the mark, which Windows editors
// write. Line ends of old Macs (CR alone) become LF. Throws if it is neither.
std::string read_list_text(const std::string& path, uint64_t max_bytes = uint64_t{16} << 20);
// Returns the text without a byte order mark at its start.
std::string without_mark(std::string content);

// Reads one name per line and drops trailing blank lines, or JSON: a list of names, {"0": "tench"},
// {"0": ["n01440764", "tench"]} or {"tench": 0}. If numbers from 0 or 1 have gaps, the missing classes are "unused 12".
// Lines may begin with their number ("0: tench") or synset. A name that
// repeats is followed by its class number, or by its synset if the list is as long as one of ImageNet's: "crane (134)".
// Throws if a name is blank.
std::vector<std::string> read_class_names(const std::string& path);

// Classes with their numbers in label files, in ascending order; numbers may be missing.
struct NumberedClasses {
  std::vector<std::string> names = {};
  std::vector<int64_t> numbers = {};
};
// Returns `names` of YOLO's data.yaml, a list or numbered texts. Throws an error with the file and the line if a name or a
// number repeats, or `nc` has another number of classes.
NumberedClasses classes_of_yaml(const YamlFile& file);

// Reads the names of ADE20K's objectInfo150.txt or sceneparsing list: the last column of each line, up to its first comma.
std::vector<std::string> read_ade_names(const std::string& path);

// The classes of a published head, ordered by synset number. A name is the synset's words in WordNet 3.0
// ("tench, Tinca tinca"), followed by the synset if two classes share them.
struct ImageNetClasses {
  std::vector<std::string> synsets;  // "n01440764"
  std::vector<std::string> names;
};
// Returns the classes of a head with `count` outputs: 1000 (ImageNet-1k), 21841 and 21843 (two forms of
// ImageNet-21k), 11221 (its cleaned form, Ridnik et al. 2021). Returns null for other counts.
const ImageNetClasses* imagenet_classes(int64_t count);

// Returns names that a text can use: for synsets and names of ImageNet their first words ("tench" of n01440764 and of
// "tench, Tinca tinca"), the whole name if two classes share them. Underscores of other names become blanks, unless
// two names would be equal.
std::vector<std::string> spoken_names(const std::vector<std::string>& classes);

// True if two lists contain the same classes in the same order: equal, or ImageNet's with synsets in one and
// names in the other.
bool same_classes(const std::vector<std::string>& one, const std::vector<std::string>& other);

// The model's class for each class of a set.
struct ClassMapping {
  std::vector<int64_t> model_class;  // by the set's class
  std::string how;  // how: "the same classes", "by name", "by synset", "by number", "in their order"
};
// Maps classes by name, ImageNet's also by synset, or by number if the names are numbers of the model's
// classes (ImageNet V2). Maps them in order if the model has equally many classes without names, or if
// `in_order` is set. A set may have fewer classes than the model (ImageNet-A, -R). Otherwise throws a usage
// error with the classes that the model lacks, likely matches, and a mapping that would fit.
ClassMapping map_classes(const std::vector<std::string>& model_names, int64_t model_classes,
                         const std::vector<std::string>& set_names, const std::string& set,
                         bool in_order = false);

// Returns the first difference between two lists of classes, with `of_what` inserted after the class number:
// "class 1 is 'cat' in A, but absent in B". Returns "" if they are equal.
std::string first_difference(const std::vector<std::string>& a, const std::string& in_a,
                             const std::vector<std::string>& b, const std::string& in_b,
                             const std::string& of_what = "");

// Returns the names of a detector's `count` classes without the background. For 80: COCO's in order. For 90
// (from 1, as in torchvision) and 91 (from 0, as in DETR): by category_id, with "unused 12" for unassigned
// ids. Otherwise: "class 1", "class 2", ….
NumberedClasses published_object_classes(int64_t count);

// Returns the classes of Pascal VOC's masks: the background and its 20 classes of objects.
std::vector<std::string> voc_mask_classes();

}  // namespace tessera::data
