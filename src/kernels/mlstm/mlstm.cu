// The forms of the mLSTM cell and its states, by head dims.
#include "kernels/gpu/table.h"
#include "kernels/mlstm/mlstm_cell.cuh"
#include "kernels/mlstm/mlstm_states.cuh"

namespace tessera::kernels::gpu {
namespace {

template <int kKey, int kValue, bool kState, bool kAfter>
int run(const MlstmCell& call, Stream stream) {
  const int64_t tiles = chunks_of(call.tokens, call.chunk) * (call.chunk / kTileRows);
  return launch<MlstmCellKernel<kKey, kValue, kState, kAfter>>(
      call, {tiles, call.value_dim / kValue, call.batch * call.heads}, stream);
}

// A head of up to 128 channels is one slice, and norm, skip and gate follow in the same kernel.
template <int kDim>
int run_whole(const MlstmCell& call, Stream stream) {
  if (call.c)
    return call.y ? run<kDim, kDim, true, true>(call, stream) : run<kDim, kDim, true, false>(call, stream);
  return call.y ? run<kDim, kDim, false, true>(call, stream) : run<kDim, kDim, false, false>(call, stream);
}
template <int kDim, int kSlice>
int run_sliced(const MlstmCell& call, Stream stream) {
  return call.c ? run<kDim, kSlice, true, false>(call, stream)
                : run<kDim, kSlice, false, false>(call, stream);
}

template <int kDim>
bool takes_whole(const MlstmCell& call) {
  const bool after = !call.y || (call.act && call.z && call.norm_weight && call.skip);
  return fits(call) && call.key_dim == kDim && call.value_dim == kDim && after && vectors(call.q) &&
         (call.c || call.tokens <= call.chunk);
}
template <int kDim>
bool takes_sliced(const MlstmCell& call) {
  return takes_whole<kDim>(call) && !call.y;
}

constexpr Form<MlstmCell> kCells[] = {
    {"tile48", 80, MlstmCellKernel<48, 48, true, true>::kShared, takes_whole<48>, run_whole<48>},
    {"tile64", 80, MlstmCellKernel<64, 64, true, true>::kShared, takes_whole<64>, run_whole<64>},
    {"tile96", 80, MlstmCellKernel<96, 96, true, true>::kShared, takes_whole<96>, run_whole<96>},
    {"tile128", 80, MlstmCellKernel<128, 128, true, true>::kShared, takes_whole<128>, run_whole<128>},
    {"tile192", 80, MlstmCellKernel<192, 96, true, false>::kShared, takes_sliced<192>, run_sliced<192, 96>},
    {"tile256", 80, MlstmCellKernel<256, 64, true, false>::kShared, takes_sliced<256>, run_sliced<256, 64>},
    {"tile384", 80, MlstmCellKernel<384, 64, true, false>::kShared, takes_sliced<384>, run_sliced<384, 64>},
    {"tile512", 80, MlstmCellKernel<512, 64, true, false>::kShared, takes_sliced<512>, run_sliced<512, 64>},
};

template <int kSlice>
bool takes_states(const MlstmStates& call) {
  const bool initial = !call.c0 || (call.n0 && call.m0), last = !call.last_c || (call.last_n && call.last_m);
  return fits(call) && call.c && call.n && call.m && call.key_dim % 16 == 0 && call.value_dim % kSlice == 0 &&
         initial && last;
}
template <int kSlice>
int run_states(const MlstmStates& call, Stream stream) {
  return launch<MlstmStatesKernel<kSlice>>(
      call, {(call.key_dim + kTileRows - 1) / kTileRows, call.value_dim / kSlice, call.batch * call.heads},
      stream);
}

constexpr Form<MlstmStates> kStates[] = {
    {"rows96", 80, MlstmStatesKernel<96>::kShared, takes_states<96>, run_states<96>},
    {"rows64", 80, MlstmStatesKernel<64>::kShared, takes_states<64>, run_states<64>},
    {"rows48", 80, MlstmStatesKernel<48>::kShared, takes_states<48>, run_states<48>},
};

}  // namespace

Forms<MlstmCell> mlstm_forms() { return {kCells, sizeof(kCells) / sizeof(*kCells)}; }
Forms<MlstmStates> mlstm_states_forms() { return {kStates, sizeof(kStates) / sizeof(*kStates)}; }

}  // namespace tessera::kernels::gpu
