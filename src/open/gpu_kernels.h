// The program's own kernels for GPUs, which are loaded with LibTorch's GPU half.
#pragma once

#include <string>

namespace tessera::train {

// Returns the form of each operator's kernel on the first GPU, or why there is none, for `tessera doctor`.
std::string gpu_kernels();

}  // namespace tessera::train
