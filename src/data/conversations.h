// Conversations about the images of another source: LLaVA's files.
//
// A line of a .jsonl file, or an element of a .json file's array, is an object with `image` and either `conversations`
// (turns {"from": "human" or "gpt", "value": text}, the human's first) or `question`, `answers` and perhaps
// `answer_type`. The image is found by its file name, without folders.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/questions.h"
#include "data/source.h"

namespace tessera::data {

// How a sample is named in such a file: the last part of its path, or of "shard: member".
std::string conversation_image(const std::string& sample_name);

// The turns of such an object, question and answer in turn. Throws Error naming `where`.
std::vector<std::string> conversation_turns(const nlohmann::json& record, const std::string& where);

// A sample for each conversation: its picture, in annotation.captions the turns (question, answer, question, …), and in
// annotation.classes the number of its type among types().
class Conversations final : public Source {
 public:
  // Those that the images' source asks itself; a usage error that names it where it asks none.
  explicit Conversations(std::shared_ptr<const Source> images);
  // Throws Error naming the line: no JSON, an image that the source does not have, turns that do not alternate.
  Conversations(const std::string& path, std::shared_ptr<const Source> images);

  int64_t size() const override;
  RawSample read(int64_t index) const override;
  uint64_t fingerprint() const override;
  std::string describe() const override;
  // Kinds of answers, in alphabetical order; "" for records that do not say.
  const std::vector<std::string>& types() const { return types_; }
  // What a person should look at in a conversation, a line each, with the image's name: `<image>` more or less than once,
  // an empty turn.
  std::vector<std::string> problems_of(int64_t index) const;

 private:
  struct Record {
    std::vector<std::string> turns;
    int64_t image = 0, type = 0;
  };
  std::string path_, checksum_;
  std::shared_ptr<const Source> images_;
  const ImageQuestions* asked_ = nullptr;  // of the images' source, where there is no file
  std::vector<Record> records_;
  std::vector<std::string> types_;
};

}  // namespace tessera::data
