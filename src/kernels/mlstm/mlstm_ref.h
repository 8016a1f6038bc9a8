// The plain definition of the mLSTM cell for one head, over every pair of tokens.
//
// In double it is the reference. In float its error is the bound for the fast kernels' errors.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/mlstm/mlstm.h"

namespace tessera::kernels {

template <class Real>
struct MlstmStateRef {
  std::vector<Real> c, n;  // (K,V), (K)
  Real m = 0;
};

template <class Real>
struct MlstmHead {
  int64_t tokens = 0, key_dim = 0, value_dim = 0;
  Real eps = Real(1e-6);
  std::vector<Real> q, k, v;       // (T,K), (T,K), (T,V)
  std::vector<Real> igate, fgate;  // (T)
  bool has_initial = false;
  MlstmStateRef<Real> initial;
};

template <class Real>
struct MlstmHeadOutput {
  std::vector<Real> h, normaliser, row_sign;  // (T,V), (T), (T)
  MlstmStateRef<Real> last;
};

template <class Real>
struct MlstmHeadGradients {
  std::vector<Real> dq, dk, dv, digate, dfgate;
  MlstmStateRef<Real> dinitial;
};

// Instantiated for double and float.
template <class Real>
MlstmHeadOutput<Real> mlstm_head_forward(const MlstmHead<Real>& in);

// dh is (T,V); dlast is used if has_dlast.
template <class Real>
MlstmHeadGradients<Real> mlstm_head_backward(const MlstmHead<Real>& in, const std::vector<Real>& dh,
                                             bool has_dlast, const MlstmStateRef<Real>& dlast);

}  // namespace tessera::kernels
