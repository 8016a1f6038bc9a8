#include "data/base/shard_samples.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "data/base/image_files.h"
#include "data/base/table_columns.h"
#include "io/files/file.h"
#include "io/files/json.h"

namespace tessera::data {

std::pair<std::string_view, std::string> split_member_name(std::string_view name, bool at_last) {
  const size_t slash = name.rfind('/'), start = slash == std::string_view::npos ? 0 : slash + 1;
  const size_t dot = at_last ? name.rfind('.') : name.find('.', start);
  if (dot == std::string_view::npos || dot < start) return {name, ""};
  return {name.substr(0, dot), lower(name.substr(dot))};
}

bool is_image_ending(const std::string& ending) {
  return ending.find('.', 1) == std::string::npos && has_picture_extension(ending);
}

namespace {

// True for the ending of a label, as webdataset's decoder has them.
bool is_label_ending(std::string_view ending) {
  return ending == ".cls" || ending == ".class" || ending == ".label";
}

// The members' keys. As in webdataset, a key ends at the first dot, so that "a.seg.png" is another member of
// the sample with "a.png". Without such an image, or with an "a.seg.cls", the key is "a.seg".
class MemberKeys {
 public:
  explicit MemberKeys(const TarArchive& archive) {
    for (const auto& member : archive.members()) {
      if (const auto [key, ending] = split_member_name(member.name); is_image_ending(ending))
        images_.insert(key);
      if (const auto [key, ending] = split_member_name(member.name, true); is_label_ending(ending))
        labels_.insert(key);
    }
  }
  std::pair<std::string_view, std::string> split(std::string_view name) const {
    auto first = split_member_name(name), last = split_member_name(name, true);
    const bool further = images_.contains(first.first) && !labels_.contains(last.first);
    return first == last || further ? first : last;
  }

 private:
  std::set<std::string_view> images_, labels_;
};

// True if the .json holds captions: it has no label, and has captions or a .txt of the same key.
bool is_caption_json(const TarArchive& archive, const ShardParts& parts, const std::string& where) {
  if (parts.json == ShardParts::kNone) return false;
  try {
    const auto object = parse_json(as_text(archive.bytes(parts.json)), where);
    if (!object.is_object() || object.contains("label") || object.contains("labels")) return false;
    if (object.contains("caption") || object.contains("captions")) return true;
    return parts.text != ShardParts::kNone && !label_member(object);
  } catch (const Error&) {
    return false;  // reported when its label is read
  }
}

}  // namespace

ShardSamples samples_of(const TarArchive& archive, const std::string& path, ProblemList& problems) {
  ShardSamples samples;
  std::map<std::string_view, size_t> place;
  const auto& members = archive.members();
  const MemberKeys keys(archive);
  for (size_t m = 0; m < members.size(); ++m) {
    const auto [key, extension] = keys.split(members[m].name);
    if (is_hidden(key.substr(key.rfind('/') + 1))) continue;
    const bool is_picture = is_image_ending(extension);
    const bool is_label = is_label_ending(extension);
    if (!is_picture && !is_label && extension != ".json" && extension != ".txt") continue;
    const auto [found, is_new] = place.try_emplace(key, samples.size());
    if (is_new) samples.emplace_back(key, ShardParts{});
    ShardParts& parts = samples[found->second].second;
    size_t& part = is_picture             ? parts.picture
                   : is_label             ? parts.number
                   : extension == ".json" ? parts.json
                                          : parts.text;
    if (part != ShardParts::kNone)
      problems.add(path, ": '", key, "' has two ", is_picture ? "images" : extension);
    else
      part = m;
  }
  return samples;
}

void take_numbers_as_labels(const TarArchive& archive, ShardSamples& samples) {
  const auto is_number = [&](const auto& sample) {
    const ShardParts& parts = sample.second;
    if (parts.number != ShardParts::kNone || parts.json != ShardParts::kNone) return false;
    return parts.text != ShardParts::kNone && parse_int(trim(as_text(archive.bytes(parts.text)))).has_value();
  };
  if (!std::ranges::all_of(samples, is_number)) return;
  for (auto& [key, parts] : samples) parts.number = std::exchange(parts.text, ShardParts::kNone);
}

std::string name_of(const TarArchive& archive, size_t part) {
  return text(archive.path(), ": ", archive.members()[part].name);
}

bool has_label(const TarArchive& archive, const ShardParts& parts) {
  if (parts.number != ShardParts::kNone) return true;
  return parts.json != ShardParts::kNone && !is_caption_json(archive, parts, name_of(archive, parts.json));
}

std::vector<JsonLabel> labels_in_json(const TarArchive& archive, const ShardParts& parts) try {
  const std::string where(archive.members()[parts.json].name);
  return json_labels(parse_json(as_text(archive.bytes(parts.json)), where), where);
} catch (const Error&) {
  return {};
}

namespace {

// Returns the class of a label, of a number also without class names; -1 for the name of no class.
int64_t class_of_word(const std::string& word, const ClassNames& names) {
  const auto number = parse_int(without_fraction(word));
  return number ? *number - names.first() : names.find(word);
}

}  // namespace

void UnequalLabels::add(const TarArchive& archive, const ShardParts& parts, const ClassNames& names) {
  if (parts.number == ShardParts::kNone || parts.json == ShardParts::kNone) return;
  const std::string own(trim(as_text(archive.bytes(parts.number))));
  const int64_t own_class = class_of_word(own, names);
  std::vector<std::string> words;
  bool differ = false;
  for (const JsonLabel& label : labels_in_json(archive, parts)) {
    const int64_t other = class_of_word(label.word, names);
    words.push_back(label.word);
    if (own_class >= 0 && other >= 0)
      differ = differ || own_class != other;
    else
      differ = differ || (own_class < 0 && other < 0 && own != label.word);
  }
  if (!differ) return;
  if (++count_ == 1)
    first_ = text(name_of(archive, parts.number), " has ", printable(own, 40), ", its .json ",
                  printable(join(words, ", "), 80));
}

void UnequalLabels::add(const UnequalLabels& others) {
  if (count_ == 0) first_ = others.first_;
  count_ += others.count_;
}

std::string UnequalLabels::line(const std::string& set) const {
  if (count_ == 0) return "";
  return text(set, ": ", counted(count_, "sample"), count_ == 1 ? " has" : " have",
              " another label in .json than in .cls, which counts (", first_, ")");
}

}  // namespace tessera::data
