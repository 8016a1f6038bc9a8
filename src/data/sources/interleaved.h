// Web documents: texts with images among them, in their order (Alayrac et al. 2022, Flamingo: M3W).
//
// `interleaved:PATH`. PATH is a .jsonl file, tar shards, a folder of these, or several in braces. A line of a .jsonl file,
// or a KEY.json of a shard, is a document in one of two forms:
//   MMC4     {"text_list": [texts], "image_info": [{"image_name": file, "matched_text_index": i}, …]}: an image stands in
//            front of its text; with "image_base64" its bytes are in the record, as OpenFlamingo converts it
//   OBELICS  {"images": [file or null, …], "texts": [text or null, …]}: as long as each other, one of both at each place
// Files of a .jsonl lie beside it, or in data.image_root, also inside of shards there ("images.tar/a.jpg"); those of a
// KEY.json are members of its shard, in KEY's folder or by their whole name. Documents without any image are left out.
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
  std::string key;                  // the same without folders: its place in a split
  std::vector<std::string> texts;   // in front of the first image, behind each of them; may be empty
  std::vector<std::string> images;  // paths, or names of those in the record; one less than texts
  std::vector<int64_t> inside;  // of each image its place in image_info where its bytes are there, else -1
  // The record where it holds images; lives as long as `owner`.
  std::string_view record = {};
  std::shared_ptr<const void> owner = {};
};

// Texts and images as the record names them. Throws Error naming `where` and the field.
Document read_document(const nlohmann::json& record, const std::string& where);

class Interleaved final : public Source {
 public:
  Interleaved(const SourceConfig& config, Split split);

  int64_t size() const override { return std::ssize(documents_); }
  // The first image; in annotation.captions the texts, in annotation.classes the number of the document.
  RawSample read(int64_t index) const override;
  uint64_t fingerprint() const override;
  std::string describe() const override;
  std::vector<std::string> problems() const override { return problems_.lines(); }

  const Document& document(int64_t index) const { return documents_[static_cast<size_t>(index)]; }
  // An image of a document. Throws Error naming both.
  RawSample image(int64_t index, int64_t number) const;
  // Says what a person should look at in its texts, a line each: no words at all, an image that stands twice, control
  // characters.
  std::vector<std::string> problems_of(int64_t index) const;
  // Its texts, "<image>" in the places of the images.
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

// All images of the documents, one after another, which must live as long; null where the source holds none.
std::unique_ptr<Source> document_images(const Source& source);

struct DocumentStatistics {
  int64_t documents = 0;
  double images = 0, words = 0;  // means of a document
};
// documents = 0 where the source holds none.
DocumentStatistics document_statistics(const Source& source);

bool is_interleaved_path(const std::string& path);
std::unique_ptr<Source> open_interleaved(const SourceConfig& config, Split split);

}  // namespace tessera::data
