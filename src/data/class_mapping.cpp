#include "data/class_mapping.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "core/error.h"
#include "core/text.h"
#include "data/class_names.h"

namespace tessera::data {
namespace {

// The places of names in a list; -1 where one is not in it.
std::vector<int64_t> places_in(const std::vector<std::string>& list, const std::vector<std::string>& names) {
  std::map<std::string, int64_t> at;
  for (size_t i = 0; i < list.size(); ++i) at.emplace(list[i], static_cast<int64_t>(i));
  std::vector<int64_t> places;
  for (const std::string& name : names) {
    const auto found = at.find(name);
    places.push_back(found == at.end() ? -1 : found->second);
  }
  return places;
}

bool complete(const std::vector<int64_t>& places) {
  return std::find(places.begin(), places.end(), -1) == places.end();
}

// Names that are numbers of classes, each below `classes`.
std::vector<int64_t> numbers_of(const std::vector<std::string>& names, int64_t classes) {
  std::vector<int64_t> numbers;
  for (const std::string& name : names) {
    const auto number = parse_int(name);
    numbers.push_back(number && *number >= 0 && *number < classes ? *number : -1);
  }
  return numbers;
}

}  // namespace

ClassMapping map_classes(const std::vector<std::string>& model_names, int64_t model_classes,
                         const std::vector<std::string>& set_names, const std::string& set) {
  if (!model_names.empty()) {
    const std::vector<int64_t> by_name = places_in(model_names, set_names);
    if (complete(by_name)) return {by_name, set_names == model_names ? "the same classes" : "by name"};
  }
  const ImageNetClasses* known = imagenet_classes(model_classes);
  if (known) {
    for (const auto* list : {&known->synsets, &known->names}) {
      const std::vector<int64_t> places = places_in(*list, set_names);
      if (complete(places)) return {places, list == &known->synsets ? "by synset" : "by name"};
    }
  }
  const std::vector<int64_t> numbers = numbers_of(set_names, model_classes);
  if (complete(numbers)) return {numbers, "by number"};
  const bool unnamed = model_names.empty() || (known && model_names == known->names);
  if (unnamed && std::ssize(set_names) == model_classes) {  // other words for the same classes
    std::vector<int64_t> order(set_names.size());
    std::iota(order.begin(), order.end(), 0);
    return {order, "in their order"};
  }
  const std::vector<int64_t> places = places_in(model_names, set_names);
  const auto missing = static_cast<size_t>(std::find(places.begin(), places.end(), -1) - places.begin());
  const bool synset = set_names[missing].size() == 9 && set_names[missing][0] == 'n';
  fail_usage(set, " has the class '", printable(set_names[missing]), "', which is none of the ",
             model_classes, " of the weights", did_you_mean(set_names[missing], model_names),
             synset && model_classes != 1000
                 ? ": its names are ImageNet's synsets, which weights with 1000 classes know"
                 : ": name the folders after the weights' classes, or after their numbers from 0");
}

}  // namespace tessera::data
