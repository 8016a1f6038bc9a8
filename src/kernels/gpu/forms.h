// What each operator's .cu file gives to the table, and the checks that forms share. nvcc includes it.
#pragma once

#include "kernels/gpu/table.h"

namespace tessera::kernels::gpu {

Forms<NormForward> norm_forms();
Forms<NormBackward> norm_backward_forms();
Forms<ActivationForward> activation_forms();
Forms<ActivationBackward> activation_backward_forms();
Forms<AdamStep> adam_forms();
Forms<MlstmCell> mlstm_forms();
Forms<MlstmStates> mlstm_states_forms();

// True if loads of 16 bytes are aligned; null is.
inline bool vectors(const void* p) { return (uintptr_t)p % 16 == 0; }
template <class Pointer>
bool vectors(const RowsOf<Pointer>& rows) {
  return vectors(rows.data) && rows.row % 8 == 0;
}

}  // namespace tessera::kernels::gpu
