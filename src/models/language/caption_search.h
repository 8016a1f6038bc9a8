// Captions token by token: the best next token each time, or beams in groups.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>

namespace tessera::models {

struct CaptionSearch {
  int64_t start = 0, end = 0, pad = 0;  // tokens
  int64_t longest = 30;                 // tokens with start and end
  int64_t shortest = 1;                 // tokens before which no end is taken
  double repetition_penalty =
      1;  // scores of tokens that are there are divided by it, or multiplied where negative
  int64_t beams = 1, groups = 1;  // beams of all groups together; one beam: greedy
  // Beams are compared by the sums of the raw scores, as OpenCLIP's CoCa does, instead of those of log probabilities.
  bool raw_scores = false;
};

// The scores of the token that follows, [rows, vocabulary]: `ids` int64 [rows, tokens], `image` int64 [rows] says which
// image of the batch each row is about.
using NextToken = std::function<torch::Tensor(const torch::Tensor& ids, const torch::Tensor& image)>;

// Captions of `images` images, int64 [images, tokens <= longest], with the start, the end where it fits, then padding.
// Greedy: the last place holds the end whatever the scores say. Beams: sums divided by the length with the end, the
// best of all groups; each group searches on its own from the same start (Vijayakumar et al. 2018 without their
// diversity).
torch::Tensor search_captions(int64_t images, const CaptionSearch& options, const NextToken& next);

}  // namespace tessera::models
