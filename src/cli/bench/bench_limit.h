// The limit of the machine: oneDNN's matrix products with packed weights, through LibTorch's copy of it.
#pragma once

#include "ops/torch.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

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

// Runs one step of a measurement and returns when it is done.
using Step = std::function<void()>;
// Returns the step with a wait for its end: a GPU only queues its work.
Step waited_for(const Step& step, const torch::Device& device);

double median(std::vector<double> values);  // needs at least one value

// A product of a model: x [rows, in] W^T, `calls` times per step.
struct ProductShape {
  int64_t rows, in, out;
  double calls;
};

// GFLOP/s of oneDNN on the products of a model, which alternate with the model's steps. For bfloat16,
// products in float count if they are faster (as on processors with bfloat16 at half the rate).
class Limit {
 public:
  // Keeps the shapes with the most work, at most four. Needs at least one.
  Limit(BenchDtype dtype, std::vector<ProductShape> shapes);
  void run();  // each product once
  double gflops() const;

 private:
  struct Timed {
    LimitProduct product;
    double calls;
    std::vector<double> seconds;
  };
  std::vector<std::vector<Timed>> ways_;  // one list of products for each precision
};

}  // namespace tessera::cli
