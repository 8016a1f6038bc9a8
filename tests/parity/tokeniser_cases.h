// components/tok_*: ids, offsets and decoding of published tokenisers.
#pragma once

#include "tests/parity/case.h"

namespace tessera::parity {

CaseResult check_clip_captions(const Golden& golden);    // tok_clip_bpe
CaseResult check_clip_vocabulary(const Golden& golden);  // tok_clip_vocab
CaseResult check_tokeniser(const Golden& golden);        // the others, with their files under tokenizers/

// Conversations and answers: llava_prompts, metric_vqa.
CaseResult check_prompts(const Golden& golden);
CaseResult check_answers(const Golden& golden);

}  // namespace tessera::parity
