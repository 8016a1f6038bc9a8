// BERT (Devlin et al. 2019; models/language/bert.h) learns masked tokens of texts, or classes of texts.
//
//   masked    - sum over masked tokens of log p(token | the masked text)                  (section 3.1, task 1)
//             mask_ratio of a window's tokens are chosen: 80 % become [MASK], 10 % any token, 10 % stay
//   classes   - log p(class | [CLS] text [SEP] second text [SEP])                          (section 3.2)
//
// A sample is a window of packed texts, or a text with its class. Whether two sentences follow each other (task 2 of
// section 3.1) is not learned.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "models/language/bert.h"
#include "tasks/base/registry.h"

namespace tessera::tasks {

enum class BertGoal { masked, classes };

struct BertTaskConfig {
  BertGoal goal = BertGoal::masked;
  std::string tokenizer = "bytes", weights;
  int64_t length = 128;
  double mask_ratio = 0.15;
  models::BertConfig encoder{.vocabulary = 1, .dim = 256, .depth = 6, .heads = 4, .context = 512};

  template <class V>
  void visit(V& v) {
    v("goal", goal, choice<BertGoal>(), "masked tokens of texts, or classes of texts with labels");
    v("tokenizer", tokenizer, "tokenizer.json or another form, or bytes; it is stored in the weights");
    v("weights", weights,
      "first weights: a run of this task, or a folder of a published model (model_type bert); empty: drawn");
    v("length", length, between(4, 1 << 20), "tokens of a sample; longer texts are cut");
    v("mask_ratio", mask_ratio, Range{.low = 0, .high = 1, .without_low = true, .without_high = true},
      "share of the tokens that is masked, at least one");
    v("encoder", encoder, "the model; vocabulary 1 = the tokeniser's");
  }
};

// The special tokens of BERT's texts.
struct BertTokens {
  int32_t begin = 0, end = 0, mask = 0, pad = 0;
};
// Returns the tokens of a text, or of two with 1 as segment of the second: [CLS] first [SEP] second [SEP]. Cuts the longer
// one first.
struct BertText {
  std::vector<int32_t> ids, segments;
};
BertText bert_text(std::vector<int32_t> first, std::vector<int32_t> second, bool pair, int64_t length,
                   const BertTokens& tokens);

// Masks the ids of one window, padded with kNotLearned, except its first token and the ends of texts. Writes the original ids of masked tokens to
// `targets`, else kNotLearned.
void mask_window(double ratio, const BertTokens& tokens, int64_t vocabulary, RandomStream& random,
                 std::span<int32_t> ids, std::span<int32_t> targets);

struct GivenText {
  std::string text;
  std::string pair = {};  // a second text, "" = none
};

class TextClasses {
 public:
  static constexpr const char* kAbility = "classes of texts: task bert with goal = \"classes\"";
  virtual ~TextClasses() = default;
  // Returns at most `most` classes of each text, the most likely first. Longer texts than task.length are cut. Throws a
  // usage error if the model has no head for classes.
  virtual std::vector<Prediction> predict_texts(std::span<const GivenText> texts, int64_t most) = 0;
};

TaskKind bert_kind();

}  // namespace tessera::tasks

template <>
struct tessera::EnumNames<tessera::tasks::BertGoal> {
  static constexpr std::array names = {"masked", "classes"};
};
