// Matrix products on a GPU by NVIDIA's cuBLASLt, with the steps after them in the same pass over the result.
//
// The library is loaded at run time and used if TESSERA_GPU=cublaslt; otherwise LibTorch computes products. The algorithm is
// the first proposal of the library for shape, types and alignment, never the fastest of a measurement: equal bits in each run.
#pragma once

#include <string>
#include <vector>

#include "kernels/gpu/table.h"

namespace tessera::kernels::gpu {

// A bfloat16 matrix with contiguous columns; `row`: numbers between rows.
struct ProductFactor {
  const void* data = nullptr;
  int64_t row = 0;
  bool transposed = false;  // its transpose is the factor
};
// result = f(a b + added + bias) for a (rows,inner), b (inner,columns); f: nothing, GELU by tanh, or times the slope of that GELU.
struct Product {
  int64_t rows = 0, columns = 0, inner = 0;
  ProductFactor a, b;
  RowsOut result;              // float or bfloat16
  Rows added;                  // of the result's type; null: nothing
  const void* bias = nullptr;  // (columns), of the result's type, or null
  bool gelu_tanh = false, gelu_gradient = false;
  void* before = nullptr;  // (rows,columns), contiguous, of the result's type: output, GELU's input, or null;
                           // gelu_gradient: input, where the slope is taken
  void* sums_of_a = nullptr;  // output (rows): sums of a over `inner`, of the result's type; null: none
  void* workspace = nullptr;  // kProductWorkspace bytes on a boundary of 256
};
constexpr size_t kProductWorkspace = size_t{32} << 20;

// Loads the first of these files that the system finds, and its functions. Returns an empty text, or why there are none.
std::string load_products(const std::vector<std::string>& files = {"libcublasLt.so.13", "libcublasLt.so.12"});
// Unloads it, for tests; no product may be in progress.
void forget_products();
// Returns "13.0.2", or an empty text if no library is loaded.
std::string products_version();
// True if TESSERA_GPU=cublaslt and the library is loaded.
bool products_in_use();

// Starts the product on the device's stream. Returns false if the library has no algorithm for it. Throws Error if it fails.
bool run_product(int device, const Product& product, Stream stream);

}  // namespace tessera::kernels::gpu
