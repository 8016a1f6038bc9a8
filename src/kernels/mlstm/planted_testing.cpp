// One form of the mLSTM cell, as planted.cmake's copy of the device code has it, in a library of its own.
#include "kernels/mlstm/mlstm_cell.cuh"

// Runs the cell for 64 channels without states. Returns 1 if the emulator found a fault by itself.
extern "C" __attribute__((visibility("default"))) int planted_run(
    const tessera::kernels::gpu::MlstmCell* call, int early) {
  using namespace tessera::kernels::gpu;
  set_emulated_order(early ? EmulatedOrder::early : EmulatedOrder::late);
  const int64_t tiles = chunks_of(call->tokens, call->chunk) * (call->chunk / kTileRows);
  try {
    return launch<MlstmCellKernel<64, 64, false, false>>(*call, {tiles, 1, call->batch * call->heads},
                                                         nullptr);
  } catch (const EmulatedFault&) {
    return 1;
  }
}
