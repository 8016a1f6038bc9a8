// Shared by the tests of operations by the kernels of a GPU, which the emulator runs on tensors of the CPU.
#pragma once

#include <gtest/gtest.h>
#include <torch/autograd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "ops/gpu.h"

namespace tessera::ops {

// The emulator's table in place of a GPU's, with TESSERA_GPU.
class Emulated {
 public:
  explicit Emulated(const char* form = "") {
    setenv("TESSERA_GPU", form, 1);
    kernels::gpu::use_table(tessera_gpu_table());
  }
  ~Emulated() {
    unsetenv("TESSERA_GPU");
    kernels::gpu::use_table(nullptr);
  }
};

// The names of profiled spans during its lifetime that begin with a prefix.
class Runs {
 public:
  explicit Runs(const char* prefix) {
    prefix_ = prefix;
    names_.clear();
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& f) {
      if (std::string(f.name()).starts_with(prefix_)) names_.emplace_back(f.name());
      return std::unique_ptr<at::ObserverContext>();
    }));
  }
  ~Runs() { at::removeCallback(handle_); }
  Runs(const Runs&) = delete;
  Runs& operator=(const Runs&) = delete;
  const std::vector<std::string>& names() const { return names_; }

 private:
  static inline thread_local std::vector<std::string> names_;
  static inline thread_local std::string prefix_;
  at::CallbackHandle handle_ = 0;
};

// The result of `compute` and its gradients with respect to `inputs`, for a fixed scalar of the result.
template <class Compute>
std::vector<torch::Tensor> with_gradients(const std::vector<torch::Tensor>& inputs, const Compute& compute) {
  const torch::Tensor y = compute();
  const torch::Tensor weight = torch::linspace(-1, 1, y.numel()).view(y.sizes());
  std::vector<torch::Tensor> all = torch::autograd::grad({(y.to(torch::kFloat32) * weight).sum()}, inputs);
  all.push_back(y.detach());
  return all;
}

inline void expect_close(const std::vector<torch::Tensor>& got, const std::vector<torch::Tensor>& want,
                         double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].sizes(), want[i].sizes());
    const double error = (got[i].to(torch::kFloat64) - want[i].to(torch::kFloat64)).norm().item<double>();
    EXPECT_LE(error, tolerance * want[i].to(torch::kFloat64).norm().item<double>()) << "tensor " << i;
  }
}

}  // namespace tessera::ops
