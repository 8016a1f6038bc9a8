// Generates captions token by token: greedily, or by beams in groups.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>

namespace tessera::models {

struct CaptionSearch {
  int64_t start = 0, end = 0, pad = 0;  // tokens
  int64_t longest = 30;                 // tokens, including start and end
  int64_t shortest = 1;                 // minimum number of tokens before the end
  double repetition_penalty = 1;  // divides positive scores of tokens that occurred, multiplies negative ones
  int64_t beams = 1, groups = 1;  // number of beams over all groups; 1: greedy
  // Beams are compared by the sums of raw scores, as in OpenCLIP's CoCa, instead of log probabilities.
  bool raw_scores = false;
};

// Returns the scores of the next token, [rows, vocabulary]. `ids` int64 [rows, tokens]; `image` int64 [rows]
// is the index of each row's image in the batch.
using NextToken = std::function<torch::Tensor(const torch::Tensor& ids, const torch::Tensor& image)>;

// Returns captions of `images` images, int64 [images, tokens <= longest]: the start, the tokens, the end if
// it fits, then padding. Greedy: the last token is the end, whatever the scores. Beams: sums are divided by
// the length including the end, and the best of all groups wins. Each group searches independently from the
// same start (Vijayakumar et al. 2018 without their diversity).
torch::Tensor search_captions(int64_t images, const CaptionSearch& options, const NextToken& next);

}  // namespace tessera::models
