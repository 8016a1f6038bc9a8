// Text from a model that scores the next token: what is done to the scores, and the searches.
//
// A search knows nothing of the model but two functions, so that decoders, encoder-decoders and models with images
// share it. What is drawn at random depends on the seed, the row and the position only, never on the batch.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <vector>

#include "core/config.h"
#include "core/random.h"

namespace tessera::models {

// How the scores of the next token are changed, in this order (that of the transformers library); everything off by
// default. Functions below give each step alone.
struct TokenRules {
  double repetition_penalty = 1;  // tokens that occurred: divided where positive, multiplied where negative
  int64_t no_repeat_ngram = 0;    // no n-gram twice; 0 = off
  std::vector<std::vector<int64_t>> bad_words = {};
  int64_t min_length = 0;      // no end before the text, prompt included, has so many tokens
  int64_t min_new_tokens = 0;  // no end before so many new tokens; takes the place of min_length
  double temperature = 1;
  int64_t top_k = 0;  // 0 = all
  double top_p = 1, min_p = 0;
  double typical_p = 1, epsilon = 0;
};

// Scores float [rows, vocabulary] of the token behind ids [rows, tokens] (int64); removed tokens are -inf. `prompt`
// tokens of them were given. `ends` end a text. `draws`: temperature and what follows it apply too. `padding` as below.
torch::Tensor apply_rules(torch::Tensor scores, const torch::Tensor& ids, const TokenRules& rules,
                          const std::vector<int64_t>& ends, int64_t prompt, bool draws,
                          const torch::Tensor& padding = {});

// `padding` int64 [rows]: tokens in front of each row that do not count; undefined = none.
torch::Tensor penalise_repetition(const torch::Tensor& scores, const torch::Tensor& ids, double penalty,
                                  const torch::Tensor& padding = {});
torch::Tensor forbid_repeated_ngrams(const torch::Tensor& scores, const torch::Tensor& ids, int64_t length);
torch::Tensor forbid_words(const torch::Tensor& scores, const torch::Tensor& ids,
                           const std::vector<std::vector<int64_t>>& words);
torch::Tensor keep_top_k(const torch::Tensor& scores, int64_t count);   // all that equal the last of them too
torch::Tensor keep_top_p(const torch::Tensor& scores, double share);    // Holtzman et al. 2020
torch::Tensor keep_min_p(const torch::Tensor& scores, double share);    // Nguyen et al. 2024
torch::Tensor keep_typical(const torch::Tensor& scores, double share);  // Meister et al. 2023
torch::Tensor keep_epsilon(const torch::Tensor& scores, double least);  // Hewitt et al. 2022

// One token from a row of scores [vocabulary]: the first with which their shares' sum exceeds a number drawn from `random`.
int64_t draw_token(const torch::Tensor& scores, RandomStream& random);

enum class EarlyStop { no, yes, never };

struct GenerationOptions {
  int64_t max_new_tokens = 64;
  std::vector<int64_t> ends = {};  // tokens that end a text
  int64_t pad = 0;                 // behind the end
  torch::Tensor padding = {};      // int64 [prompts]: tokens of padding in front of each; undefined = none
  TokenRules rules = {};
  bool sample = false;  // draw from the scores, else take the largest
  uint64_t seed = 0;
  // Beams: how many, how many of the best are given, and what their sums of log probabilities are divided by:
  // length^length_penalty, or ((5 + length) / 6)^length_penalty (Wu et al. 2016). Lengths count new tokens.
  int64_t beams = 1, returned = 1;
  double length_penalty = 1;
  bool gnmt_length = false;
  EarlyStop early_stop = EarlyStop::no;
  // Called with each new token of each row (greedy and sampling only); false ends the search.
  std::function<bool(const std::vector<int64_t>& tokens)> progress = {};
  // Beams: asked before each token; true ends the search, whose best texts so far are given.
  std::function<bool()> stopped = {};
};

// The model of a search. `next` reads the tokens `fresh` int64 [rows, tokens] behind what it has read (the prompt at
// first, then one token a row) and gives the scores of what follows, [rows, vocabulary]; `reorder` makes row i go on
// from what row rows[i] has read (int64).
struct NextTokenModel {
  std::function<torch::Tensor(const torch::Tensor& fresh)> next;
  std::function<void(const torch::Tensor& rows)> reorder;
};

struct Generated {
  torch::Tensor ids;     // int64 [rows, prompt + new tokens], padded
  torch::Tensor scores;  // of beams, [rows]; else undefined
};

// Continues a prompt int64 [rows, tokens]. With beams the rows of the result are the best of each prompt, in order.
// `first_row`: number of the first row among all (keys the draws).
Generated generate(const NextTokenModel& model, const torch::Tensor& prompt, const GenerationOptions& options,
                   int64_t first_row = 0);

}  // namespace tessera::models
