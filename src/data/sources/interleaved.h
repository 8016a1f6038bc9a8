// Web documents: texts with images in between, in order (Alayrac et al. 2022, Flamingo: M3W).
//
// `interleaved:PATH`. PATH is a .jsonl file, tar shards, a folder of these, or several in braces. A line of a
// .jsonl file, or a KEY.json of a shard, is a document in one of two forms:
//   MMC4     {"text_list": [texts], "image_info": [{"image_name": file, "matched_text_index": i}, …]}: an
//            image precedes its text; with "image_base64" its bytes are in the record, as in OpenFlamingo's
//            conversion
//   OBELICS  {"images": [file or null, …], "texts": [text or null, …]}: equally long, one of both per entry
// A .jsonl file's images are relative to its folder or data.image_root, and may be in shards
// ("images.tar/a.jpg"). Those of a KEY.json are members of its shard, in KEY's folder or by full name.
// Documents without images are dropped.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/base/source.h"
#include "data/base/source_kinds.h"
#include "data/sources/shard_files.h"

namespace tessera::data {

struct Document {
  std::string name;                 // "docs.jsonl line 3", "docs.tar: a.json"
  std::string key;                  // the name without folders, which determines its split
  std::vector<std::string> texts;   // text before the first image, then after each image; may be empty
  std::vector<std::string> images;  // paths, or names of images in the record; one fewer than texts
  std::vector<int64_t> inside;      // per image: its index in image_info if the record has its bytes, else -1
  // The record, if it contains images; valid as long as `owner` lives.
  std::string_view record = {};
  std::shared_ptr<const void> owner = {};
};

// Reads texts and image names of a record. Throws an Error that names `where` and the field.
Document read_document(const nlohmann::json& record, const std::string& where);

class Interleaved final : public Source {
 public:
  Interleaved(const SourceConfig& config, Split split);

  int64_t size() const override { return std::ssize(documents_); }
  // Returns the first image, with the texts in annotation.captions and the document's index in
  // annotation.classes.
  RawSample read(int64_t index) const override;
  uint64_t fingerprint() const override;
  std::string describe() const override;
  std::vector<std::string> problems() const override { return problems_.lines(); }
  std::unique_ptr<Annotations> annotations() const override;

  const Document& document(int64_t index) const { return documents_[static_cast<size_t>(index)]; }
  // Returns an image of a document. Throws an Error that names both.
  RawSample image(int64_t index, int64_t number) const;
  // Returns one line per problem of a document: no words at all, a repeated image, control characters.
  std::vector<std::string> problems_of(int64_t index) const;
  // Returns the document's texts with "<image>" in place of the images.
  std::string line_of(int64_t index) const;

 private:
  void read_lines(const std::string& path, const std::string& image_root);
  void read_shard(const std::string& path);
  void add(Document document, std::string_view record, const std::shared_ptr<const void>& owner);

  std::string shown_;
  std::vector<Document> documents_;
  ShardFiles files_;
  ProblemList problems_;
  uint64_t bytes_ = 0;
  int64_t left_out_ = 0;
};

// Returns all images of the documents, which must outlive the result; null if the source has no documents.
std::unique_ptr<Source> document_images(const Source& source);

bool is_interleaved_path(const std::string& path);
std::unique_ptr<Source> open_interleaved(const SourceConfig& config, Split split);

}  // namespace tessera::data
