// Records a computation on tensors as a graph of ATen operations, with its free dimensions.
//
// A trace turns every whole number into a constant. So the computation is traced several times, with other inputs and other
// sizes of the free dimensions. Numbers that differ become dimensions (dimension.h). Anything else that
// differs depends on the values of the inputs, which is an error.
#pragma once

#include "ops/torch.h"

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "onnx/dimension.h"
#include "ops/inference.h"

namespace torch::jit {
struct Graph;
struct Value;
}  // namespace torch::jit

namespace tessera::onnx {

struct FunctionInput {
  std::string name;
  std::vector<int64_t> shape;  // at which it is traced
  // Returns an example with this shape; each `draw` gives different content.
  std::function<torch::Tensor(const std::vector<int64_t>& shape, uint64_t draw)> example;
};

// A computation without side effects, in evaluation mode.
struct Function {
  std::vector<FunctionInput> inputs;
  std::vector<std::string> outputs;
  std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)> run;
  ops::InferenceSettings settings = {.fused = false, .parallel_tokens = 4096};  // under which it runs

  // Returns examples of the inputs for these sizes of the free dimensions.
  struct FreeAxis {
    std::string name;
    std::vector<std::pair<size_t, size_t>> places;  // input, dimension
    std::vector<int64_t> other_sizes;               // sizes to trace, in addition to those of the shape
  };
  std::vector<FreeAxis> free = {};
  std::vector<int64_t> usual_sizes() const;
  std::vector<torch::Tensor> examples(const std::vector<int64_t>& sizes, uint64_t draw) const;
};

struct Trace {
  std::shared_ptr<torch::jit::Graph> graph;
  std::unordered_map<const torch::jit::Value*, Dimension>
      dimensions;  // for whole numbers that are not constants
};

// Throws Error that names the operation if traces differ in anything except dimensions.
Trace trace(const Function& function);

}  // namespace tessera::onnx
