// The implicit attention of a Vision-LSTM layer: the matrix by which the parallel form of its cell mixes the tokens.
#pragma once

#include "ops/torch.h"

#include "ops/mlstm_mixer.h"

namespace tessera::ops {

// C_ts / (n_t + eps) of ops/mlstm.h, by which h = matrix v: u [batch, tokens, 2 * inner] -> [batch, heads, tokens, tokens], rows
// and columns in the order of the tokens whatever the walk. Weights may be negative, and rows sum to 1 only where that sum is
// larger than exp(-m). In ATen operations alone: it is for looking at.
torch::Tensor mlstm_mixing(const torch::Tensor& u, const MlstmMixerParameters& parameters,
                           const MlstmMixerOptions& options);

}  // namespace tessera::ops
