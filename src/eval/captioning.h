// Scores of captions against references: BLEU (Papineni et al. 2002), CIDEr-D (Vedantam et al. 2015) and
// ROUGE-L (Lin 2004), as in the COCO evaluation: Penn Treebank tokens, lower case, without punctuation.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::eval {

// Joins the words with single blanks: "A man's dog, isn't it?" -> "a man 's dog is n't it". Brackets become
// -lrb- etc.
std::string caption_tokens(std::string_view caption);

struct CaptionedImage {
  std::string candidate;                // from caption_tokens
  std::vector<std::string> references;  // likewise, at least one
};

struct CaptionScores {
  std::array<double, 4> bleu{};                  // for 1 to 4 words, over the whole corpus
  double cider = 0, rouge_l = 0;                 // means over the images
  std::vector<std::array<double, 4>> bleu_each;  // for each image, in order
  std::vector<double> cider_each, rouge_l_each;
};

// Throws Error without images, or with the place of an image without a reference. CIDEr's document
// frequencies come from the given references.
CaptionScores score_captions(const std::vector<CaptionedImage>& images);

}  // namespace tessera::eval
