// Captions against references: BLEU (Papineni et al. 2002), CIDEr-D (Vedantam et al. 2015) and ROUGE-L (Lin 2004), with
// the details of the COCO evaluation: tokens as the Penn Treebank splits them, lower case, without punctuation.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::eval {

// Words joined by one blank: "A man's dog, isn't it?" -> "a man 's dog is n't it". Brackets become -lrb- and the like.
std::string caption_tokens(std::string_view caption);

struct CaptionedImage {
  std::string candidate;                // as caption_tokens gives it
  std::vector<std::string> references;  // likewise, at least one
};

struct CaptionScores {
  std::array<double, 4> bleu{};                  // of 1 to 4 words, over the whole corpus
  double cider = 0, rouge_l = 0;                 // means over the images
  std::vector<std::array<double, 4>> bleu_each;  // of single images, in their order
  std::vector<double> cider_each, rouge_l_each;
};

// Fails naming the place of an image without a reference, or without images. Document frequencies of CIDEr are those of
// the references given.
CaptionScores score_captions(const std::vector<CaptionedImage>& images);

}  // namespace tessera::eval
