// Files of detectron2's model zoo, and of Detectron and Caffe before it, differ from PyTorch's in norms and colours.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "io/weights/safetensors.h"
#include "nn/named_tensors.h"

namespace tessera::train {

// The statistics of a ResNet's norms that are kept as scale and shift alone, under the file's names: means of 0 and variances of 1,
// with which a batch norm computes what they do, to its epsilon (5e-6). None where the file has statistics.
NamedTensors absent_statistics(const std::vector<TensorView>& views);

// The convolution that reads the image, for channels in the opposite order: [out, 3, rows, columns] under its name. Throws Error
// with `path` where there is none or more than one.
std::pair<std::string, torch::Tensor> turned_first_convolution(const std::vector<TensorView>& views,
                                                               const std::string& path);

}  // namespace tessera::train
