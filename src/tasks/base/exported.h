// What `tessera export` writes: the computations of a task that other programs can run without Tessera.
#pragma once

#include <string>
#include <vector>

#include "onnx/trace.h"
#include "tasks/base/task.h"

namespace tessera::tasks {

// An input of images [batch, channels, height, width], preprocessed as the task specifies.
onnx::FunctionInput image_input(int64_t channels, int64_t height, int64_t width);
// An input of token ids [batch, tokens], int64: `start`, random ids below `vocabulary`, `end`, then zeros.
onnx::FunctionInput token_input(int64_t tokens, int64_t vocabulary, int64_t start, int64_t end);

// One computation; in every input dimension 0 is the batch and the only free dimension.
ExportedPart exported_part(const std::string& name, std::vector<onnx::FunctionInput> inputs,
                           std::vector<std::string> outputs,
                           std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)> run);

// The vector of a backbone, [batch, width], and the maps of its last block, [batch, channels, rows, columns].
ExportedPart exported_features(const BackbonePart& backbone, int64_t side);

}  // namespace tessera::tasks
