// One form of the mLSTM cell and its gradients, as planted.cmake's copy of the device code has it, in a library of its
// own.
#include "kernels/mlstm/mlstm_cell.cuh"
#include "kernels/mlstm/mlstm_gradient.cuh"

using namespace tessera::kernels::gpu;

// Returns 1 if the emulator finds a fault by itself.
template <class Run>
static int with_order(int early, const Run& run) {
  set_emulated_order(early ? EmulatedOrder::early : EmulatedOrder::late);
  try {
    run();
    return 0;
  } catch (const EmulatedFault&) {
    return 1;
  }
}

// Runs the cell for 64 channels without states.
extern "C" __attribute__((visibility("default"))) int planted_run(const MlstmCell* call, int early) {
  return with_order(early, [&] {
    const int64_t tiles = chunks_of(call->tokens, call->chunk) * (call->chunk / kTileRows);
    launch<MlstmCellKernel<64, 64, false, false>>(*call, {tiles, 1, call->batch * call->heads}, nullptr);
  });
}

// Runs its gradients with respect to queries, keys and values.
extern "C" __attribute__((visibility("default"))) int planted_gradients(const MlstmGradients* call,
                                                                        int early) {
  return with_order(early, [&] {
    const int64_t items = call->batch * call->heads, rows = (items * call->tokens + 3) / 4;
    const Block grid = {chunks_of(call->tokens, call->chunk) * (call->chunk / kTileRows), 1, items};
    launch<MlstmRowGradientKernel>(*call, {rows, 1, 1}, nullptr);
    launch<MlstmGradientKernel<64, 64, MlstmInput::q, false>>(*call, grid, nullptr);
    launch<MlstmGradientKernel<64, 64, MlstmInput::k, false>>(*call, grid, nullptr);
    launch<MlstmGradientKernel<64, 64, MlstmInput::v, false>>(*call, grid, nullptr);
  });
}
