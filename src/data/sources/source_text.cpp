// Plain texts: `text:PATH`. PATH is one of:
// - a document (.txt, .md)
// - a .jsonl file of documents: {"text": …} per line, or captions, or a conversation with its turns as lines;
//   with `text:template=NAME,PATH`, each round of a conversation is a document in that template; with
//   `text:classes,PATH` or `text:template=NAME,classes,PATH` each line also has "label", a class name or a number, and
//   optionally "pair", a second text
// - shards with .txt and .md members
// - a folder of any of these, read recursively, or several paths in braces
//
// Without a separate validation set, val_share of the documents is held out, chosen by content. A document with
// more than val_share of all bytes is cut instead, and its end is held out: a set may consist of a few long ones.
// Documents with classes are never cut.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "core/error.h"
#include "core/text.h"
#include "data/base/annotations.h"
#include "data/base/captions.h"
#include "data/base/class_names.h"
#include "data/base/image_files.h"
#include "data/base/source_kinds.h"
#include "data/sources/conversations.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/files/tar.h"
#include "text/conversation.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "text:", kTemplate = "template=", kClasses = "classes,";
constexpr uint64_t kMostBytes = uint64_t{8} << 30;  // all documents, which stay in memory
constexpr JsonLimits kLineLimits{.max_bytes = uint64_t{64} << 20, .max_depth = 16, .max_keys = 4096};

struct Document {
  std::string name = {}, content = {};
  std::string label = {}, pair = {};  // "" = none
  std::string key = {};               // checksum of all texts of the line or the file: these share a split
};
struct Documents {
  std::vector<Document> all;
  std::vector<std::string> problems;  // one line per invalid text
};

std::string key_of(const std::string& content) { return checksum_of(bytes_of(content)); }

bool is_document(std::string_view path) { return path.ends_with(".txt") || path.ends_with(".md"); }
bool is_shard(std::string_view path) {
  return path.ends_with(".tar") || path.ends_with(".tar.gz") || path.ends_with(".tgz");
}
bool is_lines(std::string_view path) { return path.ends_with(".jsonl"); }

// Writes each round of a conversation as a document in the template. The end of the document replaces the
// template's end of an answer. The image placeholder is removed.
std::vector<std::string> rounds_in(const ChatTemplate& chat, const std::vector<std::string>& turns) {
  std::vector<std::string> rounds;
  for (size_t i = 0; i + 1 < turns.size(); i += 2) {
    std::string question = turns[i];
    if (const size_t at = question.find(kImageWord); at != std::string::npos)
      question.erase(at, kImageWord.size());
    rounds.push_back(conversation_text(chat, {{true, question}, {false, turns[i + 1]}}));
    if (!chat.sep2.empty()) rounds.back().resize(rounds.back().size() - chat.sep2.size());
  }
  return rounds;
}

class DocumentReader {
 public:
  // If `chat` is null, the turns of a conversation become lines. `classes`: lines have labels.
  explicit DocumentReader(const ChatTemplate* chat, bool classes = false) : chat_(chat), classes_(classes) {}

  Documents read(const std::string& path) {
    for (const std::string& one : expand_braces(path)) read_path(one);
    check(!read_.all.empty() || !read_.problems.empty(), path,
          " holds no texts: it must be a .txt, .md or .jsonl file, shards with such, ",
          "or a folder of these");
    return std::move(read_);
  }

 private:
  void read_path(const std::string& path) {
    std::error_code error;
    if (fs::is_directory(path, error)) return read_folder(path);
    if (is_shard(path)) return read_shard(path);
    if (is_lines(path)) return read_lines(path);
    if (!is_document(path) && file_exists(path))
      fail_usage(
          path, " is no text: it must be a .txt, .md or .jsonl file, shards with such, or a folder of these");
    add(path, read_text(path, kMostBytes));
  }

  void read_folder(const std::string& folder) {
    for (const std::string& path : files_below(folder))
      if (fs::is_regular_file(path) && (is_document(path) || is_shard(path) || is_lines(path)))
        read_path(path);
  }

  void read_shard(const std::string& path) {
    const TarArchive shard(path);
    for (size_t i = 0; i < shard.members().size(); ++i)
      if (is_document(shard.members()[i].name))
        add(text(path, ": ", shard.members()[i].name), std::string(as_text(shard.bytes(i))));
  }

  void read_lines(const std::string& path) {
    int64_t number = 0;
    for (const std::string& line : split(without_mark(read_text(path, kMostBytes)), '\n')) {
      const std::string where = text(path, " line ", ++number);
      if (trim(line).empty()) continue;
      std::vector<std::string> contents;
      Document labels;
      try {
        const nlohmann::json record = parse_json(line, where, kLineLimits);
        contents = texts_of(record, where);
        if (classes_) labels = labels_of(record, where);
      } catch (const Error& error) {
        read_.problems.emplace_back(error.what());
        continue;
      }
      labels.key = key_of(join(contents, "\n"));
      for (std::string& content : contents) add(where, std::move(content), labels);
    }
  }

  // Returns a document with the label and the second text of a line.
  static Document labels_of(const nlohmann::json& record, const std::string& where) {
    Document document;
    if (const auto pair = record.find("pair"); pair != record.end() && pair->is_string())
      document.pair = pair->get<std::string>();
    const auto label = record.find("label");
    if (label != record.end() && label->is_string())
      document.label = label->get<std::string>();
    else if (label != record.end() && label->is_number_integer())
      document.label = std::to_string(label->get<int64_t>());
    check(!trim(document.label).empty(), where, ": 'label' must be a class name or an integer");
    return document;
  }

  std::vector<std::string> texts_of(const nlohmann::json& record, const std::string& where) const {
    check(record.is_object(), where, " is no JSON object");
    if (chat_ && (record.contains("conversations") || record.contains("question")))
      return rounds_in(*chat_, conversation_turns(record, where));
    return {text_of(record, where)};
  }

  static std::string text_of(const nlohmann::json& record, const std::string& where) {
    if (const auto found = record.find("text"); found != record.end() && found->is_string())
      return found->get<std::string>();
    if (std::vector<std::string> captions = captions_of_json(record, where); !captions.empty())
      return join(captions, "\n");
    if (record.contains("conversations") || record.contains("question"))
      return join(conversation_turns(record, where), "\n");
    fail(where, " has neither 'text' nor captions nor a conversation");
  }

  void add(const std::string& name, std::string content, Document labels = {}) {
    if (!is_utf8(content)) {
      read_.problems.push_back(name + " is not UTF-8 text");
      return;
    }
    bytes_ += content.size();
    check(bytes_ <= kMostBytes, name, ": the texts up to here are more than ", human_bytes(kMostBytes));
    if (trim(content).empty()) return;
    if (labels.key.empty()) labels.key = key_of(content);
    labels.name = name, labels.content = std::move(content);
    read_.all.push_back(std::move(labels));
  }

  const ChatTemplate* chat_;
  bool classes_;
  Documents read_;
  uint64_t bytes_ = 0;
};

// Returns the split's part of a text, whose last `share` of bytes is for validation, from a word boundary on.
std::string part_of(const std::string& content, double share, Split split) {
  const auto wanted = static_cast<size_t>((1 - share) * static_cast<double>(content.size()));
  const size_t cut = std::min(content.find_first_of(" \n", wanted), content.size());
  return split == Split::train ? content.substr(0, cut) : content.substr(cut);
}

// Keeps the documents of a split, chosen by key and label.
void keep_split(std::vector<Document>& all, const SourceConfig& config, Split split,
                const std::vector<int64_t>& labels) {
  std::vector<std::string> keys;
  for (const Document& document : all) keys.push_back(document.key);
  std::vector<Document> kept;
  for (const int64_t i : select_split(config, split, keys, labels))
    kept.push_back(std::move(all[static_cast<size_t>(i)]));
  all = std::move(kept);
}

// Keeps the documents of a split, and its part of each document with more than val_share of all bytes.
void keep_split_or_parts(std::vector<Document>& all, const SourceConfig& config, Split split) {
  double bytes = 0;
  for (const Document& document : all) bytes += static_cast<double>(document.content.size());
  std::vector<Document> whole, parts;
  for (Document& document : all) {
    const bool is_long = static_cast<double>(document.content.size()) > config.val_share * bytes;
    if (is_long) document.content = part_of(document.content, config.val_share, split);
    if (!trim(document.content).empty()) (is_long ? parts : whole).push_back(std::move(document));
  }
  keep_split(whole, config, split, std::vector<int64_t>(whole.size()));
  all = std::move(parts);
  std::move(whole.begin(), whole.end(), std::back_inserter(all));
}

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

class TextAnnotations final : public Annotations {
 public:
  explicit TextAnnotations(const Source& source) : Annotations(source) {}

  // Reads all documents.
  Facts facts(int64_t) const override {
    int64_t bytes = 0, words = 0, least = 0, most = 0;  // least, most: words of a document
    std::unordered_set<std::string> distinct;           // checksums: documents may be long
    for (int64_t i = 0; i < source_.size(); ++i) {
      const std::string content = source_.read(i).annotation.captions.at(0);
      const int64_t own = words_of(content);
      least = i == 0 ? own : std::min(least, own);
      most = std::max(most, own);
      words += own;
      bytes += std::ssize(content);
      distinct.insert(checksum_of(bytes_of(std::string(trim(content)))));
    }
    return {text("  text   ", counted(source_.size(), "document"), ", ", distinct.size(), " distinct, ",
                 counted(words, "word"), ", ", least, " to ", most, " a document\n"),
            {{"description", source_.describe()},
             {"documents", source_.size()},
             {"distinct", distinct.size()},
             {"bytes", bytes},
             {"words", words},
             {"shortest", least},
             {"longest", most}}};
  }
};

class TextSource final : public Source {
 public:
  TextSource(std::string path, Documents documents)
      : path_(std::move(path)),
        documents_(std::move(documents.all)),
        problems_(std::move(documents.problems)) {
    Fingerprint print;
    for (const Document& document : documents_) {
      bytes_ += document.content.size();
      print.add(document.content);
    }
    fingerprint_ = print.value();
  }

  int64_t size() const override { return std::ssize(documents_); }
  RawSample read(int64_t index) const override {
    const Document& document = documents_.at(static_cast<size_t>(index));
    RawSample sample{.name = document.name};
    sample.annotation.captions = {document.content};
    return sample;
  }
  uint64_t fingerprint() const override { return fingerprint_; }
  std::vector<std::string> problems() const override { return problems_; }
  std::unique_ptr<Annotations> annotations() const override {
    return std::make_unique<TextAnnotations>(*this);
  }
  std::string describe() const override {
    return text("texts ", path_, ", ", counted(size(), "document"), " of ", human_bytes(bytes_));
  }

 private:
  std::string path_;
  std::vector<Document> documents_;
  std::vector<std::string> problems_;
  uint64_t bytes_ = 0, fingerprint_ = 0;
};

// Documents with classes.
class ClassedTextSource final : public LabelledSource {
 public:
  ClassedTextSource(std::string path, Documents documents, std::vector<std::string> classes)
      : text_(std::move(path), {documents.all, std::move(documents.problems)}), classes_(std::move(classes)) {
    Fingerprint print;
    print.add(static_cast<int64_t>(text_.fingerprint()));
    for (const Document& document : documents.all) {
      const auto found = std::find(classes_.begin(), classes_.end(), document.label);
      labels_.push_back(found == classes_.end() ? -1 : found - classes_.begin());
      pairs_.push_back(document.pair);
      print.add(document.label), print.add(document.pair);
      check(labels_.back() >= 0, document.name, ": the class '", printable(document.label),
            "' is not among those of the training set");
    }
    fingerprint_ = print.value();
  }

  int64_t size() const override { return text_.size(); }
  RawSample read(int64_t index) const override {
    RawSample sample = text_.read(index);
    if (const std::string& pair = pairs_.at(static_cast<size_t>(index)); !pair.empty())
      sample.annotation.captions.push_back(pair);
    return sample;
  }
  int64_t label(int64_t index) const override { return labels_.at(static_cast<size_t>(index)); }
  const std::vector<std::string>& class_names() const override { return classes_; }
  uint64_t fingerprint() const override { return fingerprint_; }
  std::vector<std::string> problems() const override { return text_.problems(); }
  std::unique_ptr<Annotations> annotations() const override {
    return std::make_unique<TextAnnotations>(*this);
  }
  std::string describe() const override {
    return text(text_.describe(), ", ", counted(std::ssize(classes_), "class", "classes"));
  }

 private:
  TextSource text_;
  std::vector<std::string> classes_, pairs_;
  std::vector<int64_t> labels_;
  uint64_t fingerprint_ = 0;
};

// Returns the source of a split of documents with classes. Without a path of its own, a share of each class is
// held out.
std::unique_ptr<Source> classed_texts(const SourceConfig& config, Split split, const std::string& path,
                                      Documents documents) {
  std::vector<std::string> classes;
  for (const Document& document : documents.all) {
    check(!document.label.empty(), document.name,
          ": has no class: it must be a line of a .jsonl file with 'label'");
    classes.push_back(document.label);
  }
  std::sort(classes.begin(), classes.end());
  classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
  order_classes(classes, config);
  if (split == Split::validation && has_training_path(config))
    if (std::vector<std::string> trained = training_classes(config); !trained.empty())
      classes = std::move(trained);
  if (config.val_path.empty()) {
    std::vector<int64_t> labels;
    for (const Document& document : documents.all)
      labels.push_back(std::find(classes.begin(), classes.end(), document.label) - classes.begin());
    keep_split(documents.all, config, split, labels);
  }
  return std::make_unique<ClassedTextSource>(path, std::move(documents), std::move(classes));
}

}  // namespace

bool is_text_path(const std::string& path) { return path.starts_with(kPrefix); }

std::unique_ptr<Source> open_text(const SourceConfig& config, Split split) {
  std::string path = path_of(config, split).substr(kPrefix.size());
  const ChatTemplate* chat = nullptr;
  if (path.starts_with(kTemplate)) {
    const size_t comma = path.find(',');
    if (comma == std::string::npos)
      fail_usage("data path '", kPrefix, path, "' must be text:template=NAME,PATH");
    chat = &find_template(path.substr(kTemplate.size(), comma - kTemplate.size()));
    path.erase(0, comma + 1);
  }
  if (path.starts_with(kClasses)) {
    path.erase(0, kClasses.size());
    return classed_texts(config, split, path, DocumentReader(chat, true).read(path));
  }
  Documents documents = DocumentReader(chat).read(path);
  if (config.val_path.empty()) keep_split_or_parts(documents.all, config, split);
  return std::make_unique<TextSource>(path, std::move(documents));
}

}  // namespace tessera::data
