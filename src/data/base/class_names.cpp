#include "data/base/class_names.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <span>
#include <string_view>

#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/files/gzip.h"

// imagenet_classes.txt.gz: one line per synset in the order of their numbers, "01440764 7 tench, Tinca
// tinca". The second word (hexadecimal) has one bit for each of kLists that contains the synset.
extern const unsigned char tessera_imagenet_classes[];
extern const size_t tessera_imagenet_classes_size;

namespace tessera::data {
namespace {

constexpr std::array<int64_t, 4> kLists = {1000, 21841, 21843, 11221};

const std::string& imagenet_table() {
  static const std::string table = [] {
    const std::span packed(tessera_imagenet_classes, tessera_imagenet_classes_size);
    return std::string(as_text(inflate_gzip(std::as_bytes(packed), "ImageNet's class names")));
  }();
  return table;
}

// Adds a distinguishing mark to each name that occurs more than once.
template <class Mark>
void tell_apart(std::vector<std::string>& names, const Mark& mark) {
  std::map<std::string_view, int> count;
  for (const std::string& name : names) ++count[name];
  std::vector<size_t> shared;
  for (size_t i = 0; i < names.size(); ++i)
    if (count[names[i]] > 1) shared.push_back(i);
  for (const size_t i : shared) names[i] += " (" + mark(i) + ")";
}

ImageNetClasses read_list(size_t list) {
  ImageNetClasses out;
  const std::string_view digits = "0123456789abcdef";
  for (const std::string& line : split(imagenet_table(), '\n')) {
    if (line.empty() || (digits.find(line.at(9)) >> list & 1) == 0) continue;
    out.synsets.push_back("n" + line.substr(0, 8));
    out.names.push_back(line.substr(11));
  }
  tell_apart(out.names, [&](size_t i) { return out.synsets[i]; });
  return out;
}

}  // namespace

std::string read_list_text(const std::string& path, uint64_t max_bytes) {
  std::string content = read_text(path, max_bytes);
  if (!is_utf8(content)) fail(path, " is not UTF-8 text");
  return without_mark(std::move(content));
}

std::string without_mark(std::string content) {
  if (content.starts_with("\xEF\xBB\xBF")) content.erase(0, 3);
  return content;
}

std::vector<std::string> read_class_names(const std::string& path) {
  std::vector<std::string> names;
  for (const std::string& line : split(read_list_text(path), '\n')) names.emplace_back(trim(line));
  while (!names.empty() && names.back().empty()) names.pop_back();
  if (names.empty()) fail(path, " holds no class names");
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i].empty()) fail(path, " line ", i + 1, " is blank, must be a class name");
  const ImageNetClasses* known = imagenet_classes(std::ssize(names));
  tell_apart(names, [&](size_t i) { return known ? known->synsets[i] : std::to_string(i); });
  std::set<std::string> seen;
  for (size_t i = 0; i < names.size(); ++i)
    if (!seen.insert(names[i]).second) fail(path, " line ", i + 1, " repeats the class '", names[i], "'");
  return names;
}

const ImageNetClasses* imagenet_classes(int64_t count) {
  const auto* list = std::find(kLists.begin(), kLists.end(), count);
  if (list == kLists.end()) return nullptr;
  static const std::array<ImageNetClasses, kLists.size()> lists = {read_list(0), read_list(1), read_list(2),
                                                                   read_list(3)};
  return &lists[static_cast<size_t>(list - kLists.begin())];
}

std::vector<std::string> spoken_names(const std::vector<std::string>& classes) {
  static const std::map<std::string, std::string> words_of = [] {
    std::map<std::string, std::string> all;
    for (const std::string& line : split(imagenet_table(), '\n'))
      if (!line.empty()) all.emplace("n" + line.substr(0, 8), line.substr(11));
    return all;
  }();
  std::vector<std::string> spoken;
  for (const std::string& name : classes) {
    const auto found = words_of.find(name);
    spoken.push_back(found == words_of.end() ? name : found->second.substr(0, found->second.find(',')));
  }
  const auto lengthen_shared = [&](const auto& longer) {
    std::map<std::string, int> count;
    for (const std::string& name : spoken) ++count[name];
    for (size_t i = 0; i < spoken.size(); ++i)
      if (count[spoken[i]] > 1 && words_of.contains(classes[i])) spoken[i] = longer(i);
  };
  lengthen_shared([&](size_t i) { return words_of.at(classes[i]); });
  lengthen_shared([&](size_t i) { return text(words_of.at(classes[i]), " (", classes[i], ")"); });
  return spoken;
}

bool same_classes(const std::vector<std::string>& one, const std::vector<std::string>& other) {
  if (one == other) return true;
  const ImageNetClasses* known = one.size() == other.size() ? imagenet_classes(std::ssize(one)) : nullptr;
  return known && ((one == known->names && other == known->synsets) ||
                   (one == known->synsets && other == known->names));
}

}  // namespace tessera::data
