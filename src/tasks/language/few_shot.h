// Classes of texts by a causal language model that has not learned them (Brown et al. 2020, section 2): a prompt of
// `shots` examples with their labels and the text; the answer is the label of the largest likelihood.
//
//   answer = argmax over labels c of  sum over i of log p(c_i | prompt, c_1 … c_(i-1)),  c_i: tokens of the label
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/base/source.h"
#include "models/language/language_model.h"
#include "text/tokeniser.h"

namespace tessera::tasks {

// A pattern such as "{text}\nLabel: {label}\n\n". An example fills all of it; the question ends before its label.
class ShotPattern {
 public:
  // Throws a usage error that begins with `who` unless {text} occurs, and then {label} once.
  ShotPattern(const std::string& pattern, const std::string& who);

  // `texts`: a text, or two for {pair} (without a second one it is empty).
  std::string example(const std::vector<std::string>& texts, const std::string& label) const;
  std::string question(const std::vector<std::string>& texts) const;

 private:
  std::string before_, after_;  // around {label}
};

// Indices of a set of `size` samples, distinct, drawn for one question: those of fewer shots are the first of more.
std::vector<int64_t> drawn_shots(int64_t size, int64_t shots, uint64_t seed, int64_t question);

// The tokens of a question: the prompt, and for each label the tokens after it.
struct ShotTokens {
  std::vector<int64_t> prompt;
  std::vector<std::vector<int64_t>> labels;
  // Length of the prompt with its longest label.
  int64_t length() const;
};
// Tokenises the prompt with each label as one text, so that a token may have characters of both. Throws Error if a
// label is empty.
ShotTokens shot_tokens(const Tokeniser& tokeniser, const std::string& prompt,
                       const std::vector<std::string>& labels);

// Returns the log-likelihood of each label, double [labels] on the CPU. The prompt is read once.
torch::Tensor label_likelihoods(models::LanguageModel& model, const ShotTokens& tokens, torch::Device device);

struct FewShotOptions {
  std::string pattern;  // of ShotPattern
  int64_t shots = 0;    // at most
  int64_t context = 0;  // tokens that the model reads, 0 = any number
  uint64_t seed = 0;    // selects the examples
};

struct ShotScores {
  int64_t samples = 0, right = 0;
  double loss = 0;  // mean of -log of the label's share of the labels' likelihoods
};

// Questions about the texts of one set with examples from another; labels are the names of classes.
class FewShot {
 public:
  // Called after each question with their number so far; if it returns false, throws ErrorKind::interrupted.
  using Progress = std::function<bool(int64_t done)>;

  // The sets must outlive this. With a context, tokenises the prompts of the most shots. Throws usage errors for texts
  // without labels, for fewer examples than shots, and for a prompt that is longer than the context.
  FewShot(const FewShotOptions& options, Tokeniser tokeniser, const data::Source& examples,
          const data::Source& questions, const Progress& progress = {});
  ShotTokens tokens(int64_t question, int64_t shots) const;
  // Scores all questions.
  ShotScores measure(models::LanguageModel& model, torch::Device device, int64_t shots,
                     const Progress& progress = {}) const;

 private:
  void tokenise_all(const Progress& progress);

  FewShotOptions options_;
  ShotPattern pattern_;
  Tokeniser tokeniser_;
  const data::Source &examples_, &questions_;
  const data::ClassLabels& labels_;
  std::vector<ShotTokens> longest_;  // by question, of the most shots; empty without a context
};

}  // namespace tessera::tasks
