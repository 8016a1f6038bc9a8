#include "core/error.h"
#include "models/base/graphed.h"
#include "models/language/language_model.h"

namespace tessera::models {
namespace {

class Reader {
 public:
  Reader(LanguageModel& model, LanguagePrompt prompt, int64_t beams)
      : model_(model), prompt_(std::move(prompt)) {
    if (prompt_.mask.defined()) mask_ = prompt_.mask.to(torch::kBool).repeat_interleave(beams, 0);
    if (prompt_.embedded.defined()) read_ = prompt_.embedded.repeat_interleave(beams, 0);
    steps_ = prompt_.cached && !prompt_.before_block && model_.steps_are_alike();
  }

  torch::Tensor next(const torch::Tensor& fresh) {
    if (steps_ && !first_ && fresh.size(1) == 1) return step(fresh);
    torch::Tensor embedded;
    if (first_ && read_.defined()) {
      embedded = read_;
    } else {
      embedded = model_.embed(fresh);
      read_ = read_.defined() ? torch::cat({read_, embedded}, 1) : embedded;
    }
    if (!first_ && mask_.defined()) {
      const int64_t tokens = prompt_.cached ? cache_.length + embedded.size(1) : read_.size(1);
      mask_ = torch::cat({mask_, torch::ones({mask_.size(0), tokens - mask_.size(1)}, mask_.options())}, 1);
    }
    first_ = false;
    TextInput input{.embedded = prompt_.cached ? embedded : read_,
                    .mask = mask_,
                    .cache = prompt_.cached ? &cache_ : nullptr,
                    .before_block = prompt_.before_block};
    const torch::Tensor hidden = model_.hidden(input);
    if (prompt_.cached) read_ = torch::Tensor();
    return model_.logits(hidden.select(1, -1));
  }

  void reorder(const torch::Tensor& rows) {
    cache_.select(rows);
    place_.select(rows);
    graphs_.forget();
    if (read_.defined()) read_ = read_.index_select(0, rows);
    if (mask_.defined()) mask_ = mask_.index_select(0, rows);
  }

 private:
  // Reads one token of each row.
  torch::Tensor step(const torch::Tensor& fresh) {
    model_.check_length(cache_.length + 1);
    if (cache_.make_room(1) || !place_.before.defined()) {
      place_ = model_.step_place(cache_, mask_);
      graphs_.forget();
    }
    place_.before.fill_(cache_.length);
    const torch::Tensor scores = graphs_.run(fresh, {&model_}, [this](const torch::Tensor& ids) {
      return model_.logits(model_.hidden({.ids = ids, .cache = &cache_, .place = &place_}).select(1, -1));
    });
    ++cache_.length;
    return scores;
  }

  LanguageModel& model_;
  LanguagePrompt prompt_;
  KeyValueCache cache_;
  StepPlace place_;
  GraphedPass graphs_;  // of a step
  bool steps_ = false;  // tokens after the prompt are read by step()
  torch::Tensor read_, mask_;
  bool first_ = true;
};

}  // namespace

torch::Tensor padding_of(const torch::Tensor& mask) { return (mask.to(torch::kInt64).cumsum(1) == 0).sum(1); }

NextTokenModel next_token_model(LanguageModel& model, LanguagePrompt prompt, int64_t beams) {
  const auto reader = std::make_shared<Reader>(model, std::move(prompt), beams);
  return {.next = [reader](const torch::Tensor& fresh) { return reader->next(fresh); },
          .reorder = [reader](const torch::Tensor& rows) { reader->reorder(rows); }};
}

}  // namespace tessera::models
