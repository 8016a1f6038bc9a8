// One token through the mixer of ops/mlstm_mixer.h, after the tokens in a state: the same formulas with the
// cell as a recurrence. Consists of ATen operations, gradients by autograd.
#pragma once

#include "ops/mlstm_mixer.h"

namespace tessera::ops {

// Undefined before the first token.
struct MlstmMixerState {
  torch::Tensor
      inputs;  // x of the last kernel - 1 tokens, [batch, kernel - 1, inner]; none without convolution
  MlstmState cell;
};

// u [batch, 1, 2 * inner] -> [batch, 1, inner]; updates the state. The convolution must be causal or none,
// the direction not reversed; rows, columns and off_grid are ignored.
torch::Tensor mlstm_mixer_step(const torch::Tensor& u, const MlstmMixerParameters& parameters,
                               const MlstmMixerOptions& options, MlstmMixerState& state);

}  // namespace tessera::ops
