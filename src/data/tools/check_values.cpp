#include <map>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "data/base/annotations.h"
#include "data/tools/check.h"
#include "io/files/file.h"

namespace tessera::data {
namespace {

using nlohmann::ordered_json;

// Represents a document, which may be long, in memory.
std::string print_of(const std::string& content) { return checksum_of(bytes_of(std::string(trim(content)))); }

// Stores the documents by their words and reports repeated ones.
class MetDocuments {
 public:
  void add(const RawSample& document, bool held_out) {
    const auto [found, is_new] =
        met_.try_emplace(print_of(document.annotation.captions.at(0)), Place{document.name, held_out});
    if (is_new) return;
    Lines& lines = found->second.held_out != held_out ? leaks : repeats;
    lines.add(text(document.name, " has the same text as ", found->second.name));
  }
  Lines repeats, leaks;

 private:
  struct Place {
    std::string name;
    bool held_out;
  };
  std::map<std::string, Place> met_;
};

// One split, with its name and statistics of all its samples.
struct CheckedSplit {
  const Source& source;
  std::unique_ptr<Annotations> annotations;
  bool held_out;
  Annotations::Facts facts;
  std::string text() const {
    return (held_out ? "validation: " : "train: ") + printable(source.describe(), 1000) + "\n" + facts.text;
  }
};

std::vector<CheckedSplit> checked_splits(const OpenSplits& splits) {
  if (!splits.errors.empty()) fail(splits.errors.front());
  std::vector<CheckedSplit> all;
  for (const Source* source : {splits.train.get(), splits.validation.get()}) {
    if (source == nullptr) continue;
    auto annotations = source->annotations();
    Annotations::Facts facts = annotations->facts(source->size());
    all.push_back({*source, std::move(annotations), source == splits.validation.get(), std::move(facts)});
  }
  return all;
}

void finish(CheckedSet& out) {
  out.json["ok"] = out.problems == 0;
  if (out.problems == 0) out.text += "nothing wrong found\n";
}

}  // namespace

CheckedSet check_latents(const SourceConfig& config, int64_t show) {
  const OpenSplits splits = open_splits(config);
  if (splits.train && splits.validation)
    splits.train->annotations()->require_same(*splits.train, *splits.validation);
  CheckedSet out{.text = "", .json = {{"ok", true}, {"splits", ordered_json::array()}}};
  for (const CheckedSplit& split : checked_splits(splits)) {
    Lines broken;
    for (int64_t i = 0; i < split.source.size(); ++i)
      for (std::string& line : split.annotations->problems_of(i, split.source.read(i)))
        broken.add(std::move(line));
    out.problems += broken.count;
    out.text += split.text();
    for (int64_t i = 0; i < std::min<int64_t>(show, std::ssize(broken.lines)); ++i)
      out.text += "  " + printable(broken.lines[static_cast<size_t>(i)], 1000) + "\n";
    out.json["splits"].push_back(split.facts.json);
    out.json["splits"].back()["broken"] = {{"count", broken.count}, {"lines", broken.lines}};
  }
  finish(out);
  return out;
}

CheckedSet check_texts(const SourceConfig& config, int64_t show) {
  const OpenSplits splits = open_splits(config);
  CheckedSet out{.text = "", .json = {{"ok", true}, {"splits", ordered_json::array()}}};
  Lines unread;
  MetDocuments met;
  for (const CheckedSplit& split : checked_splits(splits)) {
    for (int64_t i = 0; i < split.source.size(); ++i) met.add(split.source.read(i), split.held_out);
    out.text += split.text();
    out.json["splits"].push_back(split.facts.json);
  }
  for (const std::string& line : splits.problems()) unread.add(line);
  out.problems = unread.count + met.repeats.count + met.leaks.count;
  out.json["unreadable"] = unread.json();
  out.json["duplicates"] = met.repeats.json();
  out.json["leaks"] = met.leaks.json();
  out.text += unread.text("unreadable texts", show);
  out.text += met.leaks.text("the same text in training and validation data", show);
  out.text += met.repeats.text("the same text twice", show);
  finish(out);
  return out;
}

}  // namespace tessera::data
