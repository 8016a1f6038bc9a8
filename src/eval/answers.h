// Answers to questions about pictures, measured as VQA does (Antol et al. 2015).
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tessera::eval {

// An answer as VQA's own program compares it: without line ends and tabs, most punctuation, articles; number words as
// digits, contractions with their apostrophe, lower case. Its slips are kept: any period that no digit follows goes, at
// most 32 of them.
std::string processed_answer(std::string_view answer);

// The mean over the annotators of min(1, equal answers of the others / 3). Answers are processed only where those of the
// annotators are not all equal.
double vqa_accuracy(std::string_view answer, std::span<const std::string> annotators);

}  // namespace tessera::eval
