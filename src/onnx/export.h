// One computation as an ONNX model, checked against the original before it is written.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "io/onnx/onnx_model.h"
#include "nn/named_tensors.h"
#include "onnx/lowering.h"

namespace tessera::onnx {

struct ExportOptions {
  int64_t opset = 20;  // 17 to 20
  std::string producer_version = {};
  const Entries* entries = nullptr;  // null: entries()
  bool half = false;                 // float32 weights are stored in float16, and computed with in float32
};

// Computes a graph with ATen, for all operations that lowering emits; files are checked against it. Throws
// Error for an operation or an attribute without a rule.
std::vector<torch::Tensor> interpret(const OnnxGraph& graph, const std::vector<torch::Tensor>& inputs);

struct Exported {
  OnnxModel model;
  // Largest difference between the interpreted file and the function, relative to the largest output.
  double difference = 0;
};

// Largest difference that a file may have, and one that rounds to float16 or int8.
constexpr double kMostDifference = 1e-4, kMostRounded = 0.05;

// Traces `function`, whose weights are `weights`, and checks the graph on inputs that the trace did not see.
// Throws Error that names the operation without an ONNX form, or the output that differs.
Exported export_function(const Function& function, const NamedTensors& weights,
                         const ExportOptions& options = {});

}  // namespace tessera::onnx
