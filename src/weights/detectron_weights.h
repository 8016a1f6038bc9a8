// Weights of detectron2's model zoo, Detectron and Caffe, which differ from PyTorch's in norms and channel
// order.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "io/weights/safetensors.h"
#include "nn/named_tensors.h"

namespace tessera::train {

// Returns statistics for a ResNet's norms that are stored as scale and shift only, under the file's names.
// Means of 0 and variances of 1 make a batch norm equivalent up to its epsilon (5e-6). Empty if the file has
// statistics.
NamedTensors absent_statistics(const std::vector<TensorView>& views);

// Returns the name of the convolution that reads the image and its weights [out, 3, rows, columns] with the
// input channels reversed. Throws Error with `path` unless exactly one exists.
std::pair<std::string, torch::Tensor> turned_first_convolution(const std::vector<TensorView>& views,
                                                               const std::string& path);

}  // namespace tessera::train
