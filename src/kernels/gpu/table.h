// The kernels of a GPU as the rest of the program sees them: a table of forms for each operator.
//
// The table comes from libtessera_gpu.so, which needs the CUDA runtime alone and is loaded at run time
// (library.h). A form may decline a call by its types, widths and alignment. If none takes it, the ATen
// composition computes, which is the definition. TESSERA_GPU=composition uses no kernel, TESSERA_GPU=NAME
// only forms of that name, TESSERA_GPU=cublaslt all forms and products by cuBLASLt (products.h). C headers only: nvcc
// includes it.
#pragma once

#include <stdint.h>

#include "kernels/gpu/calls.h"

namespace tessera::kernels::gpu {

using Stream = void*;  // a cudaStream_t

// One way to compute an operator. run() starts it on the stream and returns 0 or CUDA's error.
template <class Call>
struct Form {
  const char* name;
  int32_t capability;  // the lowest compute capability, 10 x major + minor
  int32_t shared;      // bytes of shared memory of a block
  bool (*takes)(const Call& call);
  int (*run)(const Call& call, Stream stream);
};
// Returns the bytes of shared memory that a block can have on GPUs of a compute capability.
constexpr int32_t most_shared(int32_t capability) {
  const bool large = capability >= 90 && capability < 110;
  return (large ? 227 : capability == 80 || capability == 87 ? 163 : 99) << 10;
}
// Best first.
template <class Call>
struct Forms {
  const Form<Call>* first = nullptr;
  int64_t count = 0;
  const Form<Call>* begin() const { return first; }
  const Form<Call>* end() const { return first + count; }
};

// Visits every operator's forms with their name, the order of Table.
struct Table {
  int32_t version, layout;  // first: other versions are read this far only
  int32_t on_host;          // 1: the emulator, for tests; pointers are the host's
  const char* (*error_text)(int error);
  int (*capability)(int device);  // 10 x major + minor, or below zero
  const char* images;             // what the library has code for: "80;90a;100;120"
  Forms<NormForward> norm;
  Forms<NormBackward> norm_backward;
  Forms<ResidualForward> residual;
  Forms<ResidualBackward> residual_backward;
  Forms<PatchRows> patch_rows;
  Forms<Rotation> rotate;
  Forms<AttentionForward> attention;
  Forms<AttentionBackward> attention_backward;
  Forms<CachedAttention> cached_attention;
  Forms<ActivationForward> activation;
  Forms<ActivationBackward> activation_backward;
  Forms<OptimiserStep> optimiser;
  Forms<MixerInputs> mixer_inputs;
  Forms<MixerInputsBackward> mixer_inputs_backward;
  Forms<MlstmCell> mlstm;
  Forms<MlstmStates> mlstm_states;
  Forms<MlstmGradients> mlstm_backward;

  template <class Visitor>
  void visit(Visitor visitor) const {
    visitor("norm", norm), visitor("norm backward", norm_backward), visitor("residual", residual);
    visitor("residual backward", residual_backward), visitor("patch rows", patch_rows),
        visitor("rotate", rotate);
    visitor("attention", attention), visitor("attention backward", attention_backward);
    visitor("cached attention", cached_attention);
    visitor("activation", activation), visitor("activation backward", activation_backward);
    visitor("optimiser", optimiser);
    visitor("mixer inputs", mixer_inputs), visitor("mixer inputs backward", mixer_inputs_backward);
    visitor("mlstm", mlstm), visitor("mlstm states", mlstm_states);
    visitor("mlstm backward", mlstm_backward);
  }
};
// Raised by a change of meaning; kTableLayout changes with the sizes by itself.
constexpr int32_t kTableVersion = 7;
template <class... Part>
constexpr int32_t sizes_of() {
  uint32_t mixed = 0;
  ((mixed = 31 * mixed + static_cast<uint32_t>(sizeof(Part))), ...);
  return static_cast<int32_t>(mixed & 0x7fffffff);
}
constexpr int32_t kTableLayout =
    sizes_of<Table, NormForward, NormBackward, ResidualForward, ResidualBackward, PatchRows, Rotation,
             AttentionForward, AttentionBackward, CachedAttention, ActivationForward, ActivationBackward,
             OptimiserTensor, OptimiserStep, MixerInputs, MixerInputsBackward, MlstmCell, MlstmStates,
             MlstmGradients>();

// The forms of each operator, from its .cu file.
Forms<NormForward> norm_forms();
Forms<NormBackward> norm_backward_forms();
Forms<ResidualForward> residual_forms();
Forms<ResidualBackward> residual_backward_forms();
Forms<PatchRows> patch_rows_forms();
Forms<Rotation> rotate_forms();
Forms<AttentionForward> attention_forms();
Forms<AttentionBackward> attention_backward_forms();
Forms<CachedAttention> cached_attention_forms();
Forms<ActivationForward> activation_forms();
Forms<ActivationBackward> activation_backward_forms();
Forms<OptimiserStep> optimiser_forms();
Forms<MixerInputs> mixer_inputs_forms();
Forms<MixerInputsBackward> mixer_inputs_backward_forms();
Forms<MlstmCell> mlstm_forms();
Forms<MlstmStates> mlstm_states_forms();
Forms<MlstmGradients> mlstm_backward_forms();

// True if loads of 16 bytes are aligned; null is.
inline bool vectors(const void* p) { return (uintptr_t)p % 16 == 0; }
template <class Pointer>
bool vectors(const RowsOf<Pointer>& rows) {
  return vectors(rows.data) && rows.row % 8 == 0;
}
template <class Pointer>
bool vectors(const HeadsOf<Pointer>& heads) {
  return vectors(heads.data) && heads.sample % 8 == 0 && heads.head % 8 == 0 && heads.token % 8 == 0;
}

}  // namespace tessera::kernels::gpu

// The one symbol of the library.
extern "C" const tessera::kernels::gpu::Table* tessera_gpu_table(void);
