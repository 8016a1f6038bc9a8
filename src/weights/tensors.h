// Tensors from files of weights and into safetensors.
#pragma once

#include <string>

#include "io/weights/safetensors.h"
#include "io/weights/weight_file.h"
#include "nn/named_tensors.h"

namespace tessera::train {

// Returns the type of a tensor's elements in a file. Throws an error that names the tensor if safetensors has no such type.
DType element_type(const torch::Tensor& tensor, const std::string& name);

// Writes tensors of any device in their own dtype. Returns the XXH3-64 of the file.
std::string save_tensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {});
// Copies a view of a file into a tensor that owns its memory.
torch::Tensor to_tensor(const TensorView& view);
NamedTensors read_tensors(const SafetensorsFile& file);
NamedTensors read_tensors(const WeightFile& file);

}  // namespace tessera::train
