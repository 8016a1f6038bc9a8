#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>

#include "core/error.h"
#include "core/text.h"
#include "data/base/class_names.h"

namespace tessera::data {
namespace {

// Returns the positions of `names` in a list, -1 for a name that it lacks.
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

// Parses names as class numbers, -1 for one that is not a number in [0, classes).
std::vector<int64_t> numbers_of(const std::vector<std::string>& names, int64_t classes) {
  std::vector<int64_t> numbers;
  for (const std::string& name : names) {
    const auto number = parse_int(name);
    numbers.push_back(number && *number >= 0 && *number < classes ? *number : -1);
  }
  return numbers;
}

constexpr size_t kShown = 3;  // names in an error line

bool is_synset(const std::string& name) {
  return name.size() == 9 && name[0] == 'n' && parse_int(name.substr(1)) && name[1] != '-';
}

bool all_synsets(const std::vector<std::string>& names) {
  return !names.empty() && std::all_of(names.begin(), names.end(), is_synset);
}

// Keeps only letters and digits, so that "Great_White-Shark" equals "great white shark".
std::string plain(std::string_view name) {
  std::string out;
  for (const char c : lower(name))
    if (std::isalnum(static_cast<unsigned char>(c)) || static_cast<unsigned char>(c) >= 0x80) out += c;
  return out;
}

// Returns readable class names: ImageNet's words for synsets, all others unchanged.
std::vector<std::string> words_of(const std::vector<std::string>& names) {
  const ImageNetClasses* known = all_synsets(names) ? imagenet_classes(21841) : nullptr;
  if (!known) return names;
  std::vector<std::string> words = names;
  const std::vector<int64_t> places = places_in(known->synsets, names);
  for (size_t i = 0; i < names.size(); ++i)
    if (places[i] >= 0) words[i] = known->names[static_cast<size_t>(places[i])];
  return words;
}

// Returns the model's class that is probably meant by another name: one of its words equals the name except
// for spelling or a typo.
std::optional<std::string> likely_class(const std::string& name, const std::vector<std::string>& model_names,
                                        const std::vector<std::string>& words) {
  const std::string letters = plain(name);
  for (size_t i = 0; i < words.size(); ++i) {
    if (plain(words[i]) == letters) return model_names[i];
    for (const std::string& word : split(words[i], ','))
      if (plain(word) == letters) return model_names[i];
  }
  return nearest(name, model_names);
}

// Returns ", did you mean 'star' for 'stars', 'disc' for 'discs'?" or "".
std::string meant(const std::vector<std::string>& missing, const std::vector<std::string>& model_names) {
  constexpr size_t kTried = 20;  // searching thousands of names for thousands of others is slow
  const std::vector<std::string> words = words_of(model_names);
  std::vector<std::string> found;
  for (size_t i = 0; i < std::min(missing.size(), kTried) && found.size() < kShown; ++i)
    if (const auto known = likely_class(missing[i], model_names, words))
      found.push_back(text("'", printable(*known), "'",
                           missing.size() > 1 ? text(" for '", printable(missing[i]), "'") : ""));
  return found.empty() ? "" : ", did you mean " + join(found, ", ") + "?";
}

// Returns advice on a mapping that would fit.
std::string remedy(int64_t model_classes, const std::vector<std::string>& set_names) {
  if (all_synsets(set_names))
    for (const int64_t count : {1000, 11221, 21841, 21843})
      if (count != model_classes && complete(places_in(imagenet_classes(count)->synsets, set_names)))
        return text("its names are ImageNet's synsets, which weights with ", count, " classes use");
  const std::string order =
      std::ssize(set_names) == model_classes
          ? text("; or, as both have ", model_classes, ", take them one for one by --classes-in-order")
          : "";
  return text("name the folders after the weights' classes, or after their numbers from 0", order,
              "; or train a head for these classes: tessera train RECIPE --pretrained WEIGHTS");
}

[[noreturn]] void refuse(const std::vector<std::string>& model_names, int64_t model_classes,
                         const std::vector<std::string>& set_names, const std::string& set) {
  if (model_classes == 0) fail_usage(set, " has classes, but the weights have no classification head");
  std::vector<std::string> missing;
  const std::vector<int64_t> places = places_in(model_names, set_names);
  for (size_t i = 0; i < set_names.size(); ++i)
    if (places[i] < 0) missing.push_back(set_names[i]);
  fail_usage(set, " has the class '", printable(missing.at(0)), "'",
             missing.size() == 1 ? ", which is" : text(" and ", missing.size() - 1, " more, which are"),
             " none of the ", model_classes, " of the weights",
             model_names.empty() ? "" : text(" (", some_of(model_names, kShown, 40), ")"),
             meant(missing, model_names), ": ", remedy(model_classes, set_names));
}

ClassMapping one_for_one(size_t classes) {
  std::vector<int64_t> order(classes);
  std::iota(order.begin(), order.end(), 0);
  return {order, "in their order"};
}

}  // namespace

ClassMapping map_classes(const std::vector<std::string>& model_names, int64_t model_classes,
                         const std::vector<std::string>& set_names, const std::string& set, bool in_order) {
  if (in_order) {
    if (std::ssize(set_names) != model_classes)
      fail_usage("--classes-in-order: ", set, " has ", counted(std::ssize(set_names), "class", "classes"),
                 ", the weights have ", model_classes);
    return one_for_one(set_names.size());
  }
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
  if (unnamed && std::ssize(set_names) == model_classes)  // different words for the same classes
    return one_for_one(set_names.size());
  refuse(model_names, model_classes, set_names, set);
}

std::string first_difference(const std::vector<std::string>& a, const std::string& in_a,
                             const std::vector<std::string>& b, const std::string& in_b,
                             const std::string& of_what) {
  const auto name = [](const std::vector<std::string>& names, size_t i) {
    return i < names.size() ? text("'", names[i], "'") : std::string("absent");
  };
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i)
    if (name(a, i) != name(b, i))
      return text("class ", i, of_what, " is ", name(a, i), " in ", in_a, ", but ", name(b, i), " in ", in_b);
  return "";
}

}  // namespace tessera::data
