// Maps the classes of a set to those of a model that was trained on another set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::data {

// The model's class for each class of a set.
struct ClassMapping {
  std::vector<int64_t> model_class;  // by the set's class
  std::string how;  // "the same classes", "by name", "by synset", "by number", "in their order"
};
// Maps classes by name, ImageNet's also by synset, or by number if the names are numbers of the model's
// classes (ImageNet V2). Maps them in order if the model has as many classes without names of their own, or
// if `in_order` is set. A set may have fewer classes than the model (ImageNet-A, -R). Otherwise throws a
// usage error with the classes that the model lacks, likely matches, and a mapping that would fit.
ClassMapping map_classes(const std::vector<std::string>& model_names, int64_t model_classes,
                         const std::vector<std::string>& set_names, const std::string& set,
                         bool in_order = false);

// Returns the first difference between two lists of classes, with `of_what` after the class number: "class 1
// is 'cat' in A, but absent in B". Returns "" if they are equal.
std::string first_difference(const std::vector<std::string>& a, const std::string& in_a,
                             const std::vector<std::string>& b, const std::string& in_b,
                             const std::string& of_what = "");

}  // namespace tessera::data
