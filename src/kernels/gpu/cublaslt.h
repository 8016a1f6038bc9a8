// The part of cuBLASLt's C interface that products.cpp calls: its functions are found at run time, so that the build needs no
// CUDA toolkit. cublaslt_test.cpp compares the numbers here with NVIDIA's header. Matrices are stored column by column.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace tessera::kernels::gpu::cublaslt {

using Status = int;
constexpr Status kSuccess = 0, kNotSupported = 15;
constexpr int kComputeFloat32 = 68;
enum Type : int { kFloat32 = 0, kBfloat16 = 14 };
enum Operation : int32_t { kAsStored = 0, kTransposed = 1 };
// After the product and the sum with C. Bias: a number a row of D. Bias gradient: sums over the columns of op(B). Stored: with the
// activation's input to, or for its gradient from, an additional matrix.
enum Epilogue : uint32_t {
  kNoEpilogue = 1,
  kBias = 4,
  kGeluTanh = 32,
  kStored = 128,
  kGeluGradient = 64 | kStored,
  kBiasGradientOfB = 512
};
enum DescriptionAttribute : int {
  kOperationOfA = 3,      // int32_t
  kOperationOfB = 4,      // int32_t
  kEpilogueOfResult = 7,  // uint32_t
  kBiasPointer = 8,       // void*, of D's type
  kStoredPointer = 11,    // void*, of D's type
  kStoredStride = 12,     // int64_t, numbers between columns
};
enum PreferenceAttribute : int {
  kMostWorkspace = 1,  // uint64_t, bytes
  kAlignmentOfA = 5,
  kAlignmentOfB = 6,  // uint32_t, bytes
  kAlignmentOfC = 7,
  kAlignmentOfD = 8,
};

using Handle = struct HandleData*;
using Description = struct DescriptionData*;
using Layout = struct LayoutData*;
using Preference = struct PreferenceData*;
struct Algorithm {
  uint64_t data[8];
};
struct Proposal {
  Algorithm algorithm;
  size_t workspace;  // bytes that it needs
  Status state;
  float waves;
  int reserved[4];
};

// The functions, cublasLtNAME each. D = alpha op(A) op(B) + beta C, then the epilogue.
struct Functions {
  size_t (*get_version)();
  const char* (*get_status_string)(Status status);
  Status (*create)(Handle* handle);
  Status (*destroy)(Handle handle);
  Status (*description_create)(Description* description, int compute, int scale_type);
  Status (*description_destroy)(Description description);
  Status (*description_set)(Description description, int attribute, const void* value, size_t bytes);
  Status (*layout_create)(Layout* layout, int type, uint64_t rows, uint64_t columns, int64_t column_stride);
  Status (*layout_destroy)(Layout layout);
  Status (*preference_create)(Preference* preference);
  Status (*preference_destroy)(Preference preference);
  Status (*preference_set)(Preference preference, int attribute, const void* value, size_t bytes);
  Status (*propose)(Handle handle, Description description, Layout a, Layout b, Layout c, Layout d,
                    Preference preference, int most, Proposal* proposals, int* count);
  Status (*multiply)(Handle handle, Description description, const void* alpha, const void* a,
                     Layout layout_a, const void* b, Layout layout_b, const void* beta, const void* c,
                     Layout layout_c, void* d, Layout layout_d, const Algorithm* algorithm, void* workspace,
                     size_t workspace_bytes, void* stream);
};

}  // namespace tessera::kernels::gpu::cublaslt
