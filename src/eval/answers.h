// Answers to questions about images, scored as VQA does (Antol et al. 2015).
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tessera::eval {

// Returns an answer in the form that VQA's own program compares: without line ends, tabs, articles and most
// punctuation; number words as digits, contractions with their apostrophe, lower case. Its errors are kept:
// it removes any period without a digit after it, at most 32 of them.
std::string processed_answer(std::string_view answer);

// Returns the mean over the annotators of min(1, equal answers of the others / 3). Answers are processed only
// if the annotators disagree.
double vqa_accuracy(std::string_view answer, std::span<const std::string> annotators);

}  // namespace tessera::eval
