// Generates text with a model that scores the next token: rules that change the scores, and searches.
//
// A search sees only two functions of the model, so that decoders, encoder-decoders and models with images
// share it. Random draws depend on the seed, the row and the position only, never on the batch.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <vector>

#include "core/config.h"
#include "core/random.h"

namespace tessera::models {

// Changes to the scores of the next token, applied in this order (that of the transformers library). All are
// off by default. Each of the functions below applies one of them.
struct TokenRules {
  double repetition_penalty = 1;  // tokens that occurred: positive scores divided, negative ones multiplied
  int64_t no_repeat_ngram = 0;    // forbids repeated n-grams of this length; 0 = off
  std::vector<std::vector<int64_t>> bad_words = {};
  int64_t min_length = 0;      // minimum tokens of the text, including the prompt, before it may end
  int64_t min_new_tokens = 0;  // new tokens before the text may end; overrides min_length
  double temperature = 1;
  int64_t top_k = 0;  // 0 = all
  double top_p = 1, min_p = 0;
  double typical_p = 1, epsilon = 0;
};

// Changes the scores float [rows, vocabulary] of the token after ids int64 [rows, tokens]; removed tokens are
// -inf. The first `prompt` tokens are the prompt. `ends` end a text. `draws`: also applies temperature and
// the rules after it. `padding` as below.
torch::Tensor apply_rules(torch::Tensor scores, const torch::Tensor& ids, const TokenRules& rules,
                          const std::vector<int64_t>& ends, int64_t prompt, bool draws,
                          const torch::Tensor& padding = {});

// `padding` int64 [rows]: padding tokens before each row, which do not count; undefined = none.
torch::Tensor penalise_repetition(const torch::Tensor& scores, const torch::Tensor& ids, double penalty,
                                  const torch::Tensor& padding = {});
torch::Tensor forbid_repeated_ngrams(const torch::Tensor& scores, const torch::Tensor& ids, int64_t length);
torch::Tensor forbid_words(const torch::Tensor& scores, const torch::Tensor& ids,
                           const std::vector<std::vector<int64_t>>& words);
torch::Tensor keep_top_k(const torch::Tensor& scores, int64_t count);   // keeps ties with the last one kept
torch::Tensor keep_top_p(const torch::Tensor& scores, double share);    // Holtzman et al. 2020
torch::Tensor keep_min_p(const torch::Tensor& scores, double share);    // Nguyen et al. 2024
torch::Tensor keep_typical(const torch::Tensor& scores, double share);  // Meister et al. 2023
torch::Tensor keep_epsilon(const torch::Tensor& scores, double least);  // Hewitt et al. 2022

// Draws one token from a row of scores [vocabulary]: the first at which the cumulative probability exceeds a
// number drawn from `random`.
int64_t draw_token(const torch::Tensor& scores, RandomStream& random);

enum class EarlyStop { no, yes, never };

struct GenerationOptions {
  int64_t max_new_tokens = 64;
  std::vector<int64_t> ends = {};  // tokens that end a text
  int64_t pad = 0;                 // after the end
  torch::Tensor padding = {};      // int64 [prompts]: padding tokens before each; undefined = none
  TokenRules rules = {};
  bool sample = false;  // samples from the scores, else takes the largest
  uint64_t seed = 0;
  // Beam search: the number of beams, and of texts returned. The divisor of their summed log probabilities is
  // length^length_penalty, or ((5 + length) / 6)^length_penalty (Wu et al. 2016). Lengths count new tokens.
  int64_t beams = 1, returned = 1;
  double length_penalty = 1;
  bool gnmt_length = false;
  EarlyStop early_stop = EarlyStop::no;
  // Called with each new token of each row (greedy and sampling only); false ends the search.
  std::function<bool(const std::vector<int64_t>& tokens)> progress = {};
  // Beam search: called before each token; true ends the search and returns the best texts so far.
  std::function<bool()> stopped = {};
};

// The model of a search. `next` reads the tokens `fresh` int64 [rows, tokens] after those it has read: first
// the prompt, then one per row. It returns the scores of the next token, [rows, vocabulary]. `reorder` lets
// row i continue from the state of row rows[i] (int64).
struct NextTokenModel {
  std::function<torch::Tensor(const torch::Tensor& fresh)> next;
  std::function<void(const torch::Tensor& rows)> reorder;
};

struct Generated {
  torch::Tensor ids;     // int64 [rows, prompt + new tokens], padded
  torch::Tensor scores;  // for beams, [rows]; else undefined
};

// Continues a prompt int64 [rows, tokens]. With beams, the rows of the result are the best of each prompt, in
// order. `first_row`: number of the first row among all (keys the draws).
Generated generate(const NextTokenModel& model, const torch::Tensor& prompt, const GenerationOptions& options,
                   int64_t first_row = 0);

struct ImageReading {
  int64_t image_token = -1;  // the token id at the positions of an image
  bool among_words = true;   // each feature replaces a token; false: an image takes one position
  // Computes the features of images [images, 3, height, width], read once: [images, features, width].
  std::function<torch::Tensor(const torch::Tensor& images)> features = {};
  // For generate(): reads a prompt int64 [rows, tokens] that refers to these images, in order over its rows.
  // `features` is undefined if it refers to none.
  std::function<NextTokenModel(const torch::Tensor& prompt, const torch::Tensor& features, int64_t beams)>
      begin = {};

  int64_t places_of(const torch::Tensor& read) const { return among_words ? read.size(1) : 1; }
};

}  // namespace tessera::models
