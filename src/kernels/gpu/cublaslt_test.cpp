// The numbers and structures of cublaslt.h are those of NVIDIA's header, if the machine has it.
#include "kernels/gpu/cublaslt.h"

#include <cublasLt.h>

#include <type_traits>

namespace tessera::kernels::gpu::cublaslt {
namespace {

constexpr bool is(int64_t ours, int64_t theirs) { return ours == theirs; }
static_assert(is(kSuccess, CUBLAS_STATUS_SUCCESS) && is(kNotSupported, CUBLAS_STATUS_NOT_SUPPORTED));
static_assert(is(kComputeFloat32, CUBLAS_COMPUTE_32F) && is(kFloat32, CUDA_R_32F) &&
              is(kBfloat16, CUDA_R_16BF));
static_assert(is(kAsStored, CUBLAS_OP_N) && is(kTransposed, CUBLAS_OP_T));
static_assert(is(kNoEpilogue, CUBLASLT_EPILOGUE_DEFAULT) && is(kBias, CUBLASLT_EPILOGUE_BIAS));
static_assert(is(kGeluTanh, CUBLASLT_EPILOGUE_GELU) && is(kGeluTanh | kBias, CUBLASLT_EPILOGUE_GELU_BIAS));
static_assert(is(kGeluTanh | kStored, CUBLASLT_EPILOGUE_GELU_AUX) &&
              is(kGeluTanh | kStored | kBias, CUBLASLT_EPILOGUE_GELU_AUX_BIAS) &&
              is(kGeluGradient, CUBLASLT_EPILOGUE_DGELU));
static_assert(is(kStoredPointer, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER) &&
              is(kStoredStride, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD));
static_assert(is(kBiasGradientOfB, CUBLASLT_EPILOGUE_BGRADB));
static_assert(is(kOperationOfA, CUBLASLT_MATMUL_DESC_TRANSA) &&
              is(kOperationOfB, CUBLASLT_MATMUL_DESC_TRANSB));
static_assert(is(kEpilogueOfResult, CUBLASLT_MATMUL_DESC_EPILOGUE) &&
              is(kBiasPointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER));
static_assert(is(kMostWorkspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES));
static_assert(is(kAlignmentOfA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES) &&
              is(kAlignmentOfB, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES) &&
              is(kAlignmentOfC, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES) &&
              is(kAlignmentOfD, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES));
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t) &&
              sizeof(Proposal) == sizeof(cublasLtMatmulHeuristicResult_t) &&
              offsetof(Proposal, workspace) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) &&
              offsetof(Proposal, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(sizeof(Status) == sizeof(cublasStatus_t) && sizeof(int) == sizeof(cudaDataType_t) &&
              sizeof(int) == sizeof(cublasComputeType_t) &&
              sizeof(int) == sizeof(cublasLtMatmulDescAttributes_t));

// True if both functions have as many parameters of the same sizes, and results.
template <class Ours, class Theirs>
constexpr bool kAlike = false;
template <class Result, class... Ours, class TheirResult, class... Theirs>
requires(sizeof...(Ours) ==
         sizeof...(Theirs)) constexpr bool kAlike<Result (*)(Ours...), TheirResult (*)(Theirs...)> =
    sizeof(Result) == sizeof(TheirResult) &&
    ((sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>)&&...);

static_assert(kAlike<decltype(Functions::get_version), decltype(&cublasLtGetVersion)>);
static_assert(kAlike<decltype(Functions::get_status_string), decltype(&cublasLtGetStatusString)>);
static_assert(kAlike<decltype(Functions::create), decltype(&cublasLtCreate)>);
static_assert(kAlike<decltype(Functions::destroy), decltype(&cublasLtDestroy)>);
static_assert(kAlike<decltype(Functions::description_create), decltype(&cublasLtMatmulDescCreate)>);
static_assert(kAlike<decltype(Functions::description_destroy), decltype(&cublasLtMatmulDescDestroy)>);
static_assert(kAlike<decltype(Functions::description_set), decltype(&cublasLtMatmulDescSetAttribute)>);
static_assert(kAlike<decltype(Functions::layout_create), decltype(&cublasLtMatrixLayoutCreate)>);
static_assert(kAlike<decltype(Functions::layout_destroy), decltype(&cublasLtMatrixLayoutDestroy)>);
static_assert(kAlike<decltype(Functions::preference_create), decltype(&cublasLtMatmulPreferenceCreate)>);
static_assert(kAlike<decltype(Functions::preference_destroy), decltype(&cublasLtMatmulPreferenceDestroy)>);
static_assert(kAlike<decltype(Functions::preference_set), decltype(&cublasLtMatmulPreferenceSetAttribute)>);
static_assert(kAlike<decltype(Functions::propose), decltype(&cublasLtMatmulAlgoGetHeuristic)>);
static_assert(kAlike<decltype(Functions::multiply), decltype(&cublasLtMatmul)>);

}  // namespace
}  // namespace tessera::kernels::gpu::cublaslt
