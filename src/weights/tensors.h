// Reads tensors from weights files and writes safetensors.
#pragma once

#include <string>

#include "io/weights/safetensors.h"
#include "io/weights/weight_file.h"
#include "nn/named_tensors.h"

namespace tessera::train {

// Returns a tensor's element type in files. Throws Error with the tensor's name if safetensors lacks the
// type.
DType element_type(const torch::Tensor& tensor, const std::string& name);

// Writes tensors of any device in their own dtype. Returns the XXH3-64 of the file.
std::string save_tensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {});
// Copies a view of a file into a tensor that owns its memory.
torch::Tensor to_tensor(const TensorView& view);
NamedTensors read_tensors(const SafetensorsFile& file);
NamedTensors read_tensors(const WeightFile& file);

}  // namespace tessera::train
