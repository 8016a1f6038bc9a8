// What the machine can do: oneDNN's matrix products with packed weights, through LibTorch's copy of it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tessera::cli {

enum class BenchDtype { fp32, bf16, int8 };
BenchDtype parse_bench_dtype(const std::string& name);
const char* name_of(BenchDtype dtype);

// One product x [rows, in] W^T with weights packed once; call it to run it.
class LimitProduct {
 public:
  LimitProduct(BenchDtype dtype, int64_t rows, int64_t in, int64_t out);
  void operator()() const { run_(); }
  double gflop() const { return gflop_; }

 private:
  std::function<void()> run_;
  double gflop_;
};

}  // namespace tessera::cli
