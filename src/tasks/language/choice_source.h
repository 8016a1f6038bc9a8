// Multiple-choice questions, one sample per choice as the answer; the likeliest sample is the model's choice.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "data/sources/conversations.h"

namespace tessera::tasks {

class ChoiceSource final : public data::Source {
 public:
  explicit ChoiceSource(std::shared_ptr<const data::Conversations> questions)
      : questions_(std::move(questions)) {
    for (int64_t i = 0; i < questions_->size(); ++i)
      for (int64_t choice = 0; choice < questions_->choices(i); ++choice) asked_.emplace_back(i, choice);
  }
  int64_t size() const override { return std::ssize(asked_); }
  // Appends the question's index to the kind of answer in annotation.classes, so all choices of a question
  // get the same few-shot examples.
  data::RawSample read(int64_t index) const override {
    const auto [question, choice] = asked_[static_cast<size_t>(index)];
    data::RawSample sample = questions_->read(question);
    sample.annotation.captions.at(1) = data::choice_letter(static_cast<size_t>(choice));
    sample.annotation.classes.push_back(question);
    return sample;
  }
  uint64_t fingerprint() const override { return questions_->fingerprint(); }
  std::string describe() const override { return "choices of " + questions_->describe(); }
  // The indices of the question and the choice.
  std::pair<int64_t, int64_t> asked(int64_t index) const { return asked_[static_cast<size_t>(index)]; }

 private:
  std::shared_ptr<const data::Conversations> questions_;
  std::vector<std::pair<int64_t, int64_t>> asked_;
};

}  // namespace tessera::tasks
