// Scores of texts against references: captions, and answers to questions.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::eval {

// Captions: BLEU (Papineni et al. 2002), CIDEr-D (Vedantam et al. 2015) and ROUGE-L (Lin 2004), as in the COCO
// evaluation: Penn Treebank tokens, lower case, without punctuation.

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

// Throws Error if there are no images, or with the index of an image without a reference. CIDEr's document
// frequencies come from the given references.
CaptionScores score_captions(const std::vector<CaptionedImage>& images);

// Answers to questions about images, scored as in VQA (Antol et al. 2015).

// Returns an answer in the form that VQA's evaluation code compares: without line ends, tabs, articles and
// most punctuation; number words as digits, contractions with their apostrophe, lower case. Its mistakes are
// reproduced: it removes any period that no digit follows, at most 32 of them.
std::string processed_answer(std::string_view answer);

// Returns the mean over the annotators of min(1, equal answers of the others / 3). Answers are converted to
// that form only if the annotators disagree.
double vqa_accuracy(std::string_view answer, std::span<const std::string> annotators);

}  // namespace tessera::eval
