// The implicit attention of a Vision-LSTM layer: the matrix with which its cell's parallel form mixes the
// tokens.
#pragma once

#include "ops/torch.h"

#include "ops/mlstm_mixer.h"

namespace tessera::ops {

// C_ts / (n_t + eps) of ops/mlstm.h, so that h = matrix v: u [batch, tokens, 2 * inner] -> [batch, heads,
// tokens, tokens]. Rows and columns are in token order for any walk. Weights may be negative. Rows sum to 1
// only if that sum exceeds exp(-m). Uses only ATen operations, as it serves inspection.
torch::Tensor mlstm_mixing(const torch::Tensor& u, const MlstmMixerParameters& parameters,
                           const MlstmMixerOptions& options);

}  // namespace tessera::ops
