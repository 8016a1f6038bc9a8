#include "data/tools/instruct.h"

#include <gtest/gtest.h>

#include <array>
#include <map>

#include "core/error.h"
#include "core/text.h"
#include "data/base/data_testing.h"
#include "data/base/objects.h"
#include "data/base/questions.h"
#include "data/sources/conversations.h"
#include "io/files/file.h"

namespace tessera::data {
namespace {

std::vector<Instruction> all_of(const Source& source, uint64_t seed = 0) {
  std::vector<Instruction> all;
  for (int64_t i = 0; i < source.size(); ++i)
    for (Instruction& one : instructions_of(source, i, seed)) all.push_back(std::move(one));
  return all;
}

std::vector<std::vector<std::string>> turns_of(const std::vector<Instruction>& all) {
  std::vector<std::vector<std::string>> turns;
  for (const Instruction& one : all) turns.push_back(one.turns);
  return turns;
}

TEST(Instruct, EachImageHasOneResponseOfEachKind) {
  const auto source = open_source({.path = "shapes:task=detect,train=40,val=8"}, Split::train);
  const auto all = all_of(*source);
  std::array<int, 3> counts{};
  for (const Instruction& one : all) {
    ++counts[static_cast<size_t>(one.kind)];
    ASSERT_EQ(one.turns.size() % 2, 0u);
    EXPECT_TRUE(one.turns[0].starts_with("<image>\n"));
    for (const std::string& turn : one.turns) EXPECT_FALSE(trim(turn).empty());
  }
  EXPECT_EQ(counts, (std::array<int, 3>{40, 40, 40}));
  EXPECT_EQ(turns_of(all_of(*source)), turns_of(all));
  EXPECT_NE(turns_of(all_of(*source, 1)), turns_of(all));
}

// A language model that is to answer such questions reads them as texts first.
TEST(Instruct, QuestionsOfTheSetItselfAreTaken) {
  const auto source = open_source({.path = "shapes:task=text,train=3,val=4"}, Split::train);
  const ImageQuestions& asks = *image_questions(*source);
  for (int64_t i = 0; i < source->size(); ++i) {
    std::vector<Instruction> asked = instructions_of(*source, i, 0);
    std::erase_if(asked, [](const Instruction& one) { return one.kind != ResponseKind::question; });
    ASSERT_EQ(std::ssize(asked), asks.questions_per_image());
    for (int64_t n = 0; n < asks.questions_per_image(); ++n) {
      std::vector<std::string> turns = asks.ask(i, n).turns;
      turns[0] = "<image>\n" + turns[0];
      EXPECT_EQ(asked[static_cast<size_t>(n)].turns, turns);
    }
  }
}

// Answers about numbers and presence agree with the boxes.
TEST(Instruct, AnswersAgreeWithTheBoxes) {
  const auto source = open_source({.path = "shapes:task=detect,train=60,val=8"}, Split::train);
  const ObjectLabels& labels = *object_labels(*source);
  int checked = 0;
  for (int64_t i = 0; i < source->size(); ++i) {
    std::map<std::string, int64_t> there;
    for (const ObjectAnnotation& object : labels.objects(i))
      there[labels.object_classes()[static_cast<size_t>(object.box.label)]] += 1;
    const auto turns = instructions_of(*source, i, 3)[0].turns;
    for (size_t t = 0; t < turns.size(); t += 2) {
      for (const auto& [name, count] : there) {
        if (turns[t + 1] == "There is one " + name + ".") {
          EXPECT_EQ(count, 1);
          ++checked;
        }
        if (turns[t].starts_with("Is there a " + name + " in")) {
          EXPECT_EQ(turns[t + 1], "Yes.");
          ++checked;
        }
        EXPECT_FALSE(turns[t + 1].starts_with("No, there is no " + name + " "));
      }
    }
  }
  EXPECT_GT(checked, 30);
}

TEST(Instruct, ClassesAloneAreEnough) {
  const auto source = open_source({.path = "shapes:task=texture,train=4,val=4"}, Split::train);
  const auto all = all_of(*source);
  ASSERT_EQ(all.size(), 12u);
  const ClassLabels& labels = *source->class_labels();
  for (int64_t i = 0; i < source->size(); ++i) {
    const std::string name = labels.class_names()[static_cast<size_t>(labels.label(i))];
    EXPECT_NE(all[static_cast<size_t>(3 * i)].turns[1].find(name), std::string::npos);
    EXPECT_NE(all[static_cast<size_t>(3 * i + 2)].turns[1].find("it is"), std::string::npos);
  }
}

TEST(Instruct, ItsFileIsReadAsConversations) {
  const TemporaryFolder folder;
  const std::shared_ptr<Source> source =
      open_source({.path = "shapes:task=detect,train=5,val=5"}, Split::train);
  const auto all = all_of(*source);
  std::string lines;
  for (size_t i = 0; i < all.size(); ++i) lines += instruction_line(all[i], static_cast<int64_t>(i)) + "\n";
  write_text_atomic(folder.path("made.jsonl"), lines);
  const Conversations read(folder.path("made.jsonl"), source);
  ASSERT_EQ(read.size(), std::ssize(all));
  EXPECT_EQ(read.types(), (std::vector<std::string>{"conversation", "detail", "reasoning"}));
  for (int64_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read.read(i).annotation.captions, all[static_cast<size_t>(i)].turns);
    EXPECT_EQ(read.read(i).annotation.classes[0], static_cast<int64_t>(all[static_cast<size_t>(i)].kind));
    EXPECT_TRUE(read.problems_of(i).empty());
  }
}

TEST(Instruct, WhereNothingIsKnownNothingIsSaid) {
  const auto source = open_source({.path = "shapes:task=segment,train=4,val=4"}, Split::train);
  EXPECT_THROW(require_something_to_say(*source), Error);
}

TEST(Conversations, ProblemsAreNamed) {
  const TemporaryFolder folder;
  write_text_atomic(folder.path("ask.jsonl"),
                    R"({"image": "1", "conversations": [{"from": "human", "value": "<image> or <image>?"}, )"
                    R"({"from": "gpt", "value": " "}]})"
                    "\n"
                    R"({"image": "2", "question": "what?", "answers": ["a star"]})"
                    "\n");
  const std::shared_ptr<Source> images = open_source({.path = "shapes:train=4,val=4"}, Split::train);
  const Conversations asked(folder.path("ask.jsonl"), images);
  const std::string where =
      folder.path("ask.jsonl") + " line 1: the conversation about shapes train sample 1 ";
  EXPECT_EQ(asked.problems_of(0),
            (std::vector<std::string>{where + "has an empty turn, number 2",
                                      where + "holds '<image>' 2 times, must be once"}));
  EXPECT_TRUE(asked.problems_of(1).empty());
}

// As chat templates name roles, and with a list of one image.
TEST(Conversations, RolesAndImagesHaveSeveralForms) {
  const TemporaryFolder folder;
  const std::shared_ptr<Source> images = open_source({.path = "shapes:train=4,val=4"}, Split::train);
  const std::string
      turns = R"([{"role": "user", "content": "<image>\nWhat?"},)"
              R"({"role": "assistant", "content": "A star."}])",
      own = R"([{"from": "user", "value": "<image>\nWhat?"}, {"from": "assistant", "value": "A star."}])";
  const auto lines = [&](const std::string& line) {
    write_text_atomic(folder.path("ask.jsonl"), line + "\n");
    return Conversations(folder.path("ask.jsonl"), images);
  };
  for (const std::string& line :
       {R"({"images": ["1"], "messages": )" + turns + "}", R"({"image": "1", "conversations": )" + own + "}"})
    EXPECT_EQ(lines(line).read(0).annotation.captions,
              (std::vector<std::string>{"<image>\nWhat?", "A star."}));
  EXPECT_EQ(error_of([&] { lines(R"({"image": ["1", "2"], "conversations": )" + own + "}"); }, &folder),
            "DIR/ask.jsonl line 1: 'image' is a list of 2, must be one image");
}

TEST(Conversations, TheTwoFilesOfVqaGoTogether) {
  const TemporaryFolder folder;
  const std::string questions = folder.path("questions.json"), answers = folder.path("answers.json"),
                    both = questions + "+" + answers;
  const std::shared_ptr<Source> images = open_source({.path = "shapes:train=4,val=4"}, Split::train);
  const auto write = [&](const std::string& asked, const std::string& answered) {
    write_text_atomic(questions, R"({"task_type": "Open-Ended", "questions": [)" + asked + "]}");
    write_text_atomic(answers, R"({"data_type": "mscoco", "annotations": [)" + answered + "]}");
  };
  const std::string first = R"({"question_id": 30, "image_id": 3, "question": "what?"})";
  write(first + R"(, {"question_id": 90, "image_id": 9, "question": "of no image of ours"})",
        R"({"question_id": 30, "image_id": 3, "answer_type": "other", "multiple_choice_answer": "star",)"
        R"( "answers": [{"answer": "star", "answer_id": 1}, {"answer": "a star", "answer_id": 2}]})");
  const Conversations asked(both, images);
  ASSERT_EQ(asked.size(), 1);
  EXPECT_EQ(asked.read(0).annotation.captions, (std::vector<std::string>{"what?", "star"}));
  EXPECT_EQ(asked.read(0).name, images->read(3).name);
  EXPECT_EQ(asked.answers(0), (std::vector<std::string>{"star", "a star"}));
  EXPECT_EQ(asked.types(), (std::vector<std::string>{"other"}));
  EXPECT_NE(asked.describe().find("1 about no image of them left out"), std::string::npos);
  // Answers to other questions, and questions without their answer file.
  EXPECT_THROW(Conversations(questions, images), Error);
  write(first, R"({"question_id": 31, "answers": [{"answer": "star"}]})");
  EXPECT_THROW(Conversations(both, images), Error);
  const std::string twice = R"({"question_id": 30, "answers": [{"answer": "star"}]})";
  write(first, twice + "," + twice);
  EXPECT_THROW(Conversations(both, images), Error);
}

// The built-in set's questions agree with its captions.
TEST(Conversations, TheBuiltInSetAsksItself) {
  const std::shared_ptr<Source> images =
      open_source({.path = "shapes:task=text,train=200,val=4"}, Split::train);
  const Conversations asked(images);
  ASSERT_EQ(asked.size(), 6 * 200);
  EXPECT_EQ(asked.types(),
            (std::vector<std::string>{"caption", "colour", "place", "shape", "texture", "yes_no"}));
  const ClassLabels& labels = *images->class_labels();
  int yes = 0;
  for (int64_t i = 0; i < images->size(); ++i) {
    const auto answer = [&](int64_t number) { return asked.read(6 * i + number).annotation.captions.at(1); };
    const std::string caption = images->read(i).annotation.captions.at(0),
                      shape = labels.class_names()[static_cast<size_t>(labels.label(i))];
    EXPECT_EQ(answer(0), caption);
    EXPECT_EQ(answer(3), shape);
    for (const int64_t number : {1, 2, 3}) EXPECT_NE(caption.find(answer(number)), std::string::npos);
    const auto last = asked.read(6 * i + 5).annotation;
    EXPECT_EQ(last.captions.at(1) == "yes", last.captions.at(0) == "Is it a " + shape + "?");
    EXPECT_EQ(last.classes, (std::vector<int64_t>{5}));
    yes += last.captions.at(1) == "yes";
  }
  EXPECT_GT(yes, 60);
  EXPECT_LT(yes, 140);
  const std::shared_ptr<Source> silent = open_source({.path = "shapes:train=4,val=4"}, Split::train);
  EXPECT_THROW(Conversations{silent}, Error);
}

}  // namespace
}  // namespace tessera::data
