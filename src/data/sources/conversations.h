// Conversations about the images of another source: LLaVA's files.
//
// A line of a .jsonl file, or an element of a .json file's array, is an object with `image` and either `conversations`
// (turns {"from": "human" or "gpt", "value": text}, the human's first), or `question` with `answers`, texts or VQA's objects
// {"answer": text}, or `question` with `choices` and the number of the right one, `answer`, as ScienceQA has them (`hint` stands
// in front); and perhaps `answer_type`. ScienceQA's problems.json is one object of such entries under their numbers, whose image
// is NUMBER/image; those about none of the images are left out. VQA's two files are named as QUESTIONS+ANNOTATIONS, both .json; an
// image is the one whose name ends in `image_id` (COCO_val2014_000000458752), questions about others are left out.
// The image is found by its file name; where several have that, by its folder too.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/base/questions.h"
#include "data/base/source.h"

namespace tessera::data {

// How a sample is named in such a file: the last part of its path, or of "shard: member".
std::string conversation_image(const std::string& sample_name);

// Letters that stand for choices: the answer to such a question is one.
std::string choice_letter(size_t choice);

// The turns of such an object, question and answer in turn. Throws Error naming `where`.
std::vector<std::string> conversation_turns(const nlohmann::json& record, const std::string& where);

// A sample for each conversation: its picture, in annotation.captions the turns (question, answer, question, …), and in
// annotation.classes the number of its type among types().
class ImagePlaces;

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
  // All answers that annotators gave, the first of which is the conversation's own; empty where turns are given.
  const std::vector<std::string>& answers(int64_t index) const;
  // How many choices a question has, 0 where it has none; the right one.
  int64_t choices(int64_t index) const;
  int64_t right_choice(int64_t index) const;
  // Whether any question has several annotators, or choices.
  bool has_annotators() const { return has_annotators_; }
  bool has_choices() const { return has_choices_; }
  // How often `<image>` stands in a conversation; without one the image stands in front of the first question.
  int64_t image_words(int64_t index) const;
  // Lists what a person should look at in a conversation, a line each, with its place in the file and the image's name: `<image>`
  // more or less than once, an empty turn.
  std::vector<std::string> problems_of(int64_t index) const;

 private:
  struct Record {
    std::string where;  // "FILE line 3"
    std::vector<std::string> turns, answers = {};
    int64_t image = 0, type = 0, choices = 0, right = 0;
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
  const ImageQuestions* asked_ = nullptr;  // of the images' source, where there is no file
  std::vector<Record> records_;
  std::vector<std::string> types_;
  bool has_annotators_ = false, has_choices_ = false;
  int64_t left_out_ = 0;
};

}  // namespace tessera::data
