// Shared by tests of products: the library in the place of cuBLASLt, in use during a scope (cublaslt_testing.cpp).
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/gpu/library.h"
#include "kernels/gpu/products.h"

namespace tessera::kernels::gpu_testing {

class StandIn {
 public:
  StandIn() {
    setenv("TESSERA_GPU", "cublaslt", 1);
    gpu::use_table(tessera_gpu_table());
    EXPECT_EQ(gpu::load_products({TESSERA_CUBLASLT_STAND_IN}), "");
    library_ = dlopen(TESSERA_CUBLASLT_STAND_IN, RTLD_NOW | RTLD_LOCAL);
  }
  ~StandIn() {
    gpu::forget_products();
    EXPECT_EQ(objects(), 0) << "objects of the library were not destroyed";
    unsetenv("TESSERA_GPU");
    gpu::use_table(nullptr);
  }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

  int64_t objects() const { return function<int64_t (*)()>("stand_in_objects")(); }
  int64_t products() const { return function<int64_t (*)()>("stand_in_products")(); }
  void refuse(uint32_t epilogue, bool refused = true) const {
    function<void (*)(uint32_t, int)>("stand_in_refuse")(epilogue, refused);
  }

 private:
  template <class Function>
  Function function(const char* name) const {
    return reinterpret_cast<Function>(dlsym(library_, name));
  }
  void* library_;
};

}  // namespace tessera::kernels::gpu_testing
