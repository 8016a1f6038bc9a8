// How the matrices by which Vision-LSTM mixes its tokens are looked at.
#pragma once

#include "ops/torch.h"

namespace tessera::analysis {

// The implicit attention of a Vision-LSTM layer (ops/mlstm_mixing.h), whose weights may be negative, as weights of rows of sum 1: their
// magnitudes, each row divided by its sum. Rows of zeros stay so.
torch::Tensor magnitudes_of_sum_one(const torch::Tensor& mixing);

// The order in which a Vision-LSTM layer walks its tokens, from which of them each one reads.
enum class Walk { forwards, backwards, other };
Walk walk_of(const torch::Tensor& mixing);

}  // namespace tessera::analysis
