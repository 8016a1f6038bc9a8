// Computes a graph of ONNX over ATen, with the operations that lowering emits: the definition that a file is checked against.
#pragma once

#include "ops/torch.h"

#include <string>
#include <vector>

#include "io/onnx/onnx_model.h"

namespace tessera::onnx {

// Returns the outputs for these inputs. Throws Error for an operation or an attribute without a rule.
std::vector<torch::Tensor> interpret(const OnnxGraph& graph, const std::vector<torch::Tensor>& inputs);

}  // namespace tessera::onnx
