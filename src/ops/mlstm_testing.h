// Runs the mLSTM's step (ops/mlstm.h) over a sequence: the definition that its other forms are tested against.
#pragma once

#include <utility>
#include <vector>

#include "ops/mlstm.h"

namespace tessera::ops {

inline MlstmResult mlstm_recurrent(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                                   const torch::Tensor& input_gate, const torch::Tensor& forget_gate,
                                   const MlstmState& initial, const MlstmOptions& options = {}) {
  MlstmState state = initial;
  std::vector<torch::Tensor> rows;
  for (int64_t t = 0; t < q.size(2); ++t) {
    MlstmResult done = mlstm_step(q.select(2, t), k.select(2, t), v.select(2, t), input_gate.select(2, t),
                                  forget_gate.select(2, t), state, options);
    rows.push_back(std::move(done.h));
    state = std::move(done.last);
  }
  return {rows.empty() ? torch::zeros_like(v) : torch::stack(rows, 2), state};
}

}  // namespace tessera::ops
