// The classes of a set among those of a model that was trained on another one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::data {

// Which of the model's classes each of a set's classes is.
struct ClassMapping {
  std::vector<int64_t> model_class;  // by the set's class
  std::string how;  // "the same classes", "by name", "by synset", "by number", "in their order"
};
// Of classes of the same names; of ImageNet's by name or synset; of names that are the numbers of the model's classes
// (ImageNet V2); in their order where the model's classes have no names of their own and are as many, or where
// `in_order` asks for it. A set may have fewer classes than the model (ImageNet-A, -R). A usage error that says which
// classes are not among the model's, which of them they may be, and which mapping would fit.
ClassMapping map_classes(const std::vector<std::string>& model_names, int64_t model_classes,
                         const std::vector<std::string>& set_names, const std::string& set,
                         bool in_order = false);

// How two lists of classes differ first, `of_what` behind its number: "class 1 is 'cat' in A, but absent in B"; "" where
// they are equal.
std::string first_difference(const std::vector<std::string>& a, const std::string& in_a,
                             const std::vector<std::string>& b, const std::string& in_b,
                             const std::string& of_what = "");

}  // namespace tessera::data
