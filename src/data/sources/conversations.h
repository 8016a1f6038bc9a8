// Conversations about the images of another source: LLaVA's files.
//
// A line of a .jsonl file, or an element of a .json array, is an object with `image`, optionally
// `answer_type`, and one of:
// - `conversations`: turns {"from": "human" or "gpt", "value": text}, the human's first;
// - `question` with `answers`: texts or VQA's objects {"answer": text};
// - `question` with `choices` and the index of the right one, `answer`, as in ScienceQA; `hint` precedes it.
// ScienceQA's problems.json is one object of such entries, keyed by number; their image is NUMBER/image.
// Entries without a known image are dropped. VQA's two files are given as QUESTIONS+ANNOTATIONS, both .json.
// Their image is the one with a name ending in `image_id` (COCO_val2014_000000458752); questions about others
// are dropped.
// An entry of a .json array or .jsonl file without `image` is text alone, as in LLaVA's mix665k.
// An image is found by its file name; if several share it, by its folder too.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/base/questions.h"
#include "data/base/source.h"

namespace tessera::data {

// Returns a sample's name in such a file: the last part of its path, or of "shard: member".
std::string conversation_image(const std::string& sample_name);

// Returns the letter of a choice, which is the answer to such a question.
std::string choice_letter(size_t choice);

// Returns the turns of such an object, question and answer in turn. As in LLaVA's code, an answer before the
// first question is left out. Throws an Error that names `where`.
std::vector<std::string> conversation_turns(const nlohmann::json& record, const std::string& where);

// One sample per conversation: its image, the turns in annotation.captions (question, answer, question, …),
// and the index of its type in types() in annotation.classes.
class ImagePlaces;

class Conversations final : public Source {
 public:
  // Uses the questions that the source of images generates. Throws a usage error that names the source if it
  // has none.
  explicit Conversations(std::shared_ptr<const Source> images);
  // Throws an Error with the line: invalid JSON, an image missing from the source, turns that do not
  // alternate.
  Conversations(const std::string& path, std::shared_ptr<const Source> images);

  int64_t size() const override;
  RawSample read(int64_t index) const override;
  uint64_t fingerprint() const override;
  std::string describe() const override;
  std::unique_ptr<Annotations> annotations() const override;
  // Kinds of answers, in alphabetical order; "" for records without one.
  const std::vector<std::string>& types() const { return types_; }
  // Returns the answers of all annotators, the conversation's own first; empty if the record has turns.
  const std::vector<std::string>& answers(int64_t index) const;
  // Return the number of choices of a question (0 if it has none), and the right one.
  int64_t choices(int64_t index) const;
  int64_t right_choice(int64_t index) const;
  // True if any question has several annotators or choices.
  bool has_annotators() const { return has_annotators_; }
  bool has_choices() const { return has_choices_; }
  // Counts `<image>` in a conversation; without any, the image precedes the first question. Returns 0 for text
  // alone.
  int64_t image_words(int64_t index) const;
  // Returns one line per problem of a conversation, with its place in the file and the image's name: not
  // exactly one `<image>`, an empty turn.
  std::vector<std::string> problems_of(int64_t index) const;

 private:
  struct Record {
    std::string where;  // "FILE line 3"
    std::vector<std::string> turns, answers = {};
    int64_t image = 0;  // -1: text alone
    int64_t type = 0, choices = 0, right = 0;
  };
  using Kinds = std::vector<std::string>;  // answer_type of each record
  void add(const nlohmann::json& record, int64_t place, const std::string& where, Kinds& kinds);
  void add_named(const nlohmann::json& record, const ImagePlaces& places, const std::string& where,
                 Kinds& kinds);
  void add_lines(const std::string& content, const ImagePlaces& places, Kinds& kinds);
  void add_tree(const nlohmann::json& tree, const ImagePlaces& places, Kinds& kinds);
  void add_vqa(const std::string& questions, const std::string& questions_file,
               const std::string& answers_file, const ImagePlaces& places, Kinds& kinds);

  std::string path_, checksum_;
  std::shared_ptr<const Source> images_;
  const ImageQuestions* asked_ = nullptr;  // the source of images, if no file is given
  std::vector<Record> records_;
  std::vector<std::string> types_;
  bool has_annotators_ = false, has_choices_ = false;
  int64_t left_out_ = 0, without_image_ = 0;
};

// Conversations as a data path, `conversations:FILE,IMAGES`: LLaVA's file, and any data path of its images.
bool is_conversations_path(const std::string& path);
std::unique_ptr<Source> open_conversations(const SourceConfig& config, Split split);

}  // namespace tessera::data
