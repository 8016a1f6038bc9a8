// Handlers of images and texts in one space: losses over pairs, CLIP, SigLIP, CoCa, SimVLM, their metrics.
#pragma once

#include "tests/parity/case.h"

namespace tessera::parity {

CaseResult check_pair_losses(const Golden& golden);  // pair_cases.cpp: components/loss_contrastive
CaseResult check_pairs_of_ranks(
    const Golden& golden);                          // pair_cases.cpp: loss_contrastive_distributed, _ranks
CaseResult check_retrieval(const Golden& golden);   // pair_cases.cpp: metric_retrieval_zeroshot
CaseResult check_captioning(const Golden& golden);  // pair_cases.cpp: metric_captioning
CaseResult check_towers(const Golden& golden);      // tower_cases.cpp: model_clip_tiny, _hf, model_siglip_*
CaseResult check_coca(const Golden& golden);        // tower_cases.cpp: model_coca_tiny
CaseResult check_coca_captions(const Golden& golden);      // tower_cases.cpp: generate_coca
CaseResult check_zero_shot_prompts(const Golden& golden);  // tower_cases.cpp: zeroshot_prompts
CaseResult check_simvlm(const Golden& golden);             // simvlm_cases.cpp: model_simvlm_tiny
CaseResult check_clip_preprocess(const Golden& golden);    // preprocess_cases.cpp: preprocess_clip

}  // namespace tessera::parity
