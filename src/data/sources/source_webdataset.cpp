// WebDataset: tar shards, plain or gzipped, with samples of the members KEY.jpg (.jpeg, .png, .webp, .gif,
// .bmp, .tiff) and KEY.cls or KEY.json. `train-{000..004}.tar.gz` names several shards; a folder, those that
// start with train (or val, test). classes.txt next to the shards contains the class names.
//
// KEY.cls (or .class, .label) contains a class number or a class name, and counts if KEY.json has another. KEY.json contains {"label": number or name}, or {"labels": [...]}
// for several classes per image; {"label": number, "class_name": name} names the number. If no names are given and the
// first label is a name, the classes are the sorted names of the training shards. Shards with only images have no labels.
// Captions come from {"caption": …} or {"captions": […]} of KEY.json, else from the lines of KEY.txt; if every KEY.txt
// is a whole number, it is the label.
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "core/threads.h"
#include "data/base/captions.h"
#include "data/base/image_files.h"
#include "data/base/shard_samples.h"
#include "data/base/source_kinds.h"
#include "data/base/source_labels.h"
#include "data/base/table_labels.h"
#include "data/sources/shard_files.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/files/tar.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kNoMember = UINT32_MAX;

// One sample; its key is the name of its image.
struct Item {
  uint32_t shard = 0, picture = 0;              // picture: the member
  int64_t label = -1;                           // -1 if multi-label
  std::vector<int64_t> labels;                  // if multi-label
  uint32_t text = kNoMember, json = kNoMember;  // members with possible captions

  bool multi() const { return label < 0; }
  std::span<const int64_t> classes() const {
    return multi() ? std::span<const int64_t>(labels) : std::span<const int64_t>(&label, 1);
  }
};

// A shard and its samples.
struct Shard {
  std::shared_ptr<const TarArchive> archive;
  std::vector<Item> items;
  bool labelled = false;  // samples have labels; else images only, all of class 0
  ProblemList problems;
  UnequalLabels unequal;
};

uint32_t member_of(size_t part) {
  return part == ShardParts::kNone ? kNoMember : static_cast<uint32_t>(part);
}

// The names of a set's classes, and the meaning of a label that may be both.
struct SetClasses {
  ClassNames names;
  LabelText kind = LabelText::number_first;
};

void read_json(std::string_view content, const SetClasses& classes, const std::string& where, Item& item) {
  const nlohmann::json object = parse_json(content, where);
  const std::string name = classes.kind == LabelText::name_first ? name_member(object) : "";
  if (!name.empty()) {
    item.label = classes.names.find(name);
    if (item.label < 0)
      fail(where, " has the class '", printable(name, 40), "', which is no class", classes.names.hint(name));
    return;
  }
  Label label = read_json_label(object, classes.names, where);
  if (label.multi)
    item.labels = std::move(label.classes);
  else
    item.label = label.classes[0];
}

// Reads the label of a sample from its .cls, else from its .json. Errors begin with the file.
void read_label_of(const TarArchive& archive, const ShardParts& parts, const SetClasses& classes,
                   Item& item) {
  item.label = -1;
  if (parts.number != ShardParts::kNone)
    item.label = read_label(as_text(archive.bytes(parts.number)), classes.kind, classes.names,
                            name_of(archive, parts.number));
  else
    read_json(as_text(archive.bytes(parts.json)), classes, name_of(archive, parts.json), item);
}

// Adds the labels of a shard's images as text, or those of the first image alone. What cannot be read is left out; it is
// reported when the labels are read.
void add_label_words(const std::string& path, bool first_alone, std::set<std::string>& words) try {
  ProblemList ignored;
  const auto archive = open_archive(path);
  for (const auto& [key, parts] : samples_of(*archive, path, ignored)) {
    if (parts.picture == ShardParts::kNone || !has_label(*archive, parts)) continue;
    if (parts.number != ShardParts::kNone)
      words.emplace(trim(as_text(archive->bytes(parts.number))));
    else
      for (JsonLabel& label : labels_in_json(*archive, parts)) words.insert(std::move(label.word));
    if (first_alone) return;
  }
} catch (const Error&) {
  return;
}

bool all_names(const std::set<std::string>& words) {
  const auto is_name = [](const std::string& word) {
    return !word.empty() && !parse_int(without_fraction(word));
  };
  return !words.empty() && std::ranges::all_of(words, is_name);
}

// Returns the sorted labels of shards if all are names, else nothing. The first label decides whether all are read.
std::vector<std::string> names_in_shards(const std::vector<std::string>& paths, const SourceConfig& config) {
  std::set<std::string> words;
  add_label_words(paths.front(), true, words);
  if (!all_names(words)) return {};
  for (const std::string& path : paths) add_label_words(path, false, words);
  if (!all_names(words)) return {};
  std::vector<std::string> names(words.begin(), words.end());
  order_classes(names, config);
  return names;
}

// Adds the class names next to the numbers in a shard's .json files, or those of the first image alone.
void add_number_names(const std::string& path, bool first_alone, NumberNames& names) try {
  ProblemList ignored;
  const auto archive = open_archive(path);
  for (const auto& [key, parts] : samples_of(*archive, path, ignored)) {
    if (parts.picture == ShardParts::kNone || !has_label(*archive, parts)) continue;
    const auto labels =
        parts.number == ShardParts::kNone ? labels_in_json(*archive, parts) : std::vector<JsonLabel>();
    std::vector<std::string> words;
    for (const JsonLabel& label : labels) words.push_back(label.word);
    names.add(words, words.empty() ? "" : name_member(parse_json(as_text(archive->bytes(parts.json)), path)));
    if (first_alone) return;
  }
} catch (const Error&) {
  return;  // reported when the labels are read
}

// Returns the names of numbered classes if every .json has one next to its number, else nothing.
std::vector<std::string> numbered_names_in_shards(const std::vector<std::string>& paths) {
  NumberNames first, names;
  add_number_names(paths.front(), true, first);
  if (!first.usable()) return {};
  for (const std::string& path : paths) add_number_names(path, false, names);
  return names.usable() ? names.classes() : std::vector<std::string>();
}

Shard read_shard(const std::string& path, uint32_t number, const SetClasses& classes) {
  Shard shard;
  shard.archive = open_archive(path);
  ShardSamples samples = samples_of(*shard.archive, path, shard.problems);
  take_numbers_as_labels(*shard.archive, samples);
  shard.labelled = std::ranges::any_of(
      samples, [&](const auto& sample) { return has_label(*shard.archive, sample.second); });
  for (const auto& sample : samples) {
    const auto& [key, parts] = sample;
    const std::string where = text(path, ": ", key);
    const bool labelled = shard.labelled && has_label(*shard.archive, parts);
    if (parts.picture == ShardParts::kNone) {
      if (parts.text != ShardParts::kNone || parts.json != ShardParts::kNone ||
          parts.number != ShardParts::kNone)
        shard.problems.add(where, labelled ? " has a label" : " has a caption",
                           " but no image (.jpg, .png, .webp, .gif, .bmp or .tiff)");
      continue;
    }
    if (shard.labelled && !labelled) {
      shard.problems.add(where, " has an image but no .cls or .json");
      continue;
    }
    Item item{
        number, static_cast<uint32_t>(parts.picture), 0, {}, member_of(parts.text), member_of(parts.json)};
    try {
      if (labelled) read_label_of(*shard.archive, parts, classes, item);
      if (labelled) shard.unequal.add(*shard.archive, parts, classes.names);
      shard.items.push_back(std::move(item));
    } catch (const Error& error) {
      shard.problems.add(error.what());
    }
  }
  return shard;
}

class WebDatasetSource final : public LabelledSource {
 public:
  WebDatasetSource(const SourceConfig& config, Split split) : shown_(path_of(config, split)) {
    const ShardList list = find_shards(config, split);
    left_out_ = list.left_out;
    SetClasses set{find_class_names(config, list.paths.front())};
    const bool declared = !set.names.names().empty();
    if (!declared) set = found_classes(config, split, list);
    const ClassNames& names = set.names;
    read_shards(list.paths, set);
    if (!labelled_)
      classes_ = {""};
    else
      classes_ = names.names().empty() ? count_classes(config, split, list.beside) : names.names();
    if (labelled_ && names.names().empty() && are_chosen_numbers(classes_)) {
      if (split == Split::train) warnings_.push_back(chosen_numbers_line(shown_, classes_));
      take_as_names();
    }
    if (!labelled_ && split == Split::train) warn_of_folders();
    drop_out_of_range(names.first());
    if (list.by_share) {
      std::vector<std::string> keys;
      std::vector<int64_t> labels;
      std::set<std::string_view> seen;
      for (const Item& item : items_) {
        const std::string_view key = key_of(item);  // other shards may repeat keys
        keys.push_back(seen.insert(key).second ? std::string(key) : text(item.shard, "/", key));
        labels.push_back(item.label);
      }
      std::vector<Item> kept;
      for (const int64_t i : select_split(config, split, keys, labels))
        kept.push_back(std::move(items_[static_cast<size_t>(i)]));
      items_ = std::move(kept);
    }
    if (split == Split::train && labelled_ && declared)
      find_empty_classes(shown_, classes_, class_counts(*this), problems_);
  }

  int64_t size() const override { return static_cast<int64_t>(items_.size()); }

  RawSample read(int64_t index) const override {
    const Item& item = items_[static_cast<size_t>(index)];
    const TarArchive& archive = *archives_[item.shard];
    const auto bytes = archive.bytes(item.picture);
    std::string name =
        printable(text(archive.path(), ": ", archive.members()[item.picture].name), kMostNameBytes);
    if (bytes.size() > kMaxPictureBytes)
      fail(name, " has ", bytes.size(), " bytes, at most ", kMaxPictureBytes, " are read");
    RawSample sample{std::move(name), std::vector<std::byte>(bytes.begin(), bytes.end())};
    sample.annotation.captions = captions(archive, item, sample.name);
    return sample;
  }

  int64_t label(int64_t index) const override { return items_[static_cast<size_t>(index)].label; }
  std::vector<int64_t> labels(int64_t index) const override {
    const auto classes = items_[static_cast<size_t>(index)].classes();
    return {classes.begin(), classes.end()};
  }
  bool multi_label() const override { return multi_; }
  bool labelled() const { return labelled_; }
  const std::vector<std::string>& class_names() const override { return classes_; }

  uint64_t fingerprint() const override {
    Fingerprint print;
    print.add(classes_);
    for (const Item& item : items_) {
      print.add(key_of(item));
      print.add(static_cast<int64_t>(archives_[item.shard]->members()[item.picture].size));
      for (const int64_t one : item.classes()) print.add(one);
      const auto size_of = [&](uint32_t member) {
        return member == kNoMember ? 0 : static_cast<int64_t>(archives_[item.shard]->members()[member].size);
      };
      if (item.text != kNoMember || (!labelled_ && item.json != kNoMember))
        print.add(size_of(item.text)), print.add(size_of(item.json));
    }
    return print.value();
  }

  std::string describe() const override {
    return text(
        "WebDataset ", shown_, ", ", counted(static_cast<int64_t>(archives_.size()), "shard"), ", ",
        counted(size(), "image"), ", ", counted(static_cast<int64_t>(classes_.size()), "class", "classes"),
        left_out_ == 0 ? "" : text("; left out: ", counted(static_cast<int64_t>(left_out_), "test shard")));
  }
  std::vector<std::string> problems() const override { return problems_.lines(); }
  std::vector<std::string> warnings() const override { return warnings_; }

 private:
  static std::vector<std::string> captions(const TarArchive& archive, const Item& item,
                                           const std::string& where) {
    if (item.json != kNoMember) {
      auto found = captions_of_json(parse_json(as_text(archive.bytes(item.json)), where), where);
      // If the .json has an empty caption, those of the .txt still count.
      const bool any = std::ranges::any_of(found, [](const std::string& one) { return !one.empty(); });
      if (any || (!found.empty() && item.text == kNoMember)) return found;
    }
    if (item.text == kNoMember) return {};
    return captions_of_lines(as_text(archive.bytes(item.text)), where);
  }

  std::string_view key_of(const Item& item) const {
    const std::string_view name = archives_[item.shard]->members()[item.picture].name;
    const auto first = split_member_name(name);
    return is_image_ending(first.second) ? first.first : split_member_name(name, true).first;
  }

  // Reads the given file of class names, or classes.txt next to these or the training shards. The result may
  // be empty.
  static ClassNames find_class_names(const SourceConfig& config, const std::string& shard) {
    if (!config.class_names.empty()) return read_label_names(config.class_names);
    std::vector<fs::path> places = {fs::path(shard).parent_path()};
    if (is_webdataset_path(config.path)) {
      std::error_code too_long;
      places.push_back(fs::is_directory(config.path, too_long) ? fs::path(config.path)
                                                               : fs::path(config.path).parent_path());
    }
    for (const fs::path& place : places)
      if (fs::exists(place / "classes.txt")) return read_label_names((place / "classes.txt").string());
    return {};
  }

  // Returns the classes of shards without a list of names: the names in the training shards, if labels are names.
  static SetClasses found_classes(const SourceConfig& config, Split split, const ShardList& list) {
    std::vector<std::string> names = names_in_shards(list.paths, config);
    if (names.empty()) names = numbered_names_in_shards(list.paths);
    if (!names.empty() && split == Split::validation && (list.beside || has_training_path(config)))
      if (std::vector<std::string> classes = training_classes(config); !classes.empty()) names = classes;
    const auto is_number = [](const std::string& name) { return parse_int(name).has_value(); };
    if (std::ranges::all_of(names, is_number)) return {};
    return {ClassNames(std::move(names)), LabelText::name_first};
  }

  // Takes the samples of a shard that are labelled as the others are.
  void add_items(Shard& shard, const std::string& path) {
    for (Item& item : shard.items) {
      if (labelled_ && !shard.labelled) {
        problems_.add(path, ": ", key_of(item), " has an image but no .cls or .json");
        continue;
      }
      if (items_.empty()) multi_ = item.multi();
      if (item.multi() != multi_)
        problems_.add(path, ": ", key_of(item), multi_ ? " has one label" : " has a list of labels",
                      ", unlike the samples before it");
      else
        items_.push_back(std::move(item));
    }
  }

  void read_shards(const std::vector<std::string>& paths, const SetClasses& classes) {
    std::vector<Shard> shards(paths.size());
    std::vector<std::string> broken(paths.size());
    parallel_for(static_cast<int64_t>(paths.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) try {
          shards[static_cast<size_t>(i)] =
              read_shard(paths[static_cast<size_t>(i)], static_cast<uint32_t>(i), classes);
        } catch (const Error& error) {
          broken[static_cast<size_t>(i)] = error.what();
        }
    });
    const auto any = [&](bool labelled) {
      return std::any_of(shards.begin(), shards.end(), [&](const Shard& shard) {
        return shard.labelled == labelled && (labelled || !shard.items.empty());
      });
    };
    labelled_ = any(true) || !any(false);
    UnequalLabels unequal;
    for (size_t i = 0; i < shards.size(); ++i) {
      unequal.add(shards[i].unequal);
      if (!broken[i].empty()) problems_.add(broken[i]);
      problems_.add(shards[i].problems);
      archives_.push_back(std::move(shards[i].archive));
      add_items(shards[i], paths[i]);
    }
    if (const std::string line = unequal.line(shown_); !line.empty()) warnings_.push_back(line);
  }

  // For sets without class names: class numbers up to the largest label of the training set.
  std::vector<std::string> count_classes(const SourceConfig& config, Split split, bool beside) const {
    if (split == Split::validation && (beside || has_training_path(config)))
      if (std::vector<std::string> classes = training_classes(config); !classes.empty()) return classes;
    std::vector<int64_t> labels;
    for (const Item& item : items_) labels.insert(labels.end(), item.classes().begin(), item.classes().end());
    return classes_of_numbers(std::move(labels));
  }

  // An archive of class folders is no shard with labels.
  void warn_of_folders() {
    std::set<std::string> folders;
    for (const Item& item : items_)
      if (const std::string_view key = key_of(item); key.find('/') != std::string_view::npos)
        folders.emplace(key.substr(0, key.rfind('/')));
    if (std::ssize(folders) < 2 || 2 * std::ssize(folders) > std::ssize(items_)) return;
    const std::vector<std::string> names(folders.begin(), folders.end());
    warnings_.push_back(text(shown_, ": the folders ", some_of(names),
                             " give no labels in shards; if they are classes, unpack the archive"));
  }

  // Maps numbers that are names of classes to classes.
  void take_as_names() {
    const auto turned = [&](int64_t number) {
      const int64_t label = class_of_number(number, classes_, true);
      return label < 0 ? kMostClasses + number : label;  // out of range, reported next
    };
    for (Item& item : items_) {
      if (!item.multi()) item.label = turned(item.label);
      for (int64_t& label : item.labels) label = turned(label);
    }
  }

  void drop_out_of_range(int64_t first) {
    std::vector<Item> kept;
    for (Item& item : items_) {
      const auto classes = item.classes();
      const auto wrong = std::find_if(classes.begin(), classes.end(), [&](int64_t one) {
        return one >= static_cast<int64_t>(classes_.size());
      });
      if (wrong == classes.end())
        kept.push_back(std::move(item));
      else
        problems_.add(archives_[item.shard]->path(), ": ", key_of(item), " has label ", *wrong + first,
                      ", must be ", first, " to ", std::ssize(classes_) - 1 + first);
    }
    items_ = std::move(kept);
  }

  std::string shown_;
  std::vector<std::shared_ptr<const TarArchive>> archives_;  // null for a broken shard
  std::vector<Item> items_;
  std::vector<std::string> classes_;
  bool multi_ = false, labelled_ = true;
  size_t left_out_ = 0;  // test shards
  ProblemList problems_;
  std::vector<std::string> warnings_;
};

}  // namespace

bool is_webdataset_path(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return !shards_of_set(path).empty();
  return is_shard_name(path);
}

std::unique_ptr<Source> open_webdataset(const SourceConfig& config, Split split) {
  auto source = std::make_unique<WebDatasetSource>(config, split);
  if (!source->labelled()) return without_labels(std::move(source));
  return source;
}

}  // namespace tessera::data
