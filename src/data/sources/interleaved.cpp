#include "data/sources/interleaved.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_set>

#include "core/error.h"
#include "core/text.h"
#include "data/base/annotations.h"
#include "io/files/file.h"
#include "io/files/json.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::string_view kPrefix = "interleaved:";
constexpr uint64_t kMostBytes = uint64_t{8} << 30;  // all texts, which stay in memory
constexpr size_t kMostImages = 4096;                // per document
constexpr const char* kBytes = "image_base64";
constexpr JsonLimits kRecordLimits{.max_bytes = uint64_t{64} << 20, .max_depth = 16, .max_keys = 4096};

const Json& list_of(const Json& record, const char* key, const std::string& where) {
  const auto found = record.find(key);
  if (found == record.end()) fail(where, " has no '", key, "'");
  if (!found->is_array()) fail(where, ": '", key, "' is ", found->type_name(), ", must be an array");
  return *found;
}

const std::string& text_at(const Json& list, size_t i, const char* key, const std::string& where) {
  if (!list[i].is_string())
    fail(where, ": '", key, "' entry ", i + 1, " is ", list[i].type_name(), ", must be a text");
  return list[i].get_ref<const std::string&>();
}

// Collects texts and images in order.
class Writer {
 public:
  Writer(Document& document, const char* between) : document_(document), between_(between) {
    document.texts = {""};
  }
  void add_text(std::string_view words) {
    words = trim(words);
    std::string& last = document_.texts.back();
    if (words.empty()) return;
    if (!last.empty()) last += between_;
    last += words;
  }
  void add_image(const std::string& name, const std::string& where, int64_t inside = -1) {
    if (name.empty()) fail(where, " names an image by an empty text");
    if (name.find('\0') != std::string::npos) fail(where, ": the name of an image holds a zero byte");
    if (document_.images.size() == kMostImages) fail(where, " has more than ", kMostImages, " images");
    document_.images.push_back(name), document_.texts.emplace_back();
    document_.inside.push_back(inside);
  }

 private:
  Document& document_;
  const char* between_;
};

// An entry of `image_info`: its name, whether it contains the bytes, and the index of the text that it
// precedes.
struct PlacedImage {
  std::string name;
  bool inside = false;
  size_t text = 0;
};

PlacedImage placed_image(const Json& entry, size_t texts, const std::string& where) {
  if (!entry.is_object()) fail(where, " is ", entry.type_name(), ", must be an object");
  const auto name = entry.find("image_name"), place = entry.find("matched_text_index"),
             bytes = entry.find(kBytes);
  const bool inside = bytes != entry.end() && !bytes->is_null();
  if (inside && !bytes->is_string())
    fail(where, ": '", kBytes, "' is ", bytes->type_name(), ", must be a text");
  if (name == entry.end() ? !inside : !name->is_string()) fail(where, " has no text 'image_name'");
  if (place == entry.end() || !place->is_number_integer())
    fail(where, " has no whole number 'matched_text_index'");
  const auto number = place->get<int64_t>();
  if (number < 0 || number >= static_cast<int64_t>(texts))
    fail(where, ": 'matched_text_index' is ", number, ", must be 0 to ", static_cast<int64_t>(texts) - 1,
         ", the number of a text");
  return {name == entry.end() ? "in the record" : name->get<std::string>(), inside,
          static_cast<size_t>(number)};
}

void read_mmc4(const Json& record, const std::string& where, Document& document) {
  const Json &texts = list_of(record, "text_list", where), &images = list_of(record, "image_info", where);
  std::vector<std::vector<std::pair<std::string, int64_t>>> in_front(texts.size());
  for (size_t i = 0; i < images.size(); ++i) {
    const PlacedImage image =
        placed_image(images[i], texts.size(), text(where, ": 'image_info' entry ", i + 1));
    in_front[image.text].emplace_back(image.name, image.inside ? static_cast<int64_t>(i) : -1);
  }
  Writer writer(document, " ");  // the texts are sentences
  for (size_t i = 0; i < texts.size(); ++i) {
    for (const auto& [image, inside] : in_front[i]) writer.add_image(image, where, inside);
    writer.add_text(text_at(texts, i, "text_list", where));
  }
}

void read_obelics(const Json& record, const std::string& where, Document& document) {
  const Json &images = list_of(record, "images", where), &texts = list_of(record, "texts", where);
  if (images.size() != texts.size())
    fail(where, " has ", images.size(), " 'images' and ", texts.size(), " 'texts', must be as many of both");
  Writer writer(document, "\n");  // the texts are paragraphs
  for (size_t i = 0; i < images.size(); ++i) {
    if (images[i].is_null() == texts[i].is_null())
      fail(where, ": place ", i + 1, " has ",
           images[i].is_null() ? "neither image nor text" : "both image and text",
           ", must be one of them and null");
    if (images[i].is_null())
      writer.add_text(text_at(texts, i, "texts", where));
    else
      writer.add_image(text_at(images, i, "images", where), where);
  }
}

// Returns the .jsonl files and shards of a path.
std::vector<std::string> files_of(const std::string& path) {
  std::vector<std::string> files;
  for (const std::string& one : expand_braces(path)) {
    std::error_code error;
    if (!fs::is_directory(one, error)) {
      if (!is_shard_name(one) && !one.ends_with(".jsonl"))
        fail_usage("data path '", kPrefix, one,
                   "' must be a .jsonl file, tar shards or a folder of these, as documents are kept");
      files.push_back(one);
      continue;
    }
    std::vector<std::string> inside = shards_in(one);
    for (const auto& entry : fs::directory_iterator(one))
      if (entry.path().extension() == ".jsonl") inside.push_back(entry.path().string());
    std::sort(inside.begin(), inside.end());
    check(!inside.empty(), one, " holds no documents: neither .jsonl files nor shards");
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

bool is_address(std::string_view name) { return name.find("://") != std::string_view::npos; }

int64_t words_in(const std::string& part) {
  int64_t words = 0;
  bool inside = false;
  for (const char c : part) {
    const bool space = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    words += !space && !inside;
    inside = !space;
  }
  return words;
}

class DocumentImages final : public Source {
 public:
  explicit DocumentImages(const Interleaved& documents) : documents_(documents) {
    for (int64_t i = 0; i < documents.size(); ++i) {
      begins_.push_back(count_);
      count_ += std::ssize(documents.document(i).images);
    }
  }
  int64_t size() const override { return count_; }
  RawSample read(int64_t index) const override {
    const auto behind = std::upper_bound(begins_.begin(), begins_.end(), index);
    const int64_t document = behind - begins_.begin() - 1;
    return documents_.image(document, index - begins_[static_cast<size_t>(document)]);
  }
  uint64_t fingerprint() const override { return documents_.fingerprint(); }
  std::string describe() const override { return documents_.describe(); }
  std::vector<std::string> problems() const override { return documents_.problems(); }

 private:
  const Interleaved& documents_;
  std::vector<int64_t> begins_;  // index of each document's first image
  int64_t count_ = 0;
};

class DocumentAnnotations final : public Annotations {
 public:
  explicit DocumentAnnotations(const Interleaved& documents)
      : Annotations(documents), documents_(documents), images_(documents) {}

  const Source& images() const override { return images_; }
  bool repeats_images() const override { return true; }
  std::unique_ptr<Packing> packing() const override {
    fail_usage(documents_.describe(), ": documents are not packed, shards of them are read as they are");
  }
  std::vector<std::string> problems_of(int64_t index, const RawSample&) const override {
    return documents_.problems_of(index);
  }
  std::string caption_of(int64_t index, const RawSample&) const override { return documents_.line_of(index); }

 protected:
  // Means per document.
  Facts annotation_facts(int64_t) const override {
    const int64_t count = documents_.size();
    if (count == 0) return {};
    double images = 0, words = 0;
    for (int64_t i = 0; i < count; ++i) {
      images += static_cast<double>(documents_.document(i).images.size());
      for (const std::string& part : documents_.document(i).texts)
        words += static_cast<double>(words_in(part));
    }
    images /= static_cast<double>(count), words /= static_cast<double>(count);
    return {text("  text   ", counted(count, "document"), ", ", fixed(images, 1), " images and ",
                 fixed(words, 1), " words each\n"),
            {{"documents", {{"documents", count}, {"images", images}, {"words", words}}}}};
  }

 private:
  const Interleaved& documents_;
  DocumentImages images_;
};

}  // namespace

Document read_document(const Json& record, const std::string& where) {
  check(record.is_object(), where, " is no JSON object");
  Document document;
  document.name = where;
  if (record.contains("text_list") || record.contains("image_info"))
    read_mmc4(record, where, document);
  else if (record.contains("texts") || record.contains("images"))
    read_obelics(record, where, document);
  else
    fail(where, " has neither 'text_list' and 'image_info' (MMC4) nor 'images' and 'texts' (OBELICS)");
  return document;
}

Interleaved::Interleaved(const SourceConfig& config, Split split) {
  shown_ = path_of(config, split).substr(kPrefix.size());
  if (shown_.empty()) fail_usage("data path '", kPrefix, "' must be interleaved:PATH");
  for (const std::string& file : files_of(shown_)) {
    if (is_shard_name(file))
      read_shard(file);
    else
      read_lines(file, config.image_root.empty() ? fs::path(file).parent_path().string() : config.image_root);
  }
  std::vector<std::string> keys;
  for (const Document& document : documents_) keys.push_back(document.key);
  std::vector<Document> kept;
  for (const int64_t i : select_split(config, split, keys, std::vector<int64_t>(keys.size())))
    kept.push_back(std::move(documents_[static_cast<size_t>(i)]));
  documents_ = std::move(kept);
}

void Interleaved::add(Document document, std::string_view record, const std::shared_ptr<const void>& owner) {
  if (document.images.empty()) {
    ++left_out_;
    return;
  }
  if (std::any_of(document.inside.begin(), document.inside.end(), [](int64_t entry) { return entry >= 0; }))
    document.record = record, document.owner = owner;
  for (const auto* parts : {&document.texts, &document.images})
    for (const std::string& part : *parts) bytes_ += part.size();
  check(bytes_ <= kMostBytes, document.name, ": the texts up to here are more than ",
        human_bytes(kMostBytes));
  documents_.push_back(std::move(document));
}

void Interleaved::read_lines(const std::string& path, const std::string& image_root) {
  const auto file = std::make_shared<const MappedFile>(path);
  std::string_view content = as_text(file->bytes());
  for (int64_t number = 1; !content.empty(); ++number) {
    const size_t end = std::min(content.find('\n'), content.size());
    const std::string_view line = trim(content.substr(0, end));
    content.remove_prefix(std::min(end + 1, content.size()));
    if (line.empty()) continue;
    try {
      Document document = read_document(parse_json(line, text(path, " line ", number), kRecordLimits),
                                        text(path, " line ", number));
      document.key = text(fs::path(path).filename().string(), " ", number);
      for (size_t i = 0; i < document.images.size(); ++i)
        if (std::string& image = document.images[i]; document.inside[i] < 0 && !is_address(image))
          image = (fs::path(image_root) / image).string();
      add(std::move(document), line, file);
    } catch (const Error& error) {
      problems_.add(error.what());
    }
  }
}

void Interleaved::read_shard(const std::string& path) {
  const auto archive = open_archive(path);
  std::unordered_set<std::string_view> names;
  for (const TarMember& member : archive->members()) names.insert(member.name);
  for (size_t m = 0; m < archive->members().size(); ++m) {
    const std::string_view name = archive->members()[m].name;
    if (!name.ends_with(".json")) continue;
    const std::string where = printable(text(path, ": ", name), kMostNameBytes);
    try {
      const std::string_view record = as_text(archive->bytes(m));
      Document document = read_document(parse_json(record, where, kRecordLimits), where);
      document.key = text(fs::path(path).filename().string(), " ", name);
      const size_t slash = name.rfind('/');
      const std::string folder(name.substr(0, slash == std::string_view::npos ? 0 : slash + 1));
      for (size_t i = 0; i < document.images.size(); ++i)
        if (std::string& image = document.images[i]; document.inside[i] < 0)
          image =
              text(path, "/", names.contains(folder + image) || !names.contains(image) ? folder : "", image);
      add(std::move(document), record, archive);
    } catch (const Error& error) {
      problems_.add(error.what());
    }
  }
}

RawSample Interleaved::image(int64_t index, int64_t number) const {
  const Document& from = document(index);
  const std::string& path = from.images.at(static_cast<size_t>(number));
  const auto wrong = [&](const std::string& what) {
    fail(from.name, ": its image '", printable(path), "' ", what);
  };
  if (const int64_t entry = from.inside.at(static_cast<size_t>(number)); entry >= 0) {
    const Json record = parse_json(from.record, from.name, kRecordLimits);
    const auto& coded = record.at("image_info").at(static_cast<size_t>(entry)).at(kBytes);
    auto picture = from_base64(coded.get_ref<const std::string&>());
    if (!picture) wrong("is not base64");
    if (picture->size() > kMaxPictureBytes)
      wrong(text("has ", picture->size(), " bytes, at most ", kMaxPictureBytes, " are read"));
    return {.name = text(from.name, " image ", number + 1), .picture = std::move(*picture)};
  }
  std::error_code error;
  if (is_address(path)) wrong("is an address: fetch it first, and name the file");
  if (!ShardFiles::inside_shard(path)) {
    const auto status = fs::status(path, error);
    if (!fs::exists(status)) wrong("does not exist");
    if (!fs::is_regular_file(status)) wrong("is no regular file");
  }
  try {
    return {.name = printable(path, kMostNameBytes), .picture = files_.read(path, kMaxPictureBytes)};
  } catch (const Error& unread) {
    fail(from.name, ": ", unread.what());
  }
}

RawSample Interleaved::read(int64_t index) const {
  RawSample sample = image(index, 0);
  sample.name = document(index).name;
  sample.annotation.captions = document(index).texts;
  sample.annotation.classes = {index};
  return sample;
}

std::string Interleaved::line_of(int64_t index) const {
  std::string line;
  for (const std::string& part : document(index).texts)
    line += (&part == document(index).texts.data() ? "" : " <image> ") + part;
  return std::string(trim(line));
}

std::vector<std::string> Interleaved::problems_of(int64_t index) const {
  const Document& own = document(index);
  std::vector<std::string> lines;
  std::set<std::string_view> seen;
  bool words = false, controls = false;
  for (const std::string& part : own.texts) {
    words = words || !part.empty();
    controls = controls || std::any_of(part.begin(), part.end(), [](char c) {
                 return (c >= 0 && c < ' ' && c != '\n' && c != '\t' && c != '\r') || c == 127;
               });
  }
  if (!words) lines.push_back(own.name + ": has no words");
  if (controls) lines.push_back(own.name + ": holds control characters");
  for (size_t i = 0; i < own.images.size(); ++i)
    if (const std::string& image = own.images[i]; own.inside[i] < 0 && !seen.insert(image).second)
      lines.push_back(text(own.name, ": shows '", printable(image), "' twice"));
  return lines;
}

uint64_t Interleaved::fingerprint() const {
  Fingerprint print;
  for (const Document& one : documents_) {
    print.add(one.key), print.add(one.texts), print.add(static_cast<int64_t>(one.record.size()));
    for (const std::string& image : one.images) print.add(fs::path(image).filename().string());
  }
  return print.value();
}

std::string Interleaved::describe() const {
  int64_t images = 0;
  for (const Document& one : documents_) images += std::ssize(one.images);
  return text("interleaved ", shown_, ", ", counted(size(), "document"), " with ", counted(images, "image"),
              left_out_ > 0 ? text("; ", left_out_, " without an image left out") : "");
}

std::unique_ptr<Annotations> Interleaved::annotations() const {
  return std::make_unique<DocumentAnnotations>(*this);
}

std::unique_ptr<Source> document_images(const Source& source) {
  const auto* documents = dynamic_cast<const Interleaved*>(&source);
  return documents ? std::make_unique<DocumentImages>(*documents) : nullptr;
}

bool is_interleaved_path(const std::string& path) { return path.starts_with(kPrefix); }

std::unique_ptr<Source> open_interleaved(const SourceConfig& config, Split split) {
  return std::make_unique<Interleaved>(config, split);
}

}  // namespace tessera::data
