#include "cli/data/data_texts.h"

#include <algorithm>
#include <iostream>
#include <map>
#include <unordered_set>

#include "cli/base/common.h"
#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "data/sources/conversations.h"
#include "data/sources/interleaved.h"
#include "io/files/file.h"

namespace tessera::cli {
namespace {

int64_t words_of(std::string_view content) {
  int64_t count = 0;
  bool inside = false;
  for (const char c : content) {
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    count += !space && !inside;
    inside = !space;
  }
  return count;
}

// Returns a checksum that replaces a document, which may be long, in memory.
std::string print_of(const std::string& content) { return checksum_of(as_bytes(trim(content))); }

// Documents that were met, by their words: one that comes again is a finding.
class MetDocuments {
 public:
  void add(const data::RawSample& document, bool held_out) {
    const auto [found, is_new] =
        met_.try_emplace(print_of(document.annotation.captions.at(0)), Place{document.name, held_out});
    if (is_new) return;
    data::Lines& lines = found->second.held_out != held_out ? leaks : repeats;
    lines.add(text(document.name, " has the same text as ", found->second.name));
  }
  data::Lines repeats, leaks;

 private:
  struct Place {
    std::string name;
    bool held_out;
  };
  std::map<std::string, Place> met_;
};

}  // namespace

TextStatistics text_statistics(const data::Source& source) {
  TextStatistics out;
  std::unordered_set<std::string> distinct;
  for (int64_t i = 0; i < source.size(); ++i) {
    const std::string content = source.read(i).annotation.captions.at(0);
    const int64_t words = words_of(content);
    out.shortest = i == 0 ? words : std::min(out.shortest, words);
    out.longest = std::max(out.longest, words);
    out.words += words;
    out.bytes += std::ssize(content);
    distinct.insert(print_of(content));
  }
  out.documents = source.size();
  out.distinct = std::ssize(distinct);
  return out;
}

void print_texts(const data::Source& source, const TextStatistics& statistics, const char* split) {
  std::cout << split << ": " << one_line(source.describe()) << "\n"
            << "  text   " << counted(statistics.documents, "document") << ", " << statistics.distinct
            << " distinct, " << counted(statistics.words, "word") << ", " << statistics.shortest << " to "
            << statistics.longest << " a document\n";
}

nlohmann::ordered_json texts_info_json(const data::Source& source, const TextStatistics& statistics) {
  return {{"description", source.describe()}, {"documents", statistics.documents},
          {"distinct", statistics.distinct},  {"bytes", statistics.bytes},
          {"words", statistics.words},        {"shortest", statistics.shortest},
          {"longest", statistics.longest}};
}

TextReader::TextReader(const std::string& weights)
    : opened_(train::open_task(weights)), limit_(dynamic_cast<const tasks::TextLimit*>(opened_.task.get())) {
  if (!limit_)
    fail_usage("--weights: '", opened_.file, "' is of task ", tasks::task_name(opened_.info.task),
               ", which reads no texts of images");
}

void TextReader::add_long_texts(const data::SourceConfig& config, data::CheckReport& report) const {
  data::OpenSplits splits = data::open_splits(config);
  if (config.val_path.empty() && dynamic_cast<const data::Conversations*>(splits.train.get()))
    splits.validation.reset();  // one file without a split
  const Interruptible stretch;
  for (const auto* source : {splits.train.get(), splits.validation.get()})
    for (int64_t i = 0; source && !data::document_images(*source) && i < source->size(); ++i) try {
        if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
        const data::RawSample sample = source->read(i);
        for (const tasks::LongText& one : limit_->long_texts(sample))
          report.captions.add(one.line(sample.name));
      } catch (const Error& error) {
        if (error.kind != ErrorKind::failed) throw;  // the check has named it
      }
}

void check_texts(const data::SourceConfig& config, int64_t show, bool as_json) {
  const data::OpenSplits splits = data::open_splits(config);
  if (!splits.errors.empty()) fail(splits.errors.front());
  nlohmann::ordered_json json = {{"ok", true}, {"splits", nlohmann::ordered_json::array()}};
  data::Lines unread;
  for (const std::string& line : splits.problems()) unread.add(line);
  MetDocuments met;
  for (const auto* source : {splits.train.get(), splits.validation.get()}) {
    if (source == nullptr) continue;
    const bool held_out = source == splits.validation.get();
    for (int64_t i = 0; i < source->size(); ++i) met.add(source->read(i), held_out);
    const TextStatistics statistics = text_statistics(*source);
    json["splits"].push_back(texts_info_json(*source, statistics));
    if (!as_json) print_texts(*source, statistics, held_out ? "validation" : "train");
  }
  const int64_t problems = unread.count + met.repeats.count + met.leaks.count;
  json["ok"] = problems == 0;
  json["unreadable"] = {{"count", unread.count}, {"lines", unread.lines}};
  json["duplicates"] = {{"count", met.repeats.count}, {"lines", met.repeats.lines}};
  json["leaks"] = {{"count", met.leaks.count}, {"lines", met.leaks.lines}};
  if (as_json) {
    std::cout << json_text(json, 2) << "\n";
  } else {
    print_findings("unreadable texts", unread, show);
    print_findings("the same text in training and validation data", met.leaks, show);
    print_findings("the same text twice", met.repeats, show);
    if (problems == 0) std::cout << "nothing wrong found\n";
  }
  if (problems > 0) fail(config.path, ": ", counted(problems, "problem"), " found");
}

}  // namespace tessera::cli
