// The implicit attention of Vision-LSTM, prepared for analysis.
#pragma once

#include "ops/torch.h"

namespace tessera::analysis {

// Turns the implicit attention of a Vision-LSTM layer (ops/mlstm_mixing.h), which may be negative, into rows
// of sum 1: magnitudes divided by their row's sum. Rows of zeros stay zero.
torch::Tensor magnitudes_of_sum_one(const torch::Tensor& mixing);

// The order in which a Vision-LSTM layer walks its tokens, derived from the tokens that each one reads.
enum class Walk { forwards, backwards, other };
Walk walk_of(const torch::Tensor& mixing);

}  // namespace tessera::analysis
